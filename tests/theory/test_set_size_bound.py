"""Theorem 3: the certified set is the intersection of the two views' sets, and no larger than either."""

from __future__ import annotations

import math

import pytest
import torch

from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.fusion import fuse_logits, log_probabilities


@pytest.mark.parametrize("tau", [0.2, 0.06, 0.01, 0.001])
@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_certified_set_is_the_intersection(branches, lam, tau):
    factual, masked = branches
    log_p, log_q = log_probabilities(fuse_logits(factual, masked, lam)), log_probabilities(masked)
    both = certified_set(joint_support(log_p, log_q), math.log(tau))  # (S, V)
    fused_set, masked_set = log_p >= math.log(tau), log_q >= math.log(tau)  # (S, V)
    assert torch.equal(both, fused_set & masked_set)
    sizes = both.sum(-1)
    assert (sizes <= torch.minimum(fused_set.sum(-1), masked_set.sum(-1))).all()
    assert sizes.double().mean() <= min(fused_set.sum(-1).double().mean(), masked_set.sum(-1).double().mean())
    assert (sizes <= 1 / tau).all()


def test_equal_and_nested_views_reach_the_bound(branches):
    _, masked = branches
    log_q = log_probabilities(masked)
    assert torch.equal(certified_set(joint_support(log_q, log_q), -3.0), log_q >= -3.0)
    # The paper says "iff the sets are equal"; one set inside the other is enough.
    log_p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    log_q = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log()
    tau = math.log(0.15)
    both = certified_set(joint_support(log_p, log_q), tau)
    assert both.sum() == min((log_p >= tau).sum(), (log_q >= tau).sum()) == 2
    assert not torch.equal(log_p >= tau, log_q >= tau)
