"""Random pairs of branches, in float64 so that only the mathematics is tested."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def branches():
    """Factual and masked logits, from nearly equal to far apart: (300, 40) each."""
    steps, tokens = 300, 40
    generator = torch.Generator().manual_seed(20)
    factual = 3 * torch.randn(steps, tokens, generator=generator, dtype=torch.float64)  # (S, V)
    spread = torch.logspace(-3, 0.7, steps, dtype=torch.float64)[:, None]  # (S, 1)
    masked = factual + spread * torch.randn(steps, tokens, generator=generator, dtype=torch.float64)  # (S, V)
    # A branch's logits are known up to a constant only, and nothing may depend on it.
    offset = 10 * torch.randn(steps, 1, generator=generator, dtype=torch.float64)  # (S, 1)
    return factual, masked + offset
