"""Logits as an audit keeps them: lossless, compact, and refused when damaged."""

import zlib

import numpy as np
import pytest
import torch

import coft_core as cc
from coft_core.decode.record import Keeper
from coft_core.errors import StoredLogitsError
from coft_core.stored_logits import VERSION, StoredLogits, holds_all

NAMES = ("factual", "masked")


def logits(seed, vocabulary=97, branches=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(branches, vocabulary, generator=generator) * 4
    drawn[torch.rand(branches, vocabulary, generator=generator) < 0.05] = -torch.inf
    return drawn.to(dtype)


def kept(given):
    """Keep logits as the loop does."""
    keeper = Keeper.of(cc.CoftPolicy(lam=0.35, temperature=0.8), NAMES, given)
    assert keeper.size == given.numel() * min(given.element_size(), 4)
    return keeper.unpack(keeper.pack(given).numpy().tobytes())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_logits_come_back_bit_for_bit_in_the_models_own_type_or_in_float32(dtype):
    given = logits(1, dtype=dtype)
    back = StoredLogits.from_bytes(kept(given).to_bytes())
    expected = given.float() if dtype == torch.float64 else given
    assert back.tensor().dtype == expected.dtype
    assert torch.equal(back.tensor(), expected)


def test_damaged_bytes_are_refused_in_one_sentence():
    data = kept(logits(4)).to_bytes()
    generator = np.random.default_rng(0)
    damaged = [b"", data[:1], data[:-1], data + b"x", data[: len(data) // 2]]
    for place in generator.integers(1, len(data), 40):
        damaged.append(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
    for bad in damaged:
        with pytest.raises(StoredLogitsError) as caught:
            StoredLogits.from_bytes(bad)
        assert "\n" not in str(caught.value)
        assert holds_all(bad)
    with pytest.raises(StoredLogitsError, match=f"format {VERSION + 1}; this program reads format {VERSION}"):
        StoredLogits.from_bytes(bytes([VERSION + 1]) + data[1:])


def test_equal_logits_give_equal_bytes_and_are_read_however_they_were_compressed():
    given = logits(6, vocabulary=4096, dtype=torch.bfloat16)
    first, second = kept(given), kept(given)
    assert first == second
    assert first.to_bytes() == second.to_bytes()
    assert len(first.to_bytes()) < 0.9 * len(first.values)
    stored = kept(logits(9))
    data = stored.to_bytes()
    for level in (0, 1, 9):
        assert StoredLogits.from_bytes(data[:1] + zlib.compress(zlib.decompress(data[1:]), level)) == stored


def test_a_part_that_an_earlier_version_kept_is_known_by_its_header():
    data = kept(logits(2)).to_bytes()
    part = zlib.compress(zlib.decompress(data[1:]).replace(b'"head":null', b'"head":1024'))
    assert holds_all(data)
    assert not holds_all(data[:1] + part)
    assert not holds_all(b"\x02" + part)
