"""Ville's inequality: without drift the test martingale rarely grows, however often one looks; with drift it does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coft_core.conformal.drift import RECALIBRATE, WATCH, conformal_p_values, simple_jumper

REPETITIONS, BASELINE, AUDITS, STEPS = 1000, 120, 80, 8


def contexts(count, generator, shift=0.0):
    """Joint supports of dependent tokens, (count, STEPS); a shift lowers the support of the later audits."""
    level = generator.normal(size=(count, 1)) + shift
    return -np.exp(level + 0.3 * generator.normal(size=(count, STEPS)))


def paths(shift, seed):
    """Martingale paths and p-values of repeated sequences of audits, (R, AUDITS) each."""
    generator = np.random.default_rng(seed)
    p_values = np.array(
        [
            conformal_p_values(
                contexts(BASELINE, generator).mean(axis=1), contexts(AUDITS, generator, shift).mean(axis=1), seed=r
            )
            for r in range(REPETITIONS)
        ]
    )
    return simple_jumper(p_values), p_values


def test_false_alarms_stay_within_villes_bound_and_p_values_are_uniform():
    path, p_values = paths(0.0, seed=1)
    peak = path.max(axis=1)
    for level in (2.0, 5.0, WATCH, RECALIBRATE):
        assert np.mean(peak >= level) <= 1 / level + 3 * np.sqrt(1 / level / REPETITIONS)
    assert path[:, -1].mean() == pytest.approx(1.0, abs=4 * path[:, -1].std() / np.sqrt(REPETITIONS))
    assert stats.kstest(p_values.ravel(), "uniform").pvalue > 0.01
    # Independent of each other: neighbours are uncorrelated although all are ranked against the same baseline.
    assert abs(np.corrcoef(p_values[:, 40], p_values[:, 41])[0, 1]) < 0.1


@pytest.mark.parametrize("shift", [1.0, -1.0])
def test_drift_to_either_side_is_found(shift):
    path, _ = paths(shift, seed=2)
    assert np.mean(path.max(axis=1) >= RECALIBRATE) > 0.9


def test_tokens_taken_as_independent_would_raise_false_alarms():
    generator = np.random.default_rng(3)
    peaks = []
    for r in range(150):
        baseline, audits = contexts(BASELINE, generator), contexts(30, generator)
        peaks.append(simple_jumper(conformal_p_values(baseline.ravel(), audits.ravel(), seed=r)).max())
    assert np.mean(np.array(peaks) >= WATCH) > 0.3


def test_martingale_is_a_fair_bet_at_every_step():
    # Mean of the next capital over a grid of p that averages to one half equals the present capital.
    start = np.random.default_rng(4).random(20)
    grid = (np.arange(1000) + 0.5) / 1000
    extended = np.concatenate([np.tile(start, (1000, 1)), grid[:, None]], axis=1)
    path = simple_jumper(extended)
    assert path[:, -1].mean() == pytest.approx(path[0, -2], rel=1e-9)
    assert (path > 0).all()
