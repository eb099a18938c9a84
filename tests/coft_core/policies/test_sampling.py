"""Choosing tokens: order of the cuts, the draw's law, ties and the fallback."""

import math

import numpy as np
import pytest
import torch

from coft_core.errors import InvalidInputError
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.types import Sampling

LOG_P = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
OFF = Sampling(1.0, 1.0, 0)


def frequencies(log_p, certified, sampling, draws=4000):
    uniform = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    choice = choose(
        log_p.expand(draws, -1), None if certified is None else certified.expand(draws, -1), sampling, uniform
    )
    return torch.bincount(choice.token_ids, minlength=log_p.shape[-1]) / draws


def test_sets_are_cut_in_their_order_and_greedy_takes_the_likeliest_certified_token():
    certified = torch.tensor([[False, True, True, True]])
    # Renormalised on the set: 1/2, 1/3, 1/6; top-2: 3/5, 2/5; top-p 0.6 keeps the first alone.
    cut = frequencies(LOG_P, certified, Sampling(1.0, 1.0, 2))
    torch.testing.assert_close(cut, torch.tensor([0, 0.6, 0.4, 0]), atol=1e-3, rtol=0)
    assert frequencies(LOG_P, certified, Sampling(1.0, 0.6, 2))[1] == 1
    # Without the cut by top-k first, 0.6 would need two tokens (1/2 < 0.6).
    assert frequencies(LOG_P, certified, Sampling(1.0, 0.6, 0))[2] > 0
    certified = torch.tensor([[False, True, True, True]])
    assert int(choose(LOG_P, certified, OFF, torch.tensor([0.99]), greedy=True).token_ids) == 1
    tied = torch.tensor([[0.1, 0.45, 0.45]]).log()
    assert int(choose(tied, None, OFF, torch.tensor([0.0]), greedy=True).token_ids) == 1
    log_p = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    for u in (0.0, 1 - 2**-53):
        assert int(choose(log_p, None, OFF, torch.tensor([u], dtype=torch.float64)).token_ids) == 1


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
