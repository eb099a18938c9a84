"""Shared noise: each world's draws keep their law, and twins differ only as far as their distributions do."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from coft_core.paths.question import decided_after
from coft_core.policies import sampling as module
from coft_core.policies.sampling import choose, gumbel_noise, keyed_uniform
from coft_core.types import Sampling

DRAWS = 20_000
OWN, WHOLE = Sampling(1.0, 1.0), Sampling(1.0, 1.0, shared_noise=True)


def uniforms(draws=DRAWS, step=0):
    return torch.tensor([keyed_uniform(seed, "0", step) for seed in range(draws)], dtype=torch.float64)


def drawn(log_p, uniform, sampling=WHOLE, certified=None):
    rows = len(uniform)
    members = None if certified is None else certified.expand(rows, -1)
    return choose(log_p.expand(rows, -1), members, sampling, uniform).token_ids


def log_probabilities(seed, vocabulary=40, scale=1.5):
    logits = torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(seed)) * scale
    return torch.log_softmax(logits, -1)


def kept_tokens(p, controls):
    """What the cuts leave, over a sorted vocabulary."""
    order = np.argsort(-p, kind="stable")[: controls.top_k or None]
    return order[np.cumsum(p[order]) - p[order] < controls.top_p * p[order].sum()]


@pytest.mark.parametrize(
    ("controls", "certified"),
    [
        (Sampling(1.0, 1.0, shared_noise=True), False), (Sampling(1.0, 0.8, shared_noise=True), False),
        (Sampling(1.0, 1.0, 7, shared_noise=True), False), (Sampling(0.6, 0.9, 12, shared_noise=True), True),
    ],
)  # fmt: skip
def test_draws_have_the_law_of_the_certified_and_cut_distribution(controls, certified):
    log_p = torch.log_softmax(log_probabilities(1) / controls.temperature, -1)
    members = log_p >= math.log(0.02) if certified else None
    p = log_p[0].double().exp().numpy() * (members[0].numpy() if certified else 1)
    kept = kept_tokens(p, controls)
    counts = np.bincount(drawn(log_p, uniforms(), controls, members).numpy(), minlength=p.size)
    assert counts[kept].sum() == DRAWS
    assert stats.chisquare(counts[kept], DRAWS * p[kept] / p[kept].sum()).pvalue > 0.01


def test_steps_of_one_draw_and_draws_of_one_step_are_independent():
    log_p = log_probabilities(2, 4)
    steps = [drawn(log_p, uniforms(step=step)).numpy() for step in (0, 1)]
    for first, second in (steps, (steps[0][:-1], steps[0][1:])):
        together = np.histogram2d(first, second, bins=(range(5), range(5)))[0]
        assert stats.chi2_contingency(together).pvalue > 0.01


def test_twins_are_equal_under_equal_distributions_and_never_go_apart_more_than_the_bound():
    """Under shared noise two draws differ with a probability of at most 2 d / (1 + d), d the total variation."""
    first, second = log_probabilities(3), log_probabilities(3) + 0.4 * log_probabilities(4)
    second = torch.log_softmax(second, -1)
    uniform = uniforms()
    assert torch.equal(drawn(first, uniform), drawn(first, uniform))
    distance = float((first.exp() - second.exp()).abs().sum() / 2)
    apart = float((drawn(first, uniform) != drawn(second, uniform)).double().mean())
    own = float((drawn(first, uniform, OWN) != drawn(second, uniform.flip(0), OWN)).double().mean())
    assert apart <= 2 * distance / (1 + distance) + 3 * math.sqrt(0.25 / DRAWS)
    assert apart < own / 2


def test_twins_of_worlds_with_one_share_are_rarely_said_to_differ():
    """Half of each world answers yes, by other tokens, so that twins often answer otherwise."""
    first, second = (torch.tensor([p]).log() for p in ((0.35, 0.15, 0.35, 0.15), (0.15, 0.35, 0.2, 0.3)))
    uniform = uniforms(60_000)
    outcomes = [(drawn(log_p, uniform) < 2).view(300, 200).tolist() for log_p in (first, second)]
    apart = np.mean(np.array(outcomes[0]) != np.array(outcomes[1]))
    assert apart > 0.1
    alarms = sum(decided_after(worlds, 0.1) is not None for worlds in zip(*outcomes, strict=True))
    assert alarms / 300 <= 0.1 + 3 * math.sqrt(0.09 / 300)


@pytest.mark.parametrize("heads", [(), (1,), (4, 16)])
def test_noise_is_that_of_the_draw_and_the_token_whatever_batch_cut_or_order(monkeypatch, heads):
    monkeypatch.setattr(module, "HEADS", heads)
    uniform = uniforms(64)
    tied = torch.log_softmax(log_probabilities(5).round(), -1)
    for log_p in (log_probabilities(5), tied):
        noisy = log_p + gumbel_noise(uniform, torch.arange(40)[None])  # (G, V)
        for cuts in ((1.0, 0), (0.7, 0), (0.9, 6), (1.0, 3)):
            controls = Sampling(1.0, *cuts, shared_noise=True)
            kept = torch.from_numpy(kept_tokens(log_p[0].double().exp().numpy(), controls))
            expected = kept[noisy[:, kept].argmax(-1)]
            assert torch.equal(drawn(log_p, uniform, controls), expected)
            assert torch.equal(torch.cat([drawn(log_p, one, controls) for one in uniform.split(1)]), expected)


def test_the_noise_is_splitmix64_of_the_keyed_number_and_gumbel():
    uniform, mask = 0.2456014513307475, 2**64 - 1
    state = (int(uniform * 2**53) + 8 * 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    state ^= state >> 31
    expected = -math.log(-math.log(((state >> 12) + 0.5) / 2**52))
    found = gumbel_noise(torch.tensor([uniform], dtype=torch.float64), torch.tensor([[7]]))
    assert float(found) == pytest.approx(expected, rel=1e-12)
    noise = gumbel_noise(uniforms(200), torch.arange(100)[None]).flatten().numpy()
    assert stats.kstest(noise, "gumbel_r").pvalue > 0.01


def test_an_empty_set_still_gives_the_likeliest_token_and_other_draws_are_as_they_were():
    log_p, uniform = log_probabilities(6), uniforms(8)
    empty = torch.zeros(1, 40, dtype=torch.bool)
    assert drawn(log_p, uniform, WHOLE, empty).tolist() == [int(log_p.argmax())] * 8
    assert not torch.equal(drawn(log_p, uniform, OWN), drawn(log_p, uniform, WHOLE))
