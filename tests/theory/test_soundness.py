"""Proposition 2: only tokens of a non-empty certified set are drawn; an empty one gives the fused argmax."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.fusion import fuse_logits, log_probabilities
from coft_core.policies.sampling import choose
from coft_core.types import Sampling

CONTROLS = [Sampling(top_p=1.0), Sampling(top_p=0.9), Sampling(top_p=0.5, top_k=3), Sampling(top_p=1.0, top_k=1)]


def fused_and_joint(branches, lam=0.6):
    factual, masked = branches
    log_p = log_probabilities(fuse_logits(factual, masked, lam))  # (S, V)
    return log_p, joint_support(log_p, log_probabilities(masked))  # (S, V) each


@pytest.mark.parametrize("sampling", CONTROLS)
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("log_tau", [-1.0, -3.0, -6.0])
def test_no_token_outside_a_non_empty_set_is_emitted(branches, sampling, greedy, log_tau):
    log_p, joint = fused_and_joint(branches)
    members = certified_set(joint, log_tau)
    generator = torch.Generator().manual_seed(5)
    for _ in range(40):
        uniform = torch.rand(len(log_p), generator=generator, dtype=torch.float64)  # (S,)
        choice = choose(log_p, members, sampling, uniform, greedy)
        inside = members.gather(-1, choice.token_ids[:, None])[:, 0]  # (S,)
        assert torch.equal(inside, ~choice.fallback)
        assert torch.equal(choice.fallback, ~members.any(-1))


@pytest.mark.parametrize("greedy", [False, True])
def test_empty_set_emits_the_fused_argmax_also_when_sampling(branches, greedy):
    log_p, joint = fused_and_joint(branches)
    uniform = torch.linspace(0, 0.999, len(log_p), dtype=torch.float64)
    choice = choose(log_p, certified_set(joint, 0.1), Sampling(top_p=1.0), uniform, greedy)
    assert choice.fallback.all()
    assert torch.equal(choice.token_ids, log_p.argmax(-1))


def test_draws_follow_the_fused_distribution_given_the_set():
    log_p = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).log()
    members = torch.tensor([False, True, True, True])
    draws = 20_000
    uniform = torch.rand(draws, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    choice = choose(log_p.expand(draws, -1), members.expand(draws, -1), Sampling(top_p=1.0), uniform)
    counts = np.bincount(choice.token_ids.numpy(), minlength=4)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], draws * np.array([0.3, 0.2, 0.1]) / 0.6).pvalue > 0.001


def test_token_with_enough_support_in_both_views_is_always_kept(branches):
    log_p, joint = fused_and_joint(branches)
    log_q = log_probabilities(branches[1])
    supported = (log_p >= -3.0) & (log_q >= -3.0)  # (S, V)
    assert certified_set(joint, -3.0)[supported].all()
    assert not certified_set(joint, -3.0)[~supported].any()


def test_the_papers_score_and_the_log_threshold_certify_the_same_tokens(branches):
    for tau in (0.3, 0.06, 0.001):
        log_p, joint = fused_and_joint(branches)
        score = 1 - torch.minimum(log_p.exp(), torch.softmax(branches[1], -1))  # (S, V)
        assert torch.equal(score <= 1 - tau, certified_set(joint, float(np.log(tau))))
