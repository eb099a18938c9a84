from __future__ import annotations

import math
import re
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coft_core.conformal.bins import PositionBins, stepwise_bins
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import coverage_report
from coft_core.conformal.part import JOINT, ChainRecord
from coft_core.conformal.quantile import level_at_least
from coft_core.conformal.rule import Rule
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, CalibrationMismatch, InvalidInputError
from tests.coft_core.conformal.conftest import rewritten
from tests.conftest import TOY_FINGERPRINT


class TestReading:
    def test_bins_and_coverage_are_those_of_the_values(self, calibration):
        part, positions = calibration.joint, PositionBins()
        values = part.values
        bins = stepwise_bins(values.values, values.steps, values.contexts, 0.1, Rule(seed=part.seed), positions)
        assert calibration.bins == bins
        assert calibration.coverage == coverage_report(part.verification, bins, positions, 0.1, part.seed)
        assert calibration.context_count == 60

    def test_step_is_looked_up_in_its_bin(self, calibration):
        for step in (0, 7, 8, 23, 255, 5000):
            entry = calibration.joint.bin(step)
            assert entry.first_step <= step
            assert entry.last_step is None or step <= entry.last_step
            assert calibration.threshold(step) == entry.log_tau
            assert calibration.bound(step) == (entry.log_tau, entry.state)
        assert calibration.joint.bin(0).state == "calibrated"
        assert calibration.joint.bin(5000).state == "inherited"

    def test_estimator_and_source_are_the_fingerprints_and_settings_out_of_range_refused(self, calibration):
        assert (calibration.estimator, calibration.source) == ("hierarchical", "reference")
        with pytest.raises(InvalidInputError, match="median"):
            calibration.read(estimator="median")
        with pytest.raises(InvalidInputError, match="counted from 0"):
            calibration.threshold(-1)
        with pytest.raises(FrozenInstanceError):
            calibration.alpha = 0.2
        for field, value in (("alpha", 0.0), ("alpha", math.nan), ("bin_width", 0), ("max_position", -1), ("seed", -1)):
            with pytest.raises(InvalidInputError):
                replace(calibration.joint, **{field: value})

    def test_without_values_everything_passes_and_is_called_uninformative(self, fingerprint):
        empty = Calibration.of(fingerprint, 0.1, CalibrationValues.empty())
        assert empty.threshold(0) == -math.inf
        assert {entry.state for entry in empty.bins} == {"uninformative"}
        assert empty.coverage.coverage is None


class TestReadingAgain:
    def test_another_alpha_gives_other_thresholds_and_the_same_fingerprint(self, calibration):
        other = calibration.read(alpha=0.3)
        assert other.threshold(0) > calibration.threshold(0)
        assert other.fingerprint == calibration.fingerprint
        assert other.read(alpha=0.1) == calibration
        assert calibration.read(alpha=0.01).joint.bin(0).state == "uninformative"
        assert calibration.read() == calibration

    def test_another_estimator_changes_only_that_field_of_the_fingerprint(self, calibration):
        other = calibration.read(estimator="pooled")
        assert [name for name, _, _ in calibration.fingerprint.differences(other.fingerprint)] == ["estimator"]
        with pytest.raises(CalibrationMismatch, match=r"estimator.*hierarchical.*pooled"):
            calibration.fingerprint.require_equal(other.fingerprint)
        # The first bins hold one step of each context, where estimators agree.
        assert other.threshold(8) != calibration.threshold(8)

    def test_other_bins_are_computed_from_the_same_values(self, calibration):
        other = calibration.read(bin_width=4, max_position=12)
        assert [entry.last_step for entry in other.bins] == [0, 1, 3, 7, None]
        assert sum(entry.values for entry in other.bins) == len(calibration.joint.values)
        even = calibration.read(bin_width=4, max_position=12, bin_spacing="even")
        assert [entry.last_step for entry in even.bins] == [3, 7, None]
        with pytest.raises(InvalidInputError, match="widening, even"):
            calibration.read(bin_spacing="odd")


class TestFile:
    def test_file_gives_back_an_equal_calibration_in_equal_bytes(self, calibration, tmp_path):
        path = tmp_path / "ward notes.coft"
        calibration.save(path)
        loaded = Calibration.load(path)
        assert loaded == calibration
        assert loaded.bins == calibration.bins
        assert loaded.coverage == calibration.coverage
        assert loaded.to_bytes() == calibration.to_bytes()
        assert replace(calibration).to_bytes() == calibration.to_bytes()

    @settings(
        derandomize=True, deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        alpha=st.integers(1, 999).map(lambda n: n / 1000),
        lam=st.floats(0, 1),
        width=st.integers(1, 30),
        seed=st.integers(0, 2**63),
        estimator=st.sampled_from(["hierarchical", "one_per_context", "pooled"]),
    )
    def test_every_setting_survives_the_round_trip(self, calibration, name, alpha, lam, width, seed, estimator):
        part = replace(
            calibration.joint, fingerprint=replace(calibration.fingerprint, lam=lam, estimator=estimator), alpha=alpha,
            bin_width=width, seed=seed,
        )  # fmt: skip
        changed = Calibration(alpha, ((JOINT, part),), name=name)
        copy = Calibration.from_bytes(changed.to_bytes())
        assert copy == changed
        assert copy.bins == changed.bins
        assert copy.fingerprint.digest == changed.fingerprint.digest

    def test_values_without_support_survive(self, fingerprint):
        values = CalibrationValues(np.array([-np.inf, -1.0]), np.array([0, 0]), np.array([0, 1]))
        original = Calibration.of(fingerprint, 0.5, values)
        assert Calibration.from_bytes(original.to_bytes()) == original

    def test_saving_replaces_leaves_nothing_behind_and_keeps_the_old_file_where_it_fails(
        self, calibration, tmp_path, monkeypatch
    ):
        path = tmp_path / "calibration.coft"
        path.write_bytes(b"old")
        calibration.save(path)
        calibration.read(alpha=0.2).save(path)
        assert Calibration.load(path).alpha == 0.2
        assert [entry.name for entry in tmp_path.iterdir()] == ["calibration.coft"]
        calibration.save(path)

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(InvalidInputError, match="No space left"):
            calibration.read(alpha=0.2).save(path)
        assert Calibration.load(path) == calibration
        assert [entry.name for entry in tmp_path.iterdir()] == ["calibration.coft"]
        with pytest.raises(InvalidInputError, match="missing"):
            calibration.save(tmp_path / "missing" / "calibration.coft")

    def test_missing_truncated_damaged_and_other_files_are_refused_by_name(self, tmp_path, calibration):
        with pytest.raises(CalibrationFormatError, match=r"absent\.coft"):
            Calibration.load(tmp_path / "absent.coft")
        with pytest.raises(CalibrationFormatError, match=re.escape(str(tmp_path))):
            Calibration.load(tmp_path)
        path = tmp_path / "broken.coft"
        path.write_bytes(calibration.to_bytes()[:-200])
        with pytest.raises(CalibrationFormatError, match=r"broken\.coft"):
            Calibration.load(path)
        with pytest.raises(CalibrationFormatError, match=r"4.*1 to 3"):
            Calibration.from_bytes(rewritten(calibration.to_bytes(), version=4))
        with pytest.raises(CalibrationFormatError, match="calibration"):
            Calibration.from_bytes(rewritten(calibration.to_bytes(), kind="something else"))
        with pytest.raises(CalibrationFormatError, match="damaged"):
            Calibration.from_bytes(calibration.joint.values.to_bytes())
        forged = calibration.fingerprint.to_dict() | {"lam": 0.9}
        with pytest.raises(CalibrationFormatError, match="changed"):
            Calibration.from_bytes(rewritten(calibration.to_bytes(), fingerprint=forged))
        data = calibration.to_bytes()
        for length in range(0, len(data), 97):
            with pytest.raises(CalibrationFormatError):
                Calibration.from_bytes(data[:length])
        for changed, sentence in (
            ({"alpha": ...}, "lacks the setting 'alpha'"),
            ({"alpha": "0.1"}, "'alpha' is '0.1', which is not of the type float"),
            ({"alpha": 7}, "alpha is 7"), ({"bin_width": True}, "'bin_width' is True"), ({"seed": -4}, "seed is -4"),
            ({"bin_spacing": "odd"}, "spacing of the bins is 'odd'"),
            ({"bin_spacing": ...}, "lacks the setting 'bin_spacing'"), ({"name": None}, "'name' is None"),
            ({"fingerprint": {"model": "toy"}}, "fingerprint lacks"),
        ):  # fmt: skip
            with pytest.raises(CalibrationFormatError, match=sentence):
                Calibration.from_bytes(rewritten(calibration.to_bytes(), **changed))

    def test_older_files_keep_the_even_bins_they_were_made_with(self, calibration):
        old = Calibration.from_bytes(rewritten(calibration.to_bytes(), version=2, bin_spacing=...))
        assert old == calibration.read(bin_spacing="even")
        assert old.bins[0].label == "1–8"
        assert Calibration.from_bytes(old.to_bytes()) == old
        record = ChainRecord(calibration.read(bin_spacing="even").reading, 8)
        data = record.to_dict()
        del data["reading"]["bin_spacing"]
        assert ChainRecord.from_dict(data) == record


def of_counts(counts, estimator="hierarchical"):
    """Bins of one step; bin b has a value of each of the first counts[b] contexts."""
    rows = sorted((context, step) for step, count in enumerate(counts) for context in range(count))
    values = CalibrationValues(
        -1.0 - np.arange(len(rows)) / 1000, np.array([s for _, s in rows]), np.array([c for c, _ in rows])
    )
    made = Calibration.of(TOY_FINGERPRINT, 0.1, values, bin_width=1, max_position=len(counts))
    return made.read(estimator=estimator)


@pytest.mark.parametrize("estimator", ["hierarchical", "one_per_context", "pooled"])
@pytest.mark.parametrize("count", [2, 6, 12, 29])
def test_level_can_be_read_and_a_smaller_one_certifies_everything(count, estimator):
    made = of_counts([count], estimator)
    smallest = made.smallest_alpha().overall
    assert made.read(alpha=smallest).joint.bin(0).state == "calibrated"
    assert made.read(alpha=smallest * 0.999).joint.bin(0).state == "uninformative"


def test_levels_rise_with_unsupported_tokens_and_the_density_ratio():
    values = CalibrationValues(np.array([-math.inf] + [-1.0] * 8), np.zeros(9, dtype=int), np.arange(9))
    assert Calibration.of(TOY_FINGERPRINT, 0.1, values).smallest_alpha().overall == 0.2
    assert of_counts([99]).read(rho=1.5).smallest_alpha().overall == 0.015
    empty = Calibration.of(TOY_FINGERPRINT, 0.1, CalibrationValues.empty()).smallest_alpha()
    assert (empty.overall, empty.everywhere, empty.sequence, empty.bins) == (None, None, None, ())
    few = of_counts([2]).read(rho=4.0)
    assert few.smallest_alpha().overall is None
    assert few.bins[0].state == "uninformative"
    found = of_counts([99, 49, 0]).smallest_alpha()
    assert (found.contexts, found.overall, found.everywhere, found.sequence) == (99, 0.01, 0.02, 0.01)
    assert [(entry.label, entry.contexts, entry.smallest_alpha) for entry in found.bins] == [
        ("1", 99, 0.01),
        ("2", 49, 0.02),
    ]


@settings(derandomize=True, deadline=None)
@given(n=st.integers(1, 10**7))
def test_level_as_a_number_is_never_below_its_fraction(n):
    number = level_at_least(Fraction(1, n + 1))
    assert Fraction(1, n + 1) <= Fraction(str(number)) <= Fraction(1, n + 1) * Fraction(1_000_000_001, 1_000_000_000)


def test_no_float_stands_for_a_level_that_is_not_below_1():
    for level in (Fraction(4, 3), Fraction(1), Fraction(4), 1 - Fraction(1, 10**30)):
        assert level_at_least(level) is None
