"""Theorem 1: the true next token is certified in both views with probability at least 1 - alpha.

What holds where contexts give several dependent values is in ``test_dependent_contexts.py``.
"""

from __future__ import annotations

import pytest
import torch

from coft_core.conformal.quantile import conformal_threshold
from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.fusion import fuse_logits, log_probabilities

REPETITIONS = 1400
"""Four standard errors are then less than 0.01, and a rank beside the right one shifts the coverage by 0.025."""
ALPHA = 0.1


def test_true_token_is_certified_in_both_views_at_the_level_asked_for():
    for lam in (0.0, 0.6, 1.0):
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
