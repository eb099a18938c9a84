"""Lemma 3: restricting two distributions to a set divides their distance by the set's mass at most."""

from __future__ import annotations

import torch

from coft_core.policies.fusion import log_probabilities
from tests.theory.figures import distance_on


def total_variation(p, q):
    return 0.5 * (p - q).abs().sum(-1)


def test_restricted_distance_is_bounded_on_random_sets(branches):
    log_p, log_q = (log_probabilities(z) for z in branches)  # (S, V)
    p, q = log_p.exp(), log_q.exp()
    generator = torch.Generator().manual_seed(3)
    for density in (0.05, 0.3, 0.8):
        members = torch.rand(p.shape, generator=generator) < density  # (S, V)
        members[:, 0] = True
        mass = torch.minimum((p * members).sum(-1), (q * members).sum(-1))  # (S,)
        restricted = distance_on(members, log_p, log_q)
        assert (restricted <= total_variation(p, q) / mass + 1e-12).all()


def test_bound_is_attained_when_the_branches_differ_only_inside_the_set():
    p = torch.tensor([[0.2, 0.1, 0.3, 0.4]], dtype=torch.float64)
    q = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    restricted = distance_on(torch.tensor([[True, True, True, False]]), p.log(), q.log())
    torch.testing.assert_close(restricted, total_variation(p, q) / 0.6)
