"""Contexts that give several dependent values: what each estimator covers over 1,000 repeated calibrations.

A context has 1 to 8 values that share a level, and longer contexts are easier. Coverage is that of a uniformly drawn
value of a new context, known in closed form for every threshold.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from scipy import stats

from coft_core.conformal.quantile import conformal_rank, conformal_threshold, coverage_range, units
from coft_core.conformal.values import draw_one_per_context

REPETITIONS, ALPHA = 1000, 0.1
"""Four standard errors are then less than 0.008, and a rank beside the right one shifts the coverage by 0.05."""
LENGTHS = np.arange(1, 9)
EASE, LEVEL, NOISE = 0.25, 1.0, 0.2


def draw(contexts, seed):
    """Values ``-exp(g)`` with ``g = 1 - ease * length + level + noise``, and their contexts, (n,) each."""
    generator = np.random.default_rng([seed, contexts])
    lengths = generator.choice(LENGTHS, size=contexts)
    context = np.repeat(np.arange(contexts), lengths)
    g = 1 - EASE * lengths[context] + LEVEL * generator.normal(size=contexts)[context]
    return -np.exp(g + NOISE * generator.normal(size=context.size)), context


def coverage_of(log_tau):
    """Probability that a drawn value of a new context reaches each threshold, (R,)."""
    with np.errstate(divide="ignore"):
        limit = np.log(-log_tau)[:, None]  # (R, 1)
    return stats.norm.cdf((limit - 1 + EASE * LENGTHS) / math.hypot(LEVEL, NOISE)).mean(axis=1)


@functools.cache
def calibrated(contexts, estimator, draws=1):
    """Coverage of repeated calibrations, (R,)."""
    thresholds = [
        conformal_threshold(values, ALPHA, context, estimator, seed=seed + 1_000_000, draws=draws)
        for seed in range(REPETITIONS)
        for values, context in [draw(contexts, seed)]
    ]
    return coverage_of(np.array(thresholds))


def error(coverage):
    return float(4 * coverage.std() / math.sqrt(coverage.size))


@pytest.mark.parametrize("contexts", [19, *(pytest.param(n, marks=pytest.mark.slow) for n in (49, 199))])
def test_only_the_estimators_that_respect_contexts_hold_the_level(contexts):
    pooled, hierarchical, drawn, averaged = (
        calibrated(contexts, *setting)
        for setting in (("pooled",), ("hierarchical",), ("one_per_context",), ("one_per_context", 10))
    )
    # More contexts do not help the pooled quantile: it aims at another population, where long contexts count more.
    assert pooled.mean() == pytest.approx(0.835, abs=0.015)
    for coverage in (hierarchical, drawn, averaged):
        assert 1 - ALPHA - error(coverage) <= coverage.mean() <= 1 - ALPHA + 1 / (contexts + 1) + 0.01
    # 19, 49 and 199 contexts give whole ranks: one value of each covers 0.9 exactly, on average.
    assert drawn.mean() == pytest.approx(1 - conformal_rank(ALPHA, contexts) / (contexts + 1), abs=error(drawn))
    assert hierarchical.std() < drawn.std()
    assert averaged.std() < drawn.std()
    k = conformal_rank(ALPHA, contexts)
    assert stats.kstest(drawn, stats.beta(contexts + 1 - k, k).cdf).pvalue > 0.01


def test_coverage_formula_of_the_simulation_is_right():
    values, context = draw(40_000, seed=1)
    first = values[np.unique(context, return_index=True)[1]]
    for log_tau in (-0.5, -2.0, -5.0):
        assert np.mean(first >= log_tau) == pytest.approx(coverage_of(np.array([log_tau]))[0], abs=0.01)


@pytest.mark.parametrize("estimator", ["hierarchical", "one_per_context"])
def test_the_level_holds_where_the_rank_is_no_whole_number(estimator):
    # 12 contexts give rank floor(1.3) = 1.
    coverage = calibrated(12, estimator)
    assert 1 - ALPHA - error(coverage) <= coverage.mean() <= 1 - ALPHA + 1 / 13 + 0.03


@pytest.mark.parametrize("contexts", [19, *(pytest.param(n, marks=pytest.mark.slow) for n in (49, 199))])
def test_beta_range_is_exact_for_one_value_a_context_and_cautious_for_all_values(contexts):
    low, high = coverage_range(contexts, conformal_rank(ALPHA, contexts))
    shares = {
        name: np.mean((coverage >= low) & (coverage <= high))
        for name in ("one_per_context", "hierarchical")
        for coverage in [calibrated(contexts, name)]
    }
    assert shares["one_per_context"] == pytest.approx(0.95, abs=0.02)
    assert shares["hierarchical"] >= 0.95 - 0.015


@pytest.mark.parametrize("draws", [2, 7])
def test_averaged_p_values_exceed_alpha_exactly_where_the_threshold_certifies(draws):
    # The proof in the docstring of conformal_threshold, step by step: the mean of the draws' p-values is the
    # hierarchical rank on contexts of `draws` values each, so no factor 2 is needed.
    for seed in range(60):
        values, context = draw(15, seed)
        rows = draw_one_per_context(context, (values,), np.random.default_rng(seed), draws).reshape(draws, -1)
        candidates = np.concatenate([values, values - 1e-6, values + 1e-6])  # (n,)
        p_values = (1 + (values[rows][:, :, None] <= candidates).sum(axis=1)) / (rows.shape[1] + 1)  # (draws, n)
        log_tau = conformal_threshold(values, ALPHA, context, "one_per_context", seed, draws=draws)
        np.testing.assert_array_equal(candidates >= log_tau, p_values.mean(axis=0) > ALPHA + 1e-12)


def test_mean_of_p_values_would_need_its_factor_without_exchangeable_draws():
    # Two p-values that are uniform each and never both large: their mean falls below alpha twice as often as alpha.
    u = np.random.default_rng(0).random(200_000)
    other = np.where(u < 2 * ALPHA, 2 * ALPHA - u, u)
    assert stats.kstest(other, "uniform").pvalue > 0.01
    assert np.mean((u + other) / 2 <= ALPHA) == pytest.approx(2 * ALPHA, abs=0.01)


def test_many_draws_approach_the_hierarchical_threshold():
    values, context = draw(99, seed=5)
    target = conformal_threshold(values, ALPHA, context)
    averaged = conformal_threshold(values, ALPHA, context, "one_per_context", draws=4000)
    assert averaged == pytest.approx(target, rel=0.02)


def test_smallest_level_is_the_first_with_a_threshold():
    for estimator in ("hierarchical", "one_per_context", "pooled"):
        for seed in range(40):
            values, context = draw(11, seed)
            values[context < seed % 4] = -math.inf
            unit = units(values, context, estimator, seed)
            smallest = unit.smallest_alpha()
            assert unit.threshold(smallest) > -math.inf
            assert unit.threshold(smallest * 999 / 1000) == -math.inf
