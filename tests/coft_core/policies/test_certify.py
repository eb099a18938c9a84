"""The certified set and the bound that follows from its threshold."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from coft_core.policies.certify import certified_set, joint_support, total_variation_bound


def log_of(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_tokens_from_the_threshold_on_are_certified_in_logs_row_by_row() -> None:
    support = joint_support(log_of(0.5, 0.2, 0.3), log_of(0.1, 0.6, 0.3))
    assert support.exp().tolist() == pytest.approx([0.1, 0.2, 0.3])
    tau = torch.tensor(0.06).log()
    below = torch.nextafter(tau, torch.tensor(-torch.inf))
    assert certified_set(torch.stack([tau, below]), tau.item()).tolist() == [True, False]
    assert certified_set(log_of(1.0, 0.0), -math.inf).all()
    joint = log_of(0.5, 0.3, 0.2).repeat(2, 1)
    assert certified_set(joint, log_of(0.25, 0.1)[:, None]).tolist() == [[True, True, False], [True, True, True]]
    kl = torch.tensor([0.08, 0.08], dtype=torch.float64)
    assert total_variation_bound(kl, log_of(0.25, 0.5)).tolist() == pytest.approx([0.8, 0.4])
    joint = torch.tensor([1e-9, 1e-10]).log()
    score = 1 - joint.exp()
    assert score[0] == score[1]
    assert certified_set(joint, math.log(5e-10)).tolist() == [True, False]


def test_bound_is_the_root_of_half_the_divergence_over_tau_and_none_without_a_threshold() -> None:
    kl = torch.tensor([0.08, 0.5], dtype=torch.float64)
    assert total_variation_bound(kl, math.log(0.25)).tolist() == pytest.approx([0.8, 2.0])
    assert total_variation_bound(torch.tensor([0.0, 0.3]), -math.inf).tolist() == [math.inf, math.inf]
