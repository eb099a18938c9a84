from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from coft_core.conformal.drift import FLOOR, audit_summary, baseline_summaries, chain_summary, drift_report
from coft_core.conformal.part import ChainRecord
from coft_core.conformal.values import CalibrationValues
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from tests.coft_core.levels import by_step


def chains(level, count, seed):
    """Joint supports of dependent tokens, (count, 8)."""
    generator = np.random.default_rng(seed)
    return -np.exp(level + generator.normal(size=(count, 1)) + 0.2 * generator.normal(size=(count, 8)))


@pytest.fixture
def recorded(calibration):
    chosen = chains(0.0, 60, seed=1)
    record = ChainRecord(calibration.reading, 8)
    return replace(calibration.each(lambda part: replace(part, chains=record)), chosen=by_step(chosen))


def audits(level, count, seed=2):
    return [chain_summary(row.tolist()) for row in chains(level, count, seed)]


def test_audits_like_the_calibration_are_fresh_and_a_few_strange_ones_are_watched_in_their_order(recorded):
    report = drift_report(recorded, audits(0.0, 40))
    assert report.status == "fresh"
    assert (report.audits, report.baseline, len(report.p_values)) == (40, 60, 40)
    assert "No sign that recent audits differ" in report.sentence
    assert drift_report(recorded, audits(3.0, 6)).status == "watch"
    values = audits(0.0, 20) + audits(1.5, 20, seed=3)
    one, other = drift_report(recorded, values), drift_report(recorded, values[::-1])
    assert one.two_sample_p == pytest.approx(other.two_sample_p)
    assert one.martingale != other.martingale


@pytest.mark.parametrize("level", [2.0, -2.0])
def test_audits_unlike_the_calibration_ask_to_recalibrate(recorded, level):
    report = drift_report(recorded, audits(level, 60))
    assert report.status == "recalibrate"
    assert report.peak >= 100
    assert report.two_sample_p < 1e-4
    assert (report.lower_share > 0.7) == (level > 0)


def test_without_a_baseline_nothing_is_called_fresh(calibration, recorded):
    bare = drift_report(calibration, audits(0.0, 20))
    assert bare.status == "unknown"
    assert "keeps no chains" in bare.sentence
    assert drift_report(recorded.read(alpha=0.2), audits(0.0, 20)).reason.startswith("the chains were generated under")
    assert drift_report(recorded, [None, None]).status == "unknown"
    few = replace(recorded, chosen=recorded.chosen.select(range(10)))
    assert "only 10 baseline contexts" in drift_report(few, audits(0.0, 20)).sentence


def test_only_first_tokens_of_one_chain_a_context_count_and_none_with_a_forced_token():
    assert chain_summary([-1.0] * 4 + [-9.0], window=4) == -1.0
    assert chain_summary([-math.inf, -2.0], window=2) == (FLOOR - 2.0) / 2
    assert chain_summary([-1.0] * 3, window=4) is None
    with pytest.raises(InvalidInputError, match="window"):
        chain_summary([-1.0], window=0)
    values = CalibrationValues(
        np.array([-1.0, -3.0, -5.0, -7.0, -2.0]), np.array([0, 1, 0, 1, 0]), np.array([4, 4, 4, 4, 9])
    )
    assert baseline_summaries(values, window=2).tolist() == [-2.0]
    assert baseline_summaries(CalibrationValues.empty()).size == 0
    model = tiny_model()
    rollout = Rollout(plan(model, "He said", CoftPolicy(0.6), max_new_tokens=4))
    for _ in range(3):
        rollout.step()
    value = audit_summary(rollout.steps, window=3)
    assert value == pytest.approx(np.mean([min(s.log_p_fused, s.log_p_masked) for s in rollout.steps]))
    rollout.step(5)
    assert audit_summary(rollout.steps, window=3) == value
    assert audit_summary(rollout.steps, window=4) is None
    assert audit_summary(rollout.steps, window=5) is None
