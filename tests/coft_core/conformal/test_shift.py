from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import conformal_threshold
from coft_core.conformal.shift import Shift, estimate_density_ratio, weights_by_context
from coft_core.errors import CalibrationFormatError, InvalidInputError


class TestBound:
    def test_thresholds_are_those_of_alpha_over_possible_ratios(self, calibration):
        shifted = calibration.read(rho=2.0)
        assert [b.log_tau for b in shifted.bins] == [b.log_tau for b in calibration.read(alpha=0.05).bins]
        assert shifted.alpha == 0.1
        assert shifted.coverage.alpha == 0.05
        assert any("at most 2" in note for note in shifted.notes)
        # 0.3 / 3 in floating point is 0.09999999999999999, a rank too low for 59 contexts and more.
        shifted = calibration.read(alpha=0.3, rho=3.0)
        assert [b.rank for b in shifted.bins] == [b.rank for b in calibration.read(alpha=0.1).bins]
        assert calibration.read(rho=1.0) == calibration
        assert calibration.read(rho=2.0).read(rho=1.0) == calibration
        for rho in (0.5, math.nan, math.inf):
            with pytest.raises(InvalidInputError, match="rho"):
                calibration.read(rho=rho)


class TestWeights:
    @pytest.fixture
    def weights(self):
        generator = np.random.default_rng(0)
        return {context: float(w) for context, w in enumerate(generator.uniform(0.5, 2.0, size=100))}

    def test_each_bin_is_the_weighted_threshold_of_its_rows(self, calibration, weights):
        shifted = calibration.reweighted(weights, test_weight=1.5)
        rows = (calibration.joint.values.steps >= 4) & (calibration.joint.values.steps < 8)
        contexts = calibration.joint.values.contexts[rows]
        expected = conformal_threshold(
            calibration.joint.values.values[rows], 0.1, contexts,
            weights=[weights[int(context)] for context in contexts], test_weight=1.5,
        )  # fmt: skip
        assert shifted.threshold(4) == expected
        assert shifted.joint.bin(4).coverage_low is None
        effective = shifted.joint.shift.effective(set(contexts.tolist()))
        assert shifted.joint.bin(4).effective_contexts == pytest.approx(effective)

    def test_weights_are_measured_on_the_target_and_equal_ones_change_nothing(self, calibration):
        same = calibration.reweighted(dict.fromkeys(range(100), 0.3))
        assert [b.log_tau for b in same.bins] == [b.log_tau for b in calibration.bins]
        assert same.joint.effective_contexts == pytest.approx(60)
        assert same.coverage == calibration.coverage
        # Verification contexts 60-79 hardly occur in the target, so hardly any of them is counted.
        weights = {context: 1e-6 if 60 <= context < 80 else 1.0 for context in range(100)}
        assert calibration.reweighted(weights).coverage.contexts == 20

    def test_too_small_a_sample_and_impossible_weights_are_refused(self, calibration):
        heavy = {context: 1000.0 if context == 3 else 1.0 for context in range(100)}
        with pytest.raises(InvalidInputError, match=r"60 contexts worth 1\.1 and at least 30"):
            calibration.reweighted(heavy)
        strict = calibration.read(alpha=0.01)
        with pytest.raises(InvalidInputError, match="at least 99"):
            strict.reweighted(dict.fromkeys(range(100), 1.0))
        with pytest.raises(InvalidInputError, match="has no shift weight"):
            calibration.reweighted(dict.fromkeys(range(99), 1.0))
        with pytest.raises(InvalidInputError, match="above 0"):
            calibration.reweighted(dict.fromkeys(range(100), 0.0))
        with pytest.raises(InvalidInputError, match="no shift weights"):
            calibration.reweighted({})
        with pytest.raises(InvalidInputError, match="new prompt's weight"):
            calibration.reweighted(dict.fromkeys(range(100), 1.0), test_weight=math.inf)

    def test_weights_survive_the_file(self, calibration, weights):
        shifted = calibration.reweighted(weights, estimated=True)
        copy = Calibration.from_bytes(shifted.to_bytes())
        assert copy == shifted
        assert copy.bins == shifted.bins
        assert "estimated" in copy.notes[0]

    def test_rows_of_one_context_share_a_weight(self):
        assert weights_by_context([2.0, 1.0, 2.0], [0, 1, 0]) == {0: 2.0, 1: 1.0}
        with pytest.raises(InvalidInputError, match="Row 3 has the weight 3"):
            weights_by_context([2.0, 1.0, 3.0], [0, 1, 0])
        with pytest.raises(InvalidInputError, match="2 weights for 3 rows"):
            weights_by_context([2.0, 1.0], [0, 1, 0])


def test_too_few_prompts_are_not_compared_and_a_damaged_shift_is_refused():
    with pytest.raises(InvalidInputError, match="19 deployment prompts"):
        estimate_density_ratio(["a"] * 20, ["b"] * 19)
    for data in ({}, {"kind": "bound", "rho": 0.1}, {"kind": "weights", "contexts": [1], "weights": []}):
        with pytest.raises(CalibrationFormatError, match="shift is damaged"):
            Shift.from_dict(data)


def test_file_of_the_first_version_is_still_read():
    old = Calibration.load(Path(__file__).with_name("data") / "calibration_version_1.zip")
    assert old.joint.shift == Shift()
    assert old.chains is None
    assert old.joint.groups == ()
    assert old.joint.bin(0).state == "calibrated"
    assert Calibration.from_bytes(old.to_bytes()) == replace(old)
