"""The conformal rank argument: coverage of exchangeable values, and the law of one calibration's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coft_core.conformal.quantile import ESTIMATORS, conformal_rank, conformal_threshold, coverage_range

REPETITIONS = 1000
"""With so many, four standard errors are at most a quarter of the shift that the next rank would cause."""


def realised_coverage(n, alpha, estimator, seed):
    """Coverage of repeated calibrations on the logarithms of uniform numbers: it is 1 - tau exactly, (R,)."""
    draws = np.log(np.random.default_rng(seed).random((REPETITIONS, n)))  # (R, n)
    return np.array([-np.expm1(conformal_threshold(row, alpha, estimator=estimator)) for row in draws])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("n", "alpha"), [(9, 0.1), (24, 0.1), (50, 0.1), (39, 0.29)])
def test_mean_coverage_lies_between_the_level_and_one_unit_more(n, alpha, estimator):
    coverage = realised_coverage(n, alpha, estimator, seed=n)
    error = 4 * coverage.std() / np.sqrt(REPETITIONS)
    assert 1 - alpha - error <= coverage.mean() <= 1 - alpha + 1 / (n + 1) + error
    assert coverage.mean() == pytest.approx(1 - conformal_rank(alpha, n) / (n + 1), abs=error)


def test_coverage_of_one_calibration_follows_the_beta_law():
    for n, alpha in ((9, 0.1), (50, 0.1), (120, 0.05)):
        coverage = realised_coverage(n, alpha, "hierarchical", seed=100 + n)
        k = conformal_rank(alpha, n)
        assert stats.kstest(coverage, stats.beta(n + 1 - k, k).cdf).pvalue > 0.01
        low, high = coverage_range(n, k)
        assert np.mean((coverage >= low) & (coverage <= high)) == pytest.approx(0.95, abs=0.016)


def test_rank_of_a_new_value_is_uniform_among_exchangeable_ones():
    # Exchangeable, not independent: all values of a repetition share a level.
    generator = np.random.default_rng(7)
    values = generator.normal(size=(4000, 1)) + generator.normal(size=(4000, 20))
    rank = (values[:, :-1] < values[:, -1:]).sum(axis=1)
    assert stats.chisquare(np.bincount(rank, minlength=20)).pvalue > 0.001


def test_too_few_values_cover_everything():
    assert (realised_coverage(8, 0.1, "hierarchical", seed=1) == 1.0).all()
