"""Theorem 2: KL(fused || masked) falls with lambda, and its fixed points."""

from __future__ import annotations

import torch

from coft_core.policies.fusion import fuse_logits, log_probabilities
from tests.theory.figures import kl_divergence

GRID = [index / 40 for index in range(41)]


def decay(factual, masked):
    """KL(fused || masked) along the grid, (41, S)."""
    log_q = log_probabilities(masked)
    return torch.stack([kl_divergence(log_probabilities(fuse_logits(factual, masked, lam)), log_q) for lam in GRID])


def test_divergence_falls_strictly_to_zero_and_equal_branches_are_its_fixed_point(branches):
    factual, masked = branches
    along = decay(factual, masked)
    assert (along.diff(dim=0) < 0).all()
    torch.testing.assert_close(along[0], kl_divergence(log_probabilities(factual), log_probabilities(masked)))
    assert (along[-1] == 0).all()
    factual, _ = branches
    assert decay(factual, factual + 5.0).max() < 1e-12
    factual, masked = branches
    for lam in (0.05, 0.5, 1.0):
        moved = kl_divergence(log_probabilities(factual), log_probabilities(fuse_logits(factual, masked, lam)))
        assert (moved > 0).all()


def test_slope_is_the_variance_of_the_log_ratio_under_the_fused_distribution(branches):
    # The proof's identity: dKL/dbeta = beta * Var_fused(log p_factual / p_masked), beta = 1 - lambda.
    factual, masked = branches
    lam, h = 0.6, 1e-4
    log_q = log_probabilities(masked)
    upper, lower = (
        kl_divergence(log_probabilities(fuse_logits(factual, masked, lam + sign * h)), log_q) for sign in (1, -1)
    )
    p = log_probabilities(fuse_logits(factual, masked, lam)).exp()  # (S, V)
    ratio = log_probabilities(factual) - log_q  # (S, V)
    variance = (p * ratio**2).sum(-1) - (p * ratio).sum(-1) ** 2  # (S,)
    torch.testing.assert_close((upper - lower) / (2 * h), -(1 - lam) * variance, rtol=1e-3, atol=1e-9)
