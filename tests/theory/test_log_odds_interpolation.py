"""Proposition 1 and Lemma 2: the log-odds of any two tokens interpolate linearly in lambda."""

from __future__ import annotations

import pytest
import torch

from coft_core.policies.fusion import fuse_logits, log_probabilities


def log_odds(logits, temperature):
    """Log-odds of all pairs of tokens, (S, V, V)."""
    log_p = log_probabilities(logits, temperature)  # (S, V)
    return log_p[:, :, None] - log_p[:, None, :]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("lam", [0.0, 0.25, 0.6, 1.0])
def test_log_odds_of_every_pair_interpolate(branches, lam, temperature):
    factual, masked = branches
    fused = log_odds(fuse_logits(factual, masked, lam), temperature)
    expected = (1 - lam) * log_odds(factual, temperature) + lam * log_odds(masked, temperature)
    torch.testing.assert_close(fused, expected)


def test_preference_that_masking_reverses_is_indifferent_at_the_crossing():
    factual = torch.tensor([2.0, 0.0], dtype=torch.float64)  # log-odds +2
    masked = torch.tensor([0.0, 3.0], dtype=torch.float64)  # log-odds -3
    torch.testing.assert_close(
        log_probabilities(fuse_logits(factual, masked, 0.4)).exp(), torch.tensor([0.5, 0.5], dtype=torch.float64)
    )
