"""Logits that are packed with their model's matrix come back bit by bit, wherever they are read, or are not packed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from coft_core.errors import StoredLogitsError
from coft_core.logit_basis import LogitBasis, basis_named, basis_of, is_packed
from coft_core.model.fake import tiny_model
from coft_core.stored_logits import StoredLogits

BRANCHES = ("factual", "masked")


@pytest.fixture(scope="module")
def basis():
    rows = np.random.default_rng(0).normal(0.0, 0.1, (900, 48)).astype("<f2")
    return LogitBasis(rows)


def stored(values, **changes):
    fields = {"vocabulary_size": values.shape[1], "temperature": 0.7, "dtype": "float32", **changes}
    return StoredLogits(BRANCHES[: len(values)], values=values.astype("<f4").tobytes(), **fields)


def logits(basis, seed=1):
    """As a forward gives them: products that are summed in float32."""
    states = torch.from_numpy(np.random.default_rng(seed).normal(0.0, 3.0, (2, basis.rows.shape[1]))).float()
    return (states @ torch.from_numpy(basis.rows.astype(np.float32)).T).numpy()


def test_logits_of_a_matrix_come_back_bit_by_bit_from_less_than_half_of_their_bytes(basis):
    steps = [stored(logits(basis, seed)) for seed in range(5)]
    packed = [basis.packed(step) for step in steps]
    for step, data in zip(steps, packed, strict=True):
        assert is_packed(data)
        assert not is_packed(step.to_bytes())
        assert basis_named(data) == basis.digest
        assert 2 * len(data) < len(step.to_bytes())
    # Whoever reads has the matrix from the store, and may read many steps at once.
    again = LogitBasis.from_bytes(basis.to_bytes())
    assert again.digest == basis.digest
    assert again.unpacked(packed) == steps
    assert [again.unpacked([data])[0] for data in packed] == steps


def test_zeros_keep_their_signs_and_numbers_far_from_the_product_their_bits(basis):
    values = logits(basis)
    values[0, 3], values[1, 3] = -0.0, 0.0
    # None of these is among the logits from which a state is estimated.
    values[0, 7], values[1, 8], values[1, 6] = 1e-42, -1.5, 40.0
    step = stored(values)
    (found,) = basis.unpacked([basis.packed(step)])
    assert found.values == step.values


def test_the_prediction_is_an_exact_sum_whatever_the_order_of_its_terms(basis):
    """The largest whole numbers that can come together: no partial sum is rounded, so that machines cannot differ."""
    weights, _ = LogitBasis(np.full((2, 1024), np.float32(np.nextafter(1, 0)), dtype="<f4"))._whole
    high, low = np.float64(1 << 15), np.float64((1 << 14) - 1)
    for part in (high, low):
        exact = sum(int(weight) * int(part) for weight in weights[0])
        assert exact < 1 << 53
        assert float(weights[0] @ np.full(1024, part)) == exact
    one_by_one = LogitBasis(basis.rows[::-1].copy())
    whole = np.random.default_rng(5).integers(-(2**29), 2**29, (2, 48)).astype(np.int32)
    exponents = np.array([2, -3], dtype=np.int32)
    there, back = basis._predicted(whole, exponents), one_by_one._predicted(whole, exponents)[:, ::-1]
    assert there.tobytes() == back.tobytes()
    alone = np.concatenate([basis._predicted(whole[i : i + 1], exponents[i : i + 1]) for i in range(2)])
    assert there.tobytes() == alone.tobytes()


def test_what_is_no_product_with_the_matrix_is_not_packed(basis):
    values = logits(basis)
    noise = np.random.default_rng(3).normal(0.0, 3.0, values.shape)
    forbidden = values.copy()
    forbidden[0, 5] = -math.inf
    half = StoredLogits(BRANCHES, 900, 1.0, "float16", values.astype("<f2").tobytes())
    for other in (stored(noise), stored(forbidden), half, stored(values[:, :800])):
        assert basis.packed(other) is None


@pytest.mark.parametrize("damage", [lambda d: d[:-9], lambda d: d[:40] + b"\x00" * 8 + d[48:], lambda d: d + b"x"])
def test_damaged_logits_and_those_of_another_matrix_are_refused(basis, damage):
    data = basis.packed(stored(logits(basis)))
    with pytest.raises(StoredLogitsError, match="damaged"):
        basis.unpacked([damage(data)])
    with pytest.raises(StoredLogitsError, match="another matrix"):
        LogitBasis(basis.rows * 2).unpacked([data])


def test_a_model_gives_its_matrix_once_and_a_biased_layer_none():
    model = tiny_model()
    found = basis_of(model)
    assert found is basis_of(model)
    assert np.array_equal(found.rows.astype(np.float32), model.module.get_output_embeddings().weight.detach().numpy())
    other = tiny_model()
    other.module.get_output_embeddings().bias = torch.nn.Parameter(torch.zeros(other.vocabulary_size))
    assert basis_of(other) is None
