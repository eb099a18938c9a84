from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.policies.fusion import check_lambda, fuse_logits, log_probabilities

logits = st.lists(st.floats(-60, 60, width=32), min_size=2, max_size=12)


@settings(derandomize=True, deadline=None)
@given(pairs=st.lists(st.tuples(st.floats(-60, 60), st.floats(-60, 60)), min_size=1), lam=st.floats(0, 1))
def test_fused_logits_interpolate_each_token(pairs: list[tuple[float, float]], lam: float) -> None:
    factual, masked = torch.tensor(pairs, dtype=torch.float64).T
    expected = [(1 - lam) * f + lam * m for f, m in pairs]
    assert fuse_logits(factual, masked, lam).tolist() == pytest.approx(expected, abs=1e-12)


def test_end_points_are_the_branches_in_at_least_single_precision_for_lambdas_in_range() -> None:
    factual, masked = torch.tensor([0.1, -torch.inf, 3.0]), torch.tensor([-torch.inf, 0.2, 5.0])
    assert torch.equal(fuse_logits(factual, masked, 0.0), factual)
    assert torch.equal(fuse_logits(factual, masked, 1.0), masked)
    fused = fuse_logits(torch.tensor([0.0, -torch.inf, 1.0]), torch.tensor([-torch.inf, 0.0, 1.0]), 0.5)
    assert fused.tolist() == [-math.inf, -math.inf, 1.0]
    generator = torch.Generator().manual_seed(0)
    factual, masked = torch.randn(2, 3, 4, 5, generator=generator)
    fused = fuse_logits(factual, masked, 0.6)
    assert fused.shape == (3, 4, 5)
    assert torch.equal(fused[1, 2], fuse_logits(factual[1, 2], masked[1, 2], 0.6))
    with pytest.raises(InvalidInputError, match=r"\(3,\) and \(1, 3\)"):
        fuse_logits(torch.zeros(3), torch.zeros(1, 3), 0.5)
    log_p = log_probabilities(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
    assert log_p.dtype == torch.float32
    assert log_p.exp().sum().item() == pytest.approx(1.0, abs=1e-6)
    for given_type, fused_type in (
        (torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):  # fmt: skip
        factual = torch.tensor([100.0, 1.0], dtype=given_type)
        masked = torch.tensor([101.0, 1.0], dtype=given_type)
        for lam in (0.0, 0.3, 1.0):
            assert fuse_logits(factual, masked, lam).dtype == fused_type
        # bfloat16 steps by 0.5 at 100: the sum must not be rounded to it.
        assert fuse_logits(factual, masked, 0.3)[0].item() == pytest.approx(100.3, abs=1e-4)
    for lam in (-0.01, 1.01, math.nan, math.inf, "0.5", None):
        with pytest.raises(InvalidInputError, match="lambda is"):
            check_lambda(lam)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="lambda is"):
            fuse_logits(torch.zeros(2), torch.zeros(2), lam)  # type: ignore[arg-type]


@settings(derandomize=True, deadline=None)
@given(values=logits, temperature=st.floats(0.1, 5))
def test_log_probabilities_are_a_distribution_with_scaled_log_odds(values: list[float], temperature: float) -> None:
    z = torch.tensor(values, dtype=torch.float64)
    log_p = log_probabilities(z, temperature)
    assert log_p.exp().sum().item() == pytest.approx(1.0)
    assert (log_p - log_p[0]).tolist() == pytest.approx(((z - z[0]) / temperature).tolist(), abs=1e-9)
