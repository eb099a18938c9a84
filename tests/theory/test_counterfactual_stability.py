"""Corollary 1: given the certified set, fused and masked differ by at most sqrt(KL / 2) / tau."""

from __future__ import annotations

import pytest
import torch

from coft_core.policies.certify import certified_set, joint_support, total_variation_bound
from coft_core.policies.fusion import fuse_logits, log_probabilities
from tests.theory.figures import distance_on, kl_divergence


@pytest.mark.parametrize("size", [1, 2, 5, 20])
@pytest.mark.parametrize("lam", [0.0, 0.3, 0.6, 0.95])
def test_conditionals_on_the_certified_set_stay_within_the_bound(branches, lam, size):
    factual, masked = branches
    log_p, log_q = log_probabilities(fuse_logits(factual, masked, lam)), log_probabilities(masked)  # (S, V)
    joint = joint_support(log_p, log_q)
    log_tau = joint.topk(size, dim=-1).values[:, -1:]  # (S, 1), so that the set has `size` tokens
    members = certified_set(joint, log_tau)
    assert (members.sum(-1) == size).all()
    distance = distance_on(members, log_p, log_q)  # (S,)
    bound = total_variation_bound(kl_divergence(log_p, log_q), log_tau[:, 0])
    assert (distance <= bound + 1e-9).all()


def test_certified_set_has_at_least_the_threshold_in_both_views(branches):
    factual, masked = branches
    log_p, log_q = log_probabilities(fuse_logits(factual, masked, 0.6)), log_probabilities(masked)
    members = certified_set(joint_support(log_p, log_q), -3.0)  # (S, V)
    occupied = members.any(-1)
    for log_view in (log_p, log_q):
        mass = (log_view.exp() * members).sum(-1)  # (S,)
        assert (mass[occupied] >= torch.exp(torch.tensor(-3.0, dtype=torch.float64))).all()


def test_bound_falls_with_lambda_at_a_fixed_threshold(branches):
    factual, masked = branches
    log_q = log_probabilities(masked)
    bounds = torch.stack(
        [
            total_variation_bound(kl_divergence(log_probabilities(fuse_logits(factual, masked, i / 10)), log_q), -3.0)
            for i in range(11)
        ]
    )  # (11, S)
    assert (bounds.diff(dim=0) < 0).all()


def test_bound_is_within_a_factor_of_two_for_two_nearly_equal_tokens():
    # Pinsker is sharp here, and the set's mass is 1 where tau is one half: half of the bound is reached.
    epsilon = 1e-4
    log_p = torch.tensor([[0.5 + epsilon, 0.5 - epsilon]], dtype=torch.float64).log()
    log_q = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log()
    log_tau = joint_support(log_p, log_q).min()
    members = certified_set(joint_support(log_p, log_q), log_tau)
    ratio = distance_on(members, log_p, log_q) / total_variation_bound(kl_divergence(log_p, log_q), log_tau)
    assert ratio.item() == pytest.approx(0.5, abs=1e-3)
