"""What a factorized calibration says of all families together, on values written down by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import coft_core as cc
from coft_core.conformal.coverage import clopper_pearson
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.part import ChainRecord, Iteration, Part
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.types import Diagnostics, FamilyStep, Step
from tests.coft_core.conformal.conftest import rewritten
from tests.coft_core.levels import flat
from tests.conftest import TOY_FINGERPRINT

CONTEXTS = 99


def part(verification=None, alpha=0.05, contexts=CONTEXTS, tau=-2.0):
    """A family whose threshold is ``tau`` at the first step and borrowed from there at later ones."""
    return Part(
        TOY_FINGERPRINT, alpha, flat(tau, contexts), verification or CalibrationValues.empty(), bin_width=2,
        max_position=6, bin_spacing="even",
    )  # fmt: skip


def held_out(rows):
    """Values of (context, row, step, kept) for :func:`part`."""
    columns = np.array(rows).reshape(-1, 4)
    return CalibrationValues(np.where(columns[:, 3], -1.0, -9.0), columns[:, 2], columns[:, 0], columns[:, 1])


def both(gender, age):
    return cc.Calibration(0.1, (("gender", part(gender)), ("age", part(age))))


class TestCoverage:
    def test_a_step_counts_as_kept_only_if_every_family_keeps_it_in_its_own_row(self):
        # Contexts 200 to 203: both keep, age refuses, gender refuses, only gender has a value.
        gender = held_out([(200, 1, 0, True), (201, 2, 0, True), (202, 3, 0, False), (203, 4, 0, True)])
        age = held_out([(200, 1, 0, True), (201, 2, 0, False), (202, 3, 0, True)])
        report = both(gender, age).coverage
        assert (report.kept, report.contexts) == (2, 4)
        assert report.alpha == 0.1
        assert (report.low, report.high) == clopper_pearson(2, 4)
        # Gender stands in row 1 and is kept, age in row 2 and is refused: half of the context's steps are kept.
        contexts = range(200, 1200)
        gender = held_out([(c, 2 * c, 0, True) for c in contexts])
        age = held_out([(c, 2 * c + 1, 0, False) for c in contexts])
        assert both(gender, age).coverage.coverage == pytest.approx(0.5, abs=0.05)
        same_row = held_out([(c, 2 * c, 0, False) for c in contexts])
        assert both(gender, same_row).coverage.kept == 0
        kept, refused = (
            CalibrationValues(np.full(50, value), np.zeros(50, dtype=int), np.arange(200, 250))
            for value in (-1.0, -9.0)
        )
        assert both(kept, refused).coverage.kept == 0
        gender = held_out([(200, 1, step, True) for step in range(5)] + [(201, 2, 0, True)])
        age = held_out([(200, 1, step, step < 4) for step in range(5)])
        rows = both(gender, age).coverage.bins
        assert [(row.label, row.kept, row.contexts) for row in rows] == [
            ("1–2", 2, 2),
            ("3–4", 1, 1),
            ("5 and later", 0, 1),
        ]
        generator = np.random.default_rng(1)
        rows = [(c, r, s, bool(generator.random() < 0.7)) for c in range(200, 260) for r in (1, 2) for s in range(3)]
        gender, age = held_out(rows), held_out(rows[3:90])
        shuffled = [rows[i] for i in generator.permutation(len(rows))]
        assert both(gender, age).coverage == both(held_out(shuffled), age).coverage

    def test_one_family_has_the_coverage_of_its_calibration_and_no_split_none(self):
        made = both(CalibrationValues.empty(), CalibrationValues.empty())
        assert made.coverage.coverage is None
        assert made.coverage.verdict == "not measured"
        generator = np.random.default_rng(3)
        values = held_out([(c, c, s, bool(generator.random() < 0.8)) for c in range(200, 260) for s in range(4)])
        alone = part(values, alpha=0.1)
        assert cc.Calibration(0.1, (("age", alone),)).coverage == alone.coverage


class TestSmallestAlpha:
    def test_it_is_the_least_level_at_which_every_family_with_support_has_a_threshold(self):
        made = cc.Calibration(0.1, (("gender", part(contexts=99)), ("age", part(contexts=39))))
        found = made.smallest_alpha()
        assert found.overall == pytest.approx(2 / 40)
        assert (found.contexts, [(e.label, e.contexts) for e in found.bins]) == (99, [("1–2", 99)])
        assert found.sequence == found.everywhere == found.bins[0].smallest_alpha == found.overall

        def states(alpha):
            return {own.bin(0).state for _, own in made.read(alpha=alpha).parts}

        assert states(found.overall) == {"calibrated"}
        assert states(found.overall - 1e-6) == {"calibrated", "uninformative"}
        for contexts in (17, 42, 98):
            parts = tuple((name, part(contexts=contexts, alpha=0.3)) for name in ("gender", "race", "age"))
            made = cc.Calibration(0.9, parts)
            smallest = made.smallest_alpha().overall
            assert all(own.bin(0).state == "calibrated" for _, own in made.read(alpha=smallest).parts)
        hopeless = part(tau=-math.inf)
        made = cc.Calibration(0.1, (("gender", part()), ("age", hopeless)))
        assert made.smallest_alpha().overall == pytest.approx(0.02)
        assert made.smallest_alpha().everywhere is None


def step(*families):
    nothing = Diagnostics(0, 0, 0, 0, None, None, 0, 0, 0)
    return Step(0, 1, "a", -1, -1, -1, -2, True, 1, 1, False, False, 1, "a", "calibrated", (), nothing, families)


def family_step(family, log_joint, state="calibrated"):
    return FamilyStep(family, log_joint, log_joint, -2.0, True, state)


class TestNotes:
    def test_what_is_missing_is_said(self):
        verification = held_out([(200, 1, 0, True)])
        made = cc.Calibration(0.1, (("gender", part(verification)), ("age", part(contexts=4))), unmasked=3).read(
            rho=1.2
        )
        shift, unmasked, few, unmeasured = made.notes
        assert "density ratio" in shift
        assert unmasked == "Prompts without anything masked (3) play no part in this calibration."
        assert few == "The family 'age' has 4 contexts and its share of alpha needs 23; it refuses nothing."
        assert unmeasured == "No context kept apart has age masked; coverage leaves this out."
        assert both(verification, verification).notes == ()

    def test_rollouts_say_how_they_ended_and_whether_they_are_read_as_they_were_made(self):
        fingerprint = replace(TOY_FINGERPRINT, source="rollout")
        rounds = (Iteration(20, 40, 0.001, 19, True, True),)
        own = replace(part(), fingerprint=fingerprint)
        chained = replace(own, chains=ChainRecord(own.reading, 4, 0.01, rounds))
        made = cc.Calibration(0.1, (("gender", chained), ("age", chained)))
        assert made.as_rolled_out
        assert made.chains.reading == made.reading
        assert made.notes == (made.chains.sentence,)
        by_hand = made.read(by_family={"gender": 0.08, "age": 0.02})
        assert not by_hand.as_rolled_out
        assert "other thresholds" in by_hand.notes[1]
        assert by_hand.chains == made.chains


class TestGroups:
    @pytest.fixture
    def grouped(self):
        groups = ContextGroups(("large", "small"), (tuple(range(80)), tuple(range(80, 99))))
        age = replace(part(contexts=85), context_groups=groups)
        chosen = CalibrationValues(np.full(2, -1.0), np.zeros(2, dtype=int), np.array([3, 90]))
        return cc.Calibration(0.1, (("gender", replace(part(), context_groups=groups)), ("age", age)), chosen)

    def test_families_are_restricted_to_the_group_that_has_enough(self, grouped):
        own = grouped.for_group("small")
        assert grouped.context_groups.names == ("large", "small")
        assert own.group == "small"
        assert [p.context_count for _, p in own.parts] == [19, 5]
        assert [p.bin(0).state for _, p in own.parts] == ["calibrated", "uninformative"]
        assert any("'age' has 5 contexts" in note for note in own.notes)
        assert own.chosen.contexts.tolist() == [90]
        assert cc.Calibration.from_bytes(own.to_bytes()) == own
        with pytest.raises(InvalidInputError, match="'small' has 19 contexts, and 39 are needed; nothing is certified"):
            grouped.read(alpha=0.05).for_group("small")
        with pytest.raises(InvalidInputError, match="large, small"):
            grouped.for_group("none")


class TestFile:
    def test_a_calibration_by_family_is_read_back_as_it_was_saved(self):
        made = replace(
            both(held_out([(200, 7, 0, True)]), held_out([])), chosen=held_out([(9, 1, 0, True)]), unmasked=2
        )
        loaded = cc.Calibration.from_bytes(made.to_bytes())
        assert loaded == made
        assert loaded.coverage == made.coverage
        assert (loaded.chosen, loaded.unmasked) == (made.chosen, 2)
        assert loaded.to_bytes() == made.to_bytes()
        data = both(CalibrationValues.empty(), CalibrationValues.empty()).to_bytes()
        for damaged in (b"", b"PK", data[:-200]):
            with pytest.raises(CalibrationFormatError):
                cc.Calibration.from_bytes(damaged)
        with pytest.raises(CalibrationFormatError, match="layout is 'triple'"):
            cc.Calibration.from_bytes(rewritten(data, layout="triple"))
        with pytest.raises(CalibrationFormatError, match="not usable: The shares"):
            cc.Calibration.from_bytes(rewritten(data, alpha=0.01))
        made = both(CalibrationValues.empty(), CalibrationValues.empty())
        assert cc.Calibration.from_bytes(rewritten(made.to_bytes(), unmasked=...)) == made


def test_families_that_are_read_differently_are_refused():
    with pytest.raises(InvalidInputError, match="'age' has other position bins"):
        cc.Calibration(0.1, (("gender", part()), ("age", part().read(bin_width=3))))
