"""Lemma 1: the fused distribution is the normalised geometric mixture of the branches."""

from __future__ import annotations

import torch

from coft_core.policies.fusion import fuse_logits, log_probabilities

LAMBDAS = [0.0, 0.1, 0.37, 0.6, 0.9, 1.0]


def test_fused_distribution_is_the_normalised_geometric_mixture(branches):
    for lam in LAMBDAS:
        factual, masked = branches
        p, q = torch.softmax(factual, -1), torch.softmax(masked, -1)  # (S, V)
        weights = p ** (1 - lam) * q**lam  # (S, V)
        expected = weights / weights.sum(-1, keepdim=True)
        torch.testing.assert_close(log_probabilities(fuse_logits(factual, masked, lam)).exp(), expected)


def test_partition_function_is_below_one_unless_the_branches_are_equal(branches):
    for lam in LAMBDAS:
        factual, masked = branches
        log_p, log_q = log_probabilities(factual), log_probabilities(masked)
        # Fusing log-probabilities instead of logits leaves exactly the partition function Z(lambda).
        log_z = torch.logsumexp(fuse_logits(log_p, log_q, lam), -1)  # (S,)
        if 0 < lam < 1:
            assert (log_z < 0).all()
        else:
            assert log_z.abs().max() < 1e-12
        assert torch.logsumexp(fuse_logits(log_p, log_p, lam), -1).abs().max() < 1e-12


def test_fused_distribution_does_not_depend_on_the_logits_offsets(branches):
    factual, masked = branches
    one = log_probabilities(fuse_logits(factual, masked, 0.6))
    other = log_probabilities(fuse_logits(factual + 7.0, masked - 3.0, 0.6))
    torch.testing.assert_close(one, other)
