"""Bounds of steps of which only the most likely tokens are known, against completions of all others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from coft_core.model.fake import most_likely_of
from coft_core.policies.bounds import bounded_views, choose_by
from coft_core.policies.certify import step_figures
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.sampling import choose
from coft_core.policies.vanilla import VanillaPolicy

SLACK = 1e-5


class Thresholds:
    """Stands for a calibration, of which views only ask whether there is one."""

    layout = "joint"


def policy(lam, temperature, calibrated=True, **sampling):
    made = CoftPolicy(lam=lam, temperature=temperature, **sampling)
    return replace(made, calibration=Thresholds()) if calibrated else made


def cut(p, k):
    return most_likely_of(p.log(), k)


def named(p, k):
    """Both branches ``(2, V)`` with what came back as most likely for either."""
    return p.log().masked_fill((cut(p, k) == -torch.inf).all(0), -torch.inf)


def completions(returned, k, generator, count):
    """Distributions that a returned row ``(V,)`` may be a part of, even ones and such as lie on few tokens."""
    seen = returned > -torch.inf
    places, known = (~seen).nonzero()[:, 0], returned.exp() * seen
    left, most = 1 - known.sum(), known.topk(k).values[-1]
    for number in range(count):
        order = places[torch.randperm(len(places), generator=generator)]
        p, share = known.clone(), left.clone()
        for place, token in enumerate(order):
            rest = len(order) - place - 1
            high = min(float(most), float(share))
            low = max(0.0, float(share) - rest * float(most))
            part = (1.0, 0.0, float(torch.rand((), generator=generator)))[number % 3]
            p[token] = low + part * (high - low)
            share = share - p[token]
        # A model gives no token a probability of 0.
        yield p.clamp_min(1e-30)


def exact(policy, p, log_tau):
    """What the whole vocabulary says of two distributions ``(2, V)``."""
    return policy.views_at(p.log()[None], log_tau)


CASES = [(lam, temperature) for lam in (0.0, 0.3, 0.6, 1.0) for temperature in (0.5, 1.0, 1.6)]


@pytest.mark.parametrize(("lam", "temperature"), CASES)
def test_every_number_lies_between_its_ends_whatever_the_tokens_are_that_did_not_come_back(lam, temperature):
    generator = torch.Generator().manual_seed(int(10 * lam + 100 * temperature))
    for number in range(25):
        size, k = 14, int(torch.randint(2, 9, (), generator=generator))
        logits = 2.5 * torch.randn(2, size, generator=generator, dtype=torch.float64)
        logits[1] = 0.6 * logits[0] + logits[1] * (0.3 + 0.7 * (number % 2))
        returned = (cut, named)[number % 4 // 2](torch.softmax(logits, -1), k)
        own, log_tau = policy(lam, temperature), math.log((0.02, 0.08, 0.2)[number % 3])
        views = bounded_views(own, returned[None], log_tau, count=k)
        ends = views.ends
        names = ("log_p_factual", "log_p_masked", "log_p_fused")
        pairs = zip(*(completions(branch, k, generator, 12) for branch in returned), strict=True)
        for pair in pairs:
            whole = exact(own, torch.stack(pair), log_tau)
            for place, name in enumerate(names):
                stated, true = getattr(views, name)[0], getattr(whole, name)[0]
                missing, slack = ends.missing[place, 0], float(ends.slack[0, place])
                assert (true <= stated + slack + SLACK).all(), name
                assert (true >= stated - SLACK)[~missing].all(), name
            certain = views.certified[0]
            assert (whole.certified[0] | ~certain).all()
            assert int(whole.certified.sum()) <= int(certain.sum()) + int(ends.undecided[0])
            figures = step_figures(torch.stack([getattr(whole, name) for name in names]), whole.certified)[0]
            least = [3, 4, 5, 6, 8, 9]
            assert (ends.figures[0, least] <= figures[least] + SLACK).all()
            if int(ends.undecided[0]) == 0:
                assert torch.equal(whole.certified[0], certain)
                if certain.any():
                    assert float(ends.figures[0, 7]) == pytest.approx(float(figures[7]), abs=SLACK)


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize(("lam", "top_p", "top_k"), [(0.6, 0.9, 0), (0.0, 0.7, 0), (0.0, 1.0, 2), (0.3, 0.9, 2)])
def test_a_draw_that_is_said_to_be_exact_is_that_of_all_tokens(lam, top_p, top_k, calibrated):
    generator = torch.Generator().manual_seed(5)
    found = 0
    for number in range(200):
        logits = 3 * torch.randn(2, 30, generator=generator)
        logits[1] = logits[0] + 0.4 * logits[1]
        p = torch.softmax(logits.double(), -1)
        own = policy(lam, 1.0, calibrated, top_p=top_p, top_k=top_k)
        uniform, greedy = torch.rand(1, generator=generator, dtype=torch.float64), number % 4 == 0
        views, whole = bounded_views(own, cut(p, 8)[None], math.log(0.05)), exact(own, p, math.log(0.05))
        choice = choose_by(views, own.sampling, uniform, greedy)
        expected = choose(whole.log_p_fused, whole.certified, own.sampling, uniform, greedy)
        # What is drawn came back from a branch in any case.
        assert not views.ends.missing[:2, 0, choice.token_ids[0]].all()
        if choice.exact[0]:
            found += 1
            assert torch.equal(choice.token_ids, expected.token_ids)
            assert torch.equal(choice.fallback, expected.fallback)
    assert found > 20


def test_with_all_tokens_returned_nothing_is_left_open():
    p = torch.softmax(torch.randn(2, 20, generator=torch.Generator().manual_seed(1)).double(), -1)
    own = policy(0.6, 0.8)
    views, whole = bounded_views(own, p.log()[None], math.log(0.03)), exact(own, p, math.log(0.03))
    assert not views.ends.missing.any()
    assert float(views.ends.undecided[0]) == 0
    assert torch.allclose(views.log_p_fused, whole.log_p_fused, atol=SLACK)
    assert torch.equal(views.certified, whole.certified)


def test_branches_that_have_no_returned_token_in_common_say_nothing_of_the_fused_one():
    p = torch.tensor([[0.4, 0.35, 0.1, 0.1, 0.05], [0.05, 0.1, 0.1, 0.35, 0.4]], dtype=torch.float64)
    views = bounded_views(policy(0.5, 1.0), cut(p, 2)[None], math.log(0.2))
    choice = choose_by(views, policy(0.5, 1.0).sampling, torch.tensor([0.5], dtype=torch.float64))
    assert views.ends.missing[2].all()
    assert not views.certified.any()
    assert not choice.exact[0]
    assert int(choice.token_ids[0]) != 2


def test_vanilla_takes_one_branch():
    p = torch.softmax(torch.randn(1, 20, generator=torch.Generator().manual_seed(1)).double(), -1)
    views = bounded_views(VanillaPolicy(observe_masked=False), cut(p, 5)[None], -math.inf)
    assert views.certified is None
    assert torch.equal(views.log_p_factual, views.log_p_fused)
