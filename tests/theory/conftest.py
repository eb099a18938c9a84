"""Random pairs of branches, in float64 so that only the mathematics is tested."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


@pytest.fixture
def branches() -> tuple[Tensor, Tensor]:
    """Factual and masked logits of 300 steps over 40 tokens, from nearly equal to far apart: each (300, 40)."""
    return random_branches(300, 40, seed=20)


def random_branches(steps: int, tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    factual = 3 * torch.randn(steps, tokens, generator=generator, dtype=torch.float64)  # (S, V)
    spread = torch.logspace(-3, 0.7, steps, dtype=torch.float64)[:, None]  # (S, 1)
    masked = factual + spread * torch.randn(steps, tokens, generator=generator, dtype=torch.float64)  # (S, V)
    # A branch's logits are known up to a constant only, and nothing may depend on it.
    offset = 10 * torch.randn(steps, 1, generator=generator, dtype=torch.float64)  # (S, 1)
    return factual, masked + offset
