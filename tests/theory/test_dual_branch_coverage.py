"""Theorem 1: the true next token is certified in both views with probability at least 1 - alpha.

The second half is about contexts that give several dependent values, which the paper's pooled quantile treats
as exchangeable: what each estimator then covers, for a uniformly drawn step of a new context.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from scipy import stats

from coft_core.conformal.quantile import conformal_rank, conformal_threshold
from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.fusion import fuse_logits, log_probabilities

REPETITIONS = 1400
"""Four standard errors are then less than 0.01, and a rank beside the right one shifts the coverage by 0.025."""
ALPHA = 0.1


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_true_token_is_certified_in_both_views_at_the_level_asked_for(lam):
    calibration, new, tokens = 29, 20, 12
    generator = torch.Generator().manual_seed(int(10 * lam))
    shape = (REPETITIONS, calibration + new, tokens)
    factual = 2 * torch.randn(shape, generator=generator)  # (R, N, V)
    masked = factual + torch.randn(shape, generator=generator)  # (R, N, V)
    true = torch.multinomial(torch.softmax(factual, -1).view(-1, tokens), 1, generator=generator)
    true = true.view(REPETITIONS, -1, 1)  # (R, N, 1)
    log_p, log_q = log_probabilities(fuse_logits(factual, masked, lam)), log_probabilities(masked)
    joint = joint_support(log_p, log_q)
    values = joint.gather(-1, true)[..., 0]  # (R, N)
    log_tau = torch.tensor([conformal_threshold(row[:calibration], ALPHA) for row in values])[:, None]  # (R, 1)
    members = certified_set(joint[:, calibration:], log_tau[:, :, None])  # (R, new, V)
    kept = members.gather(-1, true[:, calibration:])[..., 0]  # (R, new)
    in_both = (log_p >= log_tau[..., None]) & (log_q >= log_tau[..., None])  # (R, N, V)
    assert torch.equal(kept, in_both.gather(-1, true)[:, calibration:, 0])
    per_calibration = kept.double().mean(-1)  # (R,)
    error = 4 * per_calibration.std().item() / REPETITIONS**0.5
    assert error < 0.01
    # 29 contexts and alpha 0.1 give rank 3 of 30: exactly 0.9 on average.
    assert per_calibration.mean().item() == pytest.approx(1 - ALPHA, abs=error)


class DependentContexts:
    """Contexts of 1 to 8 values that share a level; longer contexts are easier.

    A value is ``m = -exp(g)`` with ``g = 1 - 0.45 * length + level + noise``, so that a threshold's coverage
    for a uniformly drawn step of a new context is known exactly.
    """

    LENGTHS = np.arange(1, 9)
    LEVEL, NOISE = 1.0, 0.2

    @classmethod
    def draw(cls, contexts, seed):
        """Values and their contexts, (n,) each."""
        generator = np.random.default_rng(seed)
        lengths = generator.choice(cls.LENGTHS, size=contexts)
        context = np.repeat(np.arange(contexts), lengths)
        g = 1 - 0.45 * lengths[context] + cls.LEVEL * generator.normal(size=contexts)[context]
        return -np.exp(g + cls.NOISE * generator.normal(size=context.size)), context

    @classmethod
    def coverage(cls, log_tau):
        """Probability that a uniformly drawn step of a new context reaches each threshold, (R,)."""
        with np.errstate(divide="ignore"):
            limit = np.log(-log_tau)[:, None]  # (R, 1)
        scale = np.hypot(cls.LEVEL, cls.NOISE)
        return stats.norm.cdf((limit - 1 + 0.45 * cls.LENGTHS) / scale).mean(axis=1)

    @classmethod
    @functools.cache
    def calibrated_coverage(cls, contexts, estimator):
        """Coverage of repeated calibrations, (R,)."""
        thresholds = []
        for seed in range(REPETITIONS):
            values, context = cls.draw(contexts, seed)
            thresholds.append(conformal_threshold(values, ALPHA, context, estimator, seed=seed + 1_000_000))
        return cls.coverage(np.array(thresholds))


def monte_carlo_error(coverage):
    return float(4 * coverage.std() / np.sqrt(coverage.size))


def test_coverage_formula_of_the_simulation_is_right():
    values, context = DependentContexts.draw(40_000, seed=1)
    first = values[np.unique(context, return_index=True)[1]]
    for log_tau in (-0.5, -2.0, -5.0):
        expected = DependentContexts.coverage(np.array([log_tau]))[0]
        assert np.mean(first >= log_tau) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("contexts", [12, 39])
@pytest.mark.parametrize("estimator", ["hierarchical", "one_per_context"])
def test_estimators_that_respect_contexts_hold_the_level(contexts, estimator):
    coverage = DependentContexts.calibrated_coverage(contexts, estimator)
    assert coverage.mean() >= 1 - ALPHA - monte_carlo_error(coverage)
    assert coverage.mean() <= 1 - ALPHA + 1 / (contexts + 1) + 0.03


def test_pooled_estimator_misses_the_level():
    coverage = DependentContexts.calibrated_coverage(39, "pooled")
    assert coverage.mean() < 1 - ALPHA - 0.03


def test_one_value_of_each_context_follows_the_beta_law():
    coverage = DependentContexts.calibrated_coverage(39, "one_per_context")
    k = conformal_rank(ALPHA, 39)
    assert stats.kstest(coverage, stats.beta(40 - k, k).cdf).pvalue > 0.01


def test_hierarchical_estimator_varies_less_than_one_drawn_value():
    hierarchical, drawn = (
        DependentContexts.calibrated_coverage(39, name) for name in ("hierarchical", "one_per_context")
    )
    assert hierarchical.std() < drawn.std()
