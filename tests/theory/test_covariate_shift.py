"""Weighted thresholds under a real covariate shift: the unweighted ones miss, the weighted ones hold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from coft_core.conformal.quantile import conformal_threshold, effective_size
from coft_core.conformal.shift import estimate_density_ratio

REPETITIONS, CONTEXTS, ALPHA = 400, 100, 0.1
"""Coverage given a threshold is known, so that four standard errors are less than those of 1,500 drawn values."""


def world(count, generator):
    """Covariates, values and contexts: harder where x is large; the shift makes large x common.

    Calibration: x uniform on [0, 1]; deployment: density 2x, so the ratio is 2x. Contexts give 1 to 4 dependent values.
    """
    x = generator.random(count)
    sizes = generator.integers(1, 5, size=count)
    context = np.repeat(np.arange(count), sizes)
    values = -np.exp(
        3 * x[context] + 0.5 * generator.normal(size=count)[context] + 0.2 * generator.normal(size=context.size)
    )
    return x, values, context


def covered(log_tau, x):
    """Probability that a new context at ``x`` reaches a threshold, which its value is drawn around."""
    with np.errstate(divide="ignore"):
        return stats.norm.cdf((np.log(-np.asarray(log_tau)) - 3 * np.asarray(x)) / math.hypot(0.5, 0.2))


def coverage(estimator, weighted, test_weight="own"):
    """Coverage of new contexts for repeated calibrations, (R,)."""
    generator = np.random.default_rng(17)
    taus, places = [], []
    for repetition in range(REPETITIONS):
        x, values, context = world(CONTEXTS, generator)
        places.append(math.sqrt(generator.random()))
        own = 2 * places[-1] if test_weight == "own" else 2.0
        weights = 2 * x[context] if weighted else None
        taus.append(
            conformal_threshold(
                values, ALPHA, context, estimator, repetition, weights=weights, test_weight=own if weighted else 1.0
            )
        )
    return covered(taus, places)


def error(share):
    return float(4 * share.std() / math.sqrt(share.size))


@pytest.mark.parametrize("estimator", ["hierarchical", "one_per_context"])
def test_unweighted_thresholds_miss_under_the_shift_and_weighted_ones_hold(estimator):
    plain, weighted, largest = (
        coverage(estimator, False),
        coverage(estimator, True),
        coverage(estimator, True, "largest"),
    )
    assert plain.mean() < 1 - ALPHA - 0.04
    assert 1 - ALPHA - error(weighted) <= weighted.mean() <= 1 - ALPHA + 0.04
    # One threshold for all prompts, with the largest weight: cautious, never below.
    assert weighted.mean() - 0.005 <= largest.mean() <= 1 - ALPHA + 0.06


def test_density_ratio_bound_holds_and_costs_more():
    generator = np.random.default_rng(18)
    drawn = (world(CONTEXTS, generator) for _ in range(REPETITIONS))
    taus = [conformal_threshold(values, Fraction(1, 20), context) for _, values, context in drawn]
    share = covered(taus, np.sqrt(generator.random(REPETITIONS)))  # the ratio 2x is at most 2: alpha / 2
    assert share.mean() >= 1 - ALPHA - error(share)


def test_estimated_weights_repair_most_of_a_shift_in_the_words_of_prompts():
    generator = np.random.default_rng(19)
    hard, easy = ["verdict", "prison", "judge"], ["garden", "bread", "river"]

    def prompts(count, share):
        is_hard = generator.random(count) < share
        texts = [
            f"the {generator.choice(hard if flag else easy)} was seen by {generator.integers(1000)} people"
            for flag in is_hard
        ]
        return texts, is_hard

    def values(is_hard):
        return -np.exp(2.0 * is_hard + generator.normal(size=is_hard.size))

    plain, weighted = [], []
    for _ in range(4):
        texts, is_hard = prompts(300, 0.2)
        target, target_hard = prompts(300, 0.7)
        estimate = estimate_density_ratio(texts, target)
        own = values(is_hard)
        new = values(target_hard)
        plain.append((new >= conformal_threshold(own, ALPHA)).mean())
        tau = conformal_threshold(own, ALPHA, weights=estimate.weights, test_weight=estimate.test_weight)
        weighted.append((new >= tau).mean())
        assert 0.6 < estimate.separability < 0.9
        assert estimate.effective < 250
    assert np.mean(plain) < 0.84
    assert np.mean(weighted) >= 1 - ALPHA - 0.02


def test_prompts_of_one_kind_are_weighted_alike():
    generator = np.random.default_rng(20)
    texts = [f"a {word} number {generator.integers(100)}" for word in generator.choice(["red", "blue"], size=400)]
    estimate = estimate_density_ratio(texts[:200], texts[200:])
    assert abs(estimate.separability - 0.5) < 0.12
    assert estimate.effective > 150
    assert estimate.weight(texts[0]) == pytest.approx(estimate.weights[0])


class TestExactRule:
    def test_equal_weights_are_no_weights(self):
        generator = np.random.default_rng(1)
        for seed in range(50):
            values, groups = -generator.exponential(size=60), generator.integers(0, 19, size=60)
            for weight in (1.0, 0.1, 3.0):
                plain = conformal_threshold(values, ALPHA, groups, seed=seed)
                assert plain == conformal_threshold(
                    values, ALPHA, groups, weights=np.full(60, weight), test_weight=weight
                )

    def test_threshold_is_the_definition_in_rationals(self):
        generator = np.random.default_rng(2)
        for _ in range(60):
            n = int(generator.integers(1, 25))
            values, weights = -generator.exponential(size=n).round(1), generator.integers(1, 9, size=n) / 4
            own = float(generator.integers(1, 9)) / 4
            total = sum(map(Fraction, weights.tolist())) + Fraction(own)
            best = -math.inf
            for m in values:
                mass = sum((Fraction(float(w)) for w, v in zip(weights, values, strict=True) if v >= m), Fraction(0))
                if mass >= Fraction(4, 5) * total:
                    best = max(best, m)
            assert conformal_threshold(values, 0.2, weights=weights, test_weight=own) == best

    def test_new_context_of_overwhelming_weight_certifies_everything(self):
        values = -np.arange(1.0, 100.0)
        assert conformal_threshold(values, ALPHA, weights=np.ones(99), test_weight=12.0) == -math.inf
        assert conformal_threshold(values, ALPHA, weights=np.ones(99), test_weight=11.0) == -99.0

    def test_effective_size_is_between_one_and_the_count(self):
        assert effective_size(np.ones(7)) == 7
        assert effective_size(np.array([1.0, 1e-9, 1e-9])) == pytest.approx(1)
