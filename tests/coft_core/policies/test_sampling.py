"""Tokens are drawn as after a full sort, however few are put in order; draws are keyed; greedy takes the likeliest."""

import math

import numpy as np
import pytest
import torch

from coft_core.errors import InvalidInputError
from coft_core.policies import sampling as module
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.types import Sampling


def drawn_after_sorting(log_p, certified, controls, uniform):
    """The rule of the method, written down row by row over a sorted vocabulary."""
    found = []
    for row, draw in zip(range(len(log_p)), uniform.tolist(), strict=True):
        allowed = list(range(log_p.shape[1])) if certified is None else certified[row].nonzero()[:, 0].tolist()
        values = log_p[row].double().tolist()
        likelier_first = sorted(allowed or range(len(values)), key=lambda token: (-values[token], token))
        if not allowed:
            found.append(likelier_first[0])
            continue
        if controls.top_k:
            likelier_first = likelier_first[: controls.top_k]
        p = torch.softmax(torch.tensor([values[token] for token in likelier_first], dtype=torch.float64), 0).tolist()
        kept, mass = [], 0.0
        for token, own in zip(likelier_first, p, strict=True):
            if mass < controls.top_p or controls.top_p == 1:
                kept.append((token, own))
            mass += own
        target, mass = draw * sum(own for _, own in kept), 0.0
        for token, own in kept:
            mass += own
            if mass > target:
                found.append(token)
                break
    return found


def cases():
    generator = torch.Generator().manual_seed(5)
    for trial in range(150):
        rows, vocabulary = (1, 3)[trial % 2], (7, 40, 90)[trial % 3]
        logits = torch.randn(rows, vocabulary, generator=generator) * (0.2, 1.0, 3.0, 6.0)[trial % 4]
        if trial % 5 == 0:
            logits = logits.round()  # many ties, also at the border between two sizes
        if trial % 7 == 0:
            logits[:, ::3] = -torch.inf
        log_p = torch.log_softmax(logits, -1)
        certified = None if trial % 2 else log_p >= -8 * torch.rand(rows, 1, generator=generator)
        top_p = (0.05, 0.5, 0.9, 0.999, 1.0)[trial % 5]
        top_k = (0, 0, 3, 8, 50)[trial // 5 % 5]
        yield log_p, certified, Sampling(1.0, top_p, top_k), torch.rand(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("heads", [(), (1,), (4, 16), (8,), (64,)])
def test_any_number_of_ordered_tokens_draws_what_sorting_draws(monkeypatch, heads):
    monkeypatch.setattr(module, "HEADS", heads)
    for log_p, certified, controls, uniform in cases():
        choice = choose(log_p, certified, controls, uniform)
        assert choice.token_ids.tolist() == drawn_after_sorting(log_p, certified, controls, uniform)


def test_a_nucleus_that_ends_early_orders_no_more_tokens_than_needed(monkeypatch):
    ordered = []
    likeliest = module._likeliest
    monkeypatch.setattr(module, "_likeliest", lambda log_p, size: ordered.append(size) or likeliest(log_p, size))
    peaked = torch.log_softmax(-torch.arange(5000.0), -1)[None]
    choose(peaked, None, Sampling(), torch.tensor([0.5]))
    assert ordered == [module.HEADS[0]]


def test_rows_that_are_not_settled_alone_are_ordered_further(monkeypatch):
    seen = []
    likeliest = module._likeliest
    monkeypatch.setattr(
        module, "_likeliest", lambda log_p, size: seen.append((len(log_p), size)) or likeliest(log_p, size)
    )
    peaked, flat = -torch.arange(5000.0), torch.zeros(5000)
    choice = choose(torch.log_softmax(torch.stack([peaked, flat]), -1), None, Sampling(), torch.tensor([0.5, 0.5]))
    assert seen == [(2, 256), (1, 2048), (1, 5000)]
    assert choice.token_ids.tolist() == [0, 2250]  # half of the first 0.9 of equal tokens, the smaller ids first


def test_a_draw_next_to_one_never_lands_on_a_forbidden_token():
    log_p = torch.full((1, 3000), -torch.inf)
    log_p[0, 10:13] = torch.log_softmax(torch.tensor([0.0, -1.0, -2.0]), -1)
    for top_p in (0.9999, 1.0):
        choice = choose(log_p, None, Sampling(top_p=top_p), torch.tensor([1 - 2**-53], dtype=torch.float64))
        assert choice.token_ids.tolist() == [12]


def test_greedy_takes_the_likeliest_certified_token_and_of_equal_ones_the_first():
    certified = torch.tensor([[False, True, True, True]])
    for p, allowed, taken in (([0.4, 0.3, 0.2, 0.1], certified, 1), ([0.1, 0.45, 0.45], None, 1)):
        choice = choose(torch.tensor([p]).log(), allowed, Sampling(1.0, 1.0, 0), torch.tensor([0.99]), greedy=True)
        assert choice.token_ids.tolist() == [taken]


def test_keyed_draws_are_uniform_reproducible_everywhere_and_differ_by_every_part_of_the_key():
    assert keyed_uniform(3, "0/4:17", 9) == keyed_uniform(3, "0/4:17", 9)
    keys = ((3, "0", 9), (4, "0", 9), (3, "1", 9), (3, "0", 8))
    assert len({keyed_uniform(*key) for key in keys}) == 4
    sample = np.array([keyed_uniform(0, "0", step) for step in range(20_000)])
    counts, _ = np.histogram(sample, bins=20, range=(0, 1))
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_square < 43.8  # 99.9 % point with 19 degrees of freedom
    # First 53 bits of the BLAKE2b-64 digest of "0|0|0", over 2^53.
    assert keyed_uniform(0, "0", 0) == 0.2456014513307475


def test_controls_outside_their_range_are_refused_by_name():
    for values in (
        *((bad, 1.0, 0) for bad in (0.0, -1.0, math.nan, math.inf)),
        *((1.0, bad, 0) for bad in (0.0, 1.5, math.nan)),
        (1.0, 1.0, -1),
    ):
        with pytest.raises(InvalidInputError, match=r"^(temperature|top-p|top-k) is"):
            Sampling(*values)
