"""The certified set and the bound that follows from its threshold."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from coft_core.policies.certify import certified_set, joint_support, total_variation_bound


def log_of(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_joint_support_is_the_smaller_of_the_two_views() -> None:
    support = joint_support(log_of(0.5, 0.2, 0.3), log_of(0.1, 0.6, 0.3))
    assert support.exp().tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_token_at_the_threshold_is_certified_and_the_next_smaller_is_not() -> None:
    tau = torch.tensor(0.06).log()
    below = torch.nextafter(tau, torch.tensor(-torch.inf))
    assert certified_set(torch.stack([tau, below]), tau.item()).tolist() == [True, False]


def test_threshold_of_minus_infinity_certifies_even_impossible_tokens() -> None:
    assert certified_set(log_of(1.0, 0.0), -math.inf).all()


def test_each_row_may_have_its_own_threshold() -> None:
    joint = log_of(0.5, 0.3, 0.2).repeat(2, 1)
    assert certified_set(joint, log_of(0.25, 0.1)[:, None]).tolist() == [[True, True, False], [True, True, True]]
    kl = torch.tensor([0.08, 0.08], dtype=torch.float64)
    assert total_variation_bound(kl, log_of(0.25, 0.5)).tolist() == pytest.approx([0.8, 0.4])


def test_log_space_tells_small_probabilities_apart_where_the_score_cannot() -> None:
    joint = torch.tensor([1e-9, 1e-10]).log()
    score = 1 - joint.exp()
    assert score[0] == score[1]
    assert certified_set(joint, math.log(5e-10)).tolist() == [True, False]


def test_bound_is_the_root_of_half_the_divergence_over_tau() -> None:
    kl = torch.tensor([0.08, 0.5], dtype=torch.float64)
    assert total_variation_bound(kl, math.log(0.25)).tolist() == pytest.approx([0.8, 2.0])


def test_without_a_threshold_nothing_is_bounded() -> None:
    assert total_variation_bound(torch.tensor([0.0, 0.3]), -math.inf).tolist() == [math.inf, math.inf]
