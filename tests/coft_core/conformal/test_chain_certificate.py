from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from coft_core.assets import assets_path
from coft_core.conformal.bins import PositionBins
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import certify_chain, certify_supports
from coft_core.conformal.coverage import clopper_pearson
from coft_core.conformal.informative import is_wide
from coft_core.conformal.sequence import union_bound
from coft_core.conformal.values import UNKNOWN, CalibrationValues
from coft_core.decode.loop import generate
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.text.detection import default_detector
from tests.coft_core.levels import by_step, fitting, flat
from tests.conftest import TOY_FINGERPRINT


@pytest.fixture
def calibration():
    """39 chains of 4 steps; chain i has supports -(i + 1) / 8, but for its second step, which is 1/16 lower."""
    level = -np.arange(1.0, 40.0) / 8
    values = np.stack([level, level - 0.0625, level, level], axis=1)
    return Calibration.of(TOY_FINGERPRINT, 0.1, by_step(values), bin_width=2, bin_spacing="even", max_position=4)


def test_a_chain_holds_from_the_ranked_minimum_until_a_token_falls_below_at_lengths_that_were_calibrated(calibration):
    sequence = calibration.sequence()
    assert (sequence.contexts, sequence.values, sequence.horizon, sequence.rank) == (39, 39, 4, 4)
    assert sequence.log_tau == -4.5625
    assert sequence.tau == pytest.approx(math.exp(-4.5625))
    assert calibration.sequence(horizon=1).log_tau == -4.5
    assert calibration.sequence(alpha=0.02).state == "uninformative"
    good = certify_supports(calibration, [-3.0, -4.5625, -1.0, -1.0])
    assert good.sequence_certified is True
    assert (good.weakest, good.log_support) == (1, -4.5625)
    bad = certify_supports(calibration, [-3.0, -4.575, -1.0, -1.0])
    assert bad.sequence_certified is False
    assert "step 2 misses" in bad.sentence
    between = certify_supports(calibration, [-1.0, -1.0, -4.55, -1.0])
    assert calibration.threshold(2) == -4.5
    assert between.sequence_certified is True
    assert between.union_certified is False
    longer = certify_supports(calibration, [-1.0] * 5)
    assert longer.sequence_certified is None
    assert longer.reason == (
        "The chain has 5 steps, and the certificate of whole chains is for chains that reach 4 steps."
    )
    given = certify_supports(calibration, [-1.0] * 5, finished="length")
    assert (given.sequence_certified, given.sequence.horizon, given.sequence.contexts) == (None, 5, 0)
    found = certify_supports(calibration, [-4.5], finished="length")
    assert (found.sequence.horizon, found.sequence.log_tau, found.sequence_certified) == (1, -4.5, True)


def test_chain_that_stopped_before_the_horizon_gets_no_statement_and_is_told_why(calibration):
    for finished, why in (
        (None, "has 3 steps and has not ended"),
        ("context", "was cut at 3 steps, where the model’s context is full"),
        ("end", "ended by itself after 3 steps, as none did that the certificate rests on"),
    ):
        found = certify_supports(calibration, [-1.0] * 3, finished=finished)
        assert found.sequence_certified is None
        assert found.reason == f"The chain {why}: the certificate of whole chains is for chains that reach 4 steps."


def test_chains_that_end_by_themselves_count_and_are_spoken_of():
    values = CalibrationValues.of_chains(
        [np.full(2 if i % 3 else 4, -1.0 - i / 8) for i in range(39)],
        range(39),
        range(39),
        [i % 3 > 0 for i in range(39)],
    )
    found = Calibration.of(TOY_FINGERPRINT, 0.1, values)
    law = found.sequence(horizon=4).lengths
    assert (law.reached, law.ended, law.cut, law.shortest, law.median, law.longest) == (13, 26, 0, 2, 2.0, 4)
    assert certify_supports(found, [-1.0, -1.0], finished="end").sequence_certified is True
    assert certify_supports(found, [-1.0, -1.0]).sequence_certified is None
    assert certify_supports(found, [-1.0] * 5, finished="end").sequence_certified is None


def test_calibration_that_did_not_note_how_chains_ended_says_so_and_claims_nothing(calibration):
    values = calibration.joint.values
    older = np.full(len(values), UNKNOWN, dtype=np.int8)
    found = Calibration.of(
        TOY_FINGERPRINT, 0.1, CalibrationValues(values.values, values.steps, values.contexts, values.rows, older)
    )
    made = certify_supports(found, [-1.0] * 4, finished="length")
    assert (made.sequence_certified, made.sequence.state) == (None, "uninformative")
    assert made.reason.startswith("This calibration was saved by an earlier version")
    # The steps' own thresholds are as they were.
    assert found.threshold(0) == Calibration.of(TOY_FINGERPRINT, 0.1, values).threshold(0)


def test_coverage_of_whole_chains_is_measured_by_length_with_exact_intervals(calibration):
    chains = [np.full(n, value) for n, value in ((4, -1.0), (4, -99.0), (4, -2.0), (2, -1.0), (3, -99.0))]
    held_out = CalibrationValues.of_chains(chains, range(100, 105), range(100, 105))
    found = replace(calibration.joint, verification=held_out).sequence_coverage()
    assert (found.overall.kept, found.overall.contexts) == (2, 3)
    assert (found.overall.low, found.overall.high) == clopper_pearson(2, 3)
    assert [(row.label, row.kept, row.contexts) for row in found.lengths] == [
        ("4 steps, the horizon", 2, 3),
        ("1–3 steps, cut short", 1, 2),
    ]
    assert calibration.joint.sequence_coverage().overall.coverage is None


def test_nothing_is_bounded_without_own_thresholds_and_levels_and_ratios_count(calibration):
    inherited = certify_supports(calibration.read(max_position=8), [-1.0] * 5)
    assert inherited.union_certified is None
    few = certify_supports(calibration.read(alpha=0.01), [-1.0])
    assert few.union_certified is None
    assert few.sequence_certified is None
    assert few.sequence.reason == few.reason
    assert "too few" in few.reason
    sentence = certify_supports(calibration, [-1.0, -1.0, -1.0], finished="length").sentence
    assert "with probability 0.9" in sentence
    assert "together the bound is 0.6" in sentence
    shifted = certify_supports(calibration.read(rho=2.0), [-1.0])
    assert shifted.sequence.alpha == 0.1
    assert shifted.sequence.rank == 2
    assert shifted.sequence.log_tau == -4.8125
    assert shifted.union.level == pytest.approx(1 - 2 * 0.05)


def test_steps_of_an_audit_are_certified_by_what_they_show():
    model = tiny_model()
    bare = generate(model, "He said", CoftPolicy(0.6), max_new_tokens=3)
    calibration = Calibration.of(TOY_FINGERPRINT, 0.1, flat(-50.0, 40, 3))
    assert certify_chain(calibration, bare.steps).sequence_certified is None
    accepted = generate(model, "He said", CoftPolicy(0.6, calibration, accept_mismatch=True), max_new_tokens=3)
    assert "another policy" in certify_chain(calibration, accepted.steps).reason


def level(log_tau, count=6):
    """One threshold for all steps and for chains."""
    return Calibration.of(TOY_FINGERPRINT, 0.1, flat(log_tau, 39, count))


def chain_of(log_tau):
    """Steps of the tiny model under a threshold of its own, the calibration and the policy."""
    model = tiny_model()
    made = fitting(CoftPolicy(0.6), model, flat(log_tau, 39, 6), detector=default_detector().version)
    policy = CoftPolicy(0.6, made)
    return made, policy, generate(model, "He said", policy, max_new_tokens=6, keep_logits=True)


def test_a_chain_is_judged_by_the_sets_at_its_own_threshold():
    """What is stored of a step never makes a set look smaller than it is, also at a threshold below the step's own."""
    told = []
    for own in (-1.5, -2.0, -3.0, -4.0):
        _, policy, run = chain_of(own)
        supports = [step.log_support for step in run.steps]
        for lower in (0.0, 0.3, 1.0, 4.0):
            calibration = level(min(own, *supports) - lower)
            log_tau = calibration.sequence().log_tau
            sets = [policy.views_at(step.logits.tensor()[None], log_tau) for step in run.steps]
            wide = [
                is_wide(int(view.certified.sum()), float(view.log_p_fused.exp()[view.certified].sum()), 258)
                for view in sets
            ]
            found = certify_chain(calibration, run.steps, "length", 258)
            assert found.informative_steps <= len(wide) - sum(wide)
            assert found.sequence_certified is (True if found.informative_steps == len(wide) else None)
            told.append((found.informative_steps, len(wide) - sum(wide)))
    assert any(known == truly > 0 for known, truly in told)
    assert any(known == 0 for known, _ in told)


def test_a_chain_of_an_unknown_vocabulary_is_not_certified_and_a_silent_threshold_leaves_no_bound():
    calibration, _, run = chain_of(-9.0)
    assert certify_chain(calibration, run.steps, "length").sequence_certified is None
    assert certify_chain(calibration, run.steps, "length").informative_steps is None
    calibration, _, run = chain_of(-9.0)
    assert {step.state for step in run.steps} == {"uninformative"}
    assert certify_chain(calibration, run.steps, "length", 258).union_certified is None


@pytest.mark.parametrize("supports", [[], [math.nan]])
def test_what_is_no_chain_is_refused(calibration, supports):
    with pytest.raises(InvalidInputError, match="at least one step"):
        certify_supports(calibration, supports)


class TestUnionBound:
    def test_thresholds_charge_their_steps_whole_bins_and_no_more_than_there_are(self):
        bound = union_bound(0.01, 5)
        assert (bound.charged, bound.level) == (5, 0.95)
        assert (bound.alpha_needed, bound.contexts_needed) == (0.002, 499)
        assert union_bound(0.01, 9, PositionBins(8, 64, "even")).charged == 16
        assert union_bound(0.01, 70, PositionBins(8, 64, "even")).charged == 56 + 14
        values = CalibrationValues(np.full(3, -1.0), np.array([0, 1, 2]), np.zeros(3, dtype=int))
        assert union_bound(0.01, 1, PositionBins(8, 64, "even"), values).charged == 3
        assert union_bound(0.1, 50).level == 0.0
        with pytest.raises(InvalidInputError, match="at least one"):
            union_bound(0.1, 0)


def test_shipped_calibration_states_its_horizon_and_what_was_measured_there():
    shipped = Calibration.load(assets_path("models", "demo", "calibration.zip"))
    sequence, coverage = shipped.sequence(), shipped.joint.sequence_coverage()
    assert UNKNOWN not in shipped.joint.values.ends
    assert "too weak to say anything" in sequence.reason
    assert shipped.sequence(alpha=0.3).reason == ""
    assert sequence.lengths.reached + sequence.lengths.ended >= 0.9 * shipped.context_count
    assert coverage.overall.high >= 0.9


def test_a_chain_threshold_that_nearly_every_chain_passes_says_nothing():
    values = CalibrationValues.of_chains([np.full(4, -14.0)] * 39, range(39), range(39), [False] * 39)
    found = Calibration.of(TOY_FINGERPRINT, 0.1, values)
    assert found.sequence(horizon=4).state == "uninformative"
    certificate = certify_supports(found, [-1.0] * 4, finished="length")
    assert certificate.sequence_certified is None
    assert certificate.reason == (
        "Of whole chains, the threshold is too weak to say anything: it is 8e-07, and nearly every chain passes."
    )
