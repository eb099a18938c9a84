from __future__ import annotations

import math

import numpy as np
import pytest

from coft_core.conformal import (
    Calibration,
    CalibrationValues,
    PositionBins,
    certify_chain,
    certify_supports,
    union_bound,
)
from coft_core.decode import generate
from coft_core.engine.fake import tiny_model
from coft_core.errors import InvalidInputError
from coft_core.policies import CoftPolicy
from tests.conftest import TOY_FINGERPRINT


@pytest.fixture
def calibration() -> Calibration:
    """39 chains of 4 steps; chain i has supports -(i + 1), but for its second step, which is 0.5 lower."""
    level = -np.arange(1.0, 40.0)
    values = np.stack([level, level - 0.5, level, level], axis=1)
    return Calibration(
        TOY_FINGERPRINT,
        0.1,
        CalibrationValues(values.ravel(), np.tile(np.arange(4), 39), np.repeat(np.arange(39), 4)),
        bin_width=2,
        bin_spacing="even",
        max_position=4,
    )


def test_threshold_is_the_ranked_minimum_of_the_chains(calibration: Calibration) -> None:
    sequence = calibration.sequence()
    assert (sequence.contexts, sequence.sequences, sequence.horizon, sequence.rank) == (39, 39, 4, 4)
    assert sequence.log_tau == -36.5
    assert sequence.tau == pytest.approx(math.exp(-36.5))
    assert calibration.sequence(horizon=1).log_tau == -36.0
    assert calibration.sequence(alpha=0.02).state == "uninformative"


def test_chain_holds_until_a_token_falls_below(calibration: Calibration) -> None:
    good = certify_supports(calibration, [-3.0, -36.5, -1.0])
    assert good.sequence_certified is True
    assert (good.weakest, good.log_support) == (1, -36.5)
    bad = certify_supports(calibration, [-3.0, -36.6, -1.0])
    assert bad.sequence_certified is False
    assert "step 2 misses" in bad.sentence


def test_step_by_step_and_as_a_chain_are_told_apart(calibration: Calibration) -> None:
    between = certify_supports(calibration, [-1.0, -1.0, -36.4])
    assert calibration.threshold(2) == -36.0
    assert between.sequence_certified is True
    assert between.union_certified is False


def test_chain_longer_than_any_calibrated_one_is_not_certified_as_a_chain(calibration: Calibration) -> None:
    longer = certify_supports(calibration, [-1.0] * 5)
    assert longer.sequence_certified is None
    assert "5 steps and the longest calibrated one 4" in longer.reason


def test_nothing_is_bounded_where_a_step_has_no_threshold_of_its_own(calibration: Calibration) -> None:
    inherited = certify_supports(calibration.read(max_position=8), [-1.0] * 5)
    assert inherited.union_certified is None
    few = certify_supports(calibration.read(alpha=0.01), [-1.0])
    assert few.union_certified is None
    assert few.sequence_certified is None
    assert "too few" in few.reason


def test_both_levels_are_named(calibration: Calibration) -> None:
    sentence = certify_supports(calibration, [-1.0, -1.0, -1.0]).sentence
    assert "with probability 0.9" in sentence
    assert "together the bound is 0.6" in sentence


def test_density_ratio_bound_is_charged_to_both(calibration: Calibration) -> None:
    shifted = certify_supports(calibration.read(rho=2.0), [-1.0])
    assert shifted.sequence.alpha == 0.1
    assert shifted.sequence.rank == 2
    assert shifted.sequence.log_tau == -38.5
    assert shifted.union.level == pytest.approx(1 - 2 * 0.05)


def test_steps_of_an_audit_are_certified_by_what_they_show() -> None:
    model = tiny_model()
    bare = generate(model, "He said", CoftPolicy(0.6), max_new_tokens=3)
    values = CalibrationValues(np.full(120, -50.0), np.tile(np.arange(3), 40), np.repeat(np.arange(40), 3))
    calibration = Calibration(TOY_FINGERPRINT, 0.1, values)
    assert certify_chain(calibration, bare.steps).sequence_certified is None
    accepted = generate(model, "He said", CoftPolicy(0.6, calibration, accept_mismatch=True), max_new_tokens=3)
    assert "another policy" in certify_chain(calibration, accepted.steps).reason


@pytest.mark.parametrize("supports", [[], [math.nan]])
def test_what_is_no_chain_is_refused(calibration: Calibration, supports: list[float]) -> None:
    with pytest.raises(InvalidInputError, match="at least one step"):
        certify_supports(calibration, supports)


class TestUnionBound:
    def test_one_threshold_a_step_charges_the_steps(self) -> None:
        bound = union_bound(0.01, 5)
        assert (bound.charged, bound.level) == (5, 0.95)
        assert (bound.alpha_needed, bound.contexts_needed) == (0.002, 499)

    def test_shared_threshold_charges_the_whole_bin(self) -> None:
        assert union_bound(0.01, 9, PositionBins(8, 64, "even")).charged == 16
        assert union_bound(0.01, 70, PositionBins(8, 64, "even")).charged == 56 + 14

    def test_bin_is_charged_no_more_than_the_longest_context_has_in_it(self) -> None:
        values = CalibrationValues(np.full(3, -1.0), np.array([0, 1, 2]), np.zeros(3, dtype=int))
        assert union_bound(0.01, 1, PositionBins(8, 64, "even"), values).charged == 3

    def test_level_is_never_negative(self) -> None:
        assert union_bound(0.1, 50).level == 0.0
        with pytest.raises(InvalidInputError, match="at least one"):
            union_bound(0.1, 0)
