"""Theorem 5: under a shift with density ratio at most rho, miscoverage is at most rho * alpha."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coft_core.conformal.quantile import conformal_threshold

REPETITIONS, CONTEXTS, ALPHA = 2000, 39, 0.1


def thresholds(seed):
    """Uniform-scale thresholds of repeated calibrations on the logarithms of uniform numbers, (R,)."""
    draws = np.log(np.random.default_rng(seed).random((REPETITIONS, CONTEXTS)))
    return np.exp([conformal_threshold(row, ALPHA) for row in draws])


def test_worst_shift_reaches_the_bound_and_no_more():
    for rho in (1.0, 1.3, 2.0, 5.0):
        # All the extra mass on the least supported tokens: density rho on [0, 1 / rho], 0 elsewhere.
        tau = thresholds(seed=3)
        miscovered = np.minimum(rho * tau, 1.0)  # (R,)
        error = 4 * miscovered.std() / np.sqrt(REPETITIONS)
        assert miscovered.mean() <= rho * ALPHA + error
        if rho <= 2:
            assert miscovered.mean() == pytest.approx(rho * ALPHA, abs=error)


def test_smooth_shift_stays_within_the_bound_of_its_density_ratio():
    for slope in (1.0, 2.0, 4.0):
        # Density proportional to exp(-slope * u) on [0, 1]; the ratio is largest at u = 0.
        rho = slope / -np.expm1(-slope)
        tau = thresholds(seed=4)
        drifted = np.expm1(-slope * tau) / np.expm1(-slope)  # P_test(U < tau), (R,)
        assert (drifted <= rho * tau + 1e-12).all()
        assert ALPHA < drifted.mean() < rho * ALPHA


def test_simulated_shift_misses_as_often_as_computed():
    slope = 3.0
    tau = thresholds(seed=5)
    law = stats.truncexpon(b=slope, scale=1 / slope)
    new = law.rvs(size=(REPETITIONS, 50), random_state=6)  # (R, 50)
    missed = (np.log(new) < np.log(tau)[:, None]).mean(axis=1)
    error = 4 * missed.std() / np.sqrt(REPETITIONS)
    assert missed.mean() == pytest.approx(law.cdf(tau).mean(), abs=error)
    assert missed.mean() <= law.pdf(0) * ALPHA
