"""Logits as an audit keeps them: lossless, compact, refused when damaged, and laid out without a second transfer."""

import math
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import coft_core as cc
from coft_core.decode.keep import Keeper
from coft_core.errors import StoredLogitsError
from coft_core.stored_logits import VERSION, StoredLogits

NAMES = ("factual", "masked")


def logits(seed, vocabulary=97, branches=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(branches, vocabulary, generator=generator) * 4
    drawn[torch.rand(branches, vocabulary, generator=generator) < 0.05] = -torch.inf
    return drawn.to(dtype)


def kept(given, policy=None, full_bytes=0, head_tokens=7, needed=(3, 3)):
    """Keep logits as the loop does."""
    names = NAMES if len(given) == 2 else ("factual", "masked:gender", "masked:age")
    keeper = Keeper.of(policy or cc.CoftPolicy(lam=0.35, temperature=0.8), names, given, full_bytes, head_tokens)
    return keeper.unpack(keeper.pack(given, torch.tensor(needed)).numpy().tobytes())


def test_full_logits_come_back_bit_for_bit_in_the_models_own_type():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        given = logits(1, dtype=dtype)
        stored = kept(given, full_bytes=10_000)
        back = StoredLogits.from_bytes(stored.to_bytes())
        assert (back.mode, back.tail_count) == ("full", 0)
        assert back.tensor().dtype == dtype
        assert torch.equal(back.tensor(), given)
        assert len(stored.values) == given.numel() * given.element_size()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    head_tokens=st.integers(1, 60),
    branches=st.sampled_from([2, 3]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_head_holds_the_likeliest_tokens_of_every_branch_and_all_that_is_needed(seed, head_tokens, branches, dtype):
    given = logits(seed, branches=branches, dtype=dtype)
    policy = cc.CoftPolicy() if branches == 2 else cc.FactorizedCoftPolicy()
    stored = StoredLogits.from_bytes(kept(given, policy, head_tokens=head_tokens, needed=(0, 96)).to_bytes())
    if stored.tail is None:
        assert torch.equal(stored.tensor(), given)
        return
    ids = torch.from_numpy(stored.tail.ids)
    assert {0, 96} <= set(ids.tolist())
    assert torch.equal(stored.tensor(), given[:, ids])
    outside = torch.ones(97, dtype=torch.bool).index_fill(0, ids, False)
    assert stored.tail_count == int(outside.sum())
    for row, tail_mass, largest in zip(given, stored.tail.log_mass, stored.tail.largest, strict=True):
        assert int((row > row[ids].topk(head_tokens).values[-1]).sum()) < head_tokens
        assert largest == float(row[outside].max())
        assert tail_mass == pytest.approx(float(row[outside].double().logsumexp(0)), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), head_tokens=st.integers(1, 40), branches=st.sampled_from([2, 3]))
def test_the_fused_tail_is_measured_at_the_policys_own_lambda_and_temperature(seed, head_tokens, branches):
    given = logits(seed, branches=branches)
    policy = cc.CoftPolicy if branches == 2 else cc.FactorizedCoftPolicy
    stored = kept(given, policy(lam=0.35, temperature=0.8), head_tokens=head_tokens)
    tail = stored.tail
    assert tail.lams == (0.0, 0.25, 0.35, 0.5, 0.75, 1.0)
    outside = torch.ones(97, dtype=torch.bool).index_fill(0, torch.from_numpy(tail.ids), False)
    rows = given[:, outside].double()
    fused = 0.65 * rows[0] + 0.35 * rows[1:].mean(0)
    expected = torch.logsumexp(fused / 0.8, 0)
    assert tail.fused_log_mass[2] == pytest.approx(float(expected), abs=1e-9)
    assert tail.fused_largest[2] == pytest.approx(float(fused.max()), abs=1e-9)
    alive = fused > -math.inf
    slope = (torch.softmax(fused[alive] / 0.8, 0) * (rows[1:].mean(0) - rows[0])[alive] / 0.8).sum()
    assert tail.fused_slope[2] == pytest.approx(float(slope), abs=1e-9)


@pytest.mark.parametrize("full_bytes", [0, 10_000])
def test_damaged_bytes_are_refused_in_one_sentence(full_bytes):
    data = kept(logits(4), full_bytes=full_bytes).to_bytes()
    generator = np.random.default_rng(0)
    damaged = [b"", data[:1], data[:-1], data + b"x", data[: len(data) // 2]]
    for place in generator.integers(1, len(data), 40):
        damaged.append(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
    for bad in damaged:
        with pytest.raises(StoredLogitsError) as caught:
            StoredLogits.from_bytes(bad)
        assert "\n" not in str(caught.value)


def test_equal_logits_give_equal_bytes_and_are_read_however_they_were_compressed():
    given = logits(6, vocabulary=4096, dtype=torch.bfloat16)
    first, second = (kept(given, full_bytes=10**6) for _ in range(2))
    assert first == second
    assert first.to_bytes() == second.to_bytes()
    assert len(first.to_bytes()) < 0.9 * len(first.values)
    stored = kept(logits(9), full_bytes=10_000)
    data = stored.to_bytes()
    for level in (0, 1, 9):
        assert StoredLogits.from_bytes(data[:1] + zlib.compress(zlib.decompress(data[1:]), level)) == stored
    given = logits(3)
    assert kept(given, full_bytes=2 * 97 * 4).mode == "full"
    assert kept(given, full_bytes=2 * 97 * 4 - 1).mode == "head"
    assert kept(given.bfloat16(), full_bytes=2 * 97 * 4 - 1).mode == "full"
    assert kept(given, full_bytes=0, head_tokens=97).mode == "full"
    data = kept(logits(5)).to_bytes()
    with pytest.raises(StoredLogitsError, match=f"format {VERSION + 1}; this program reads format {VERSION}"):
        StoredLogits.from_bytes(bytes([VERSION + 1]) + data[1:])
    given = logits(2, dtype=torch.float64)
    assert torch.equal(kept(given, full_bytes=10_000).tensor(), given.float())
