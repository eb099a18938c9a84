"""What the processor can do, asked of PyTorch once for each number type; nothing else may depend on the machine."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

PACKED_TYPES = (torch.float32, torch.bfloat16)
"""Number types for which oneDNN has an order of its own for weights."""

ROWS = 2
"""Rows for which oneDNN chooses the order: the branches of an audit."""

NATIVE_BFLOAT16 = ("avx512_bf16", "amx_bf16")
"""Processor features with which 16-bit products are no slower than 32-bit ones (measured by ``bench.dtypes``)."""

_TRIED = 16
_backends: Any = torch.backends
_onednn: Any = torch.ops.mkldnn


def packed_weights(weight: Tensor) -> Tensor:
    """Weights ``(out, in)`` in the order in which oneDNN multiplies a few rows by them.

    Raises:
        RuntimeError: oneDNN cannot hold these weights.
    """
    packed: Tensor = _onednn._reorder_linear_weight(weight.detach(), ROWS)
    return packed


def packed_product(rows: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """The product of rows ``(..., in)`` with packed weights, ``(..., out)``."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return found


@cache
def why_not_packed(dtype: torch.dtype) -> str:
    """Why weights of a number type are not packed on this processor, as half a sentence; empty if they are.

    A small product is tried once: which processors oneDNN packs for is known only so.
    """
    if not _backends.mkldnn.is_available():
        return "this build of PyTorch has no oneDNN"
    if dtype not in PACKED_TYPES:
        return "only float32 and bfloat16 weights are packed"
    name = str(dtype).removeprefix("torch.")
    # Whole numbers as small as these are exact in every type.
    weight = (torch.arange(_TRIED * _TRIED).reshape(_TRIED, _TRIED) % 7 - 3).to(dtype)
    rows = (torch.arange(ROWS * _TRIED).reshape(ROWS, _TRIED) % 5 - 2).to(dtype)
    try:
        with torch.inference_mode():
            exact = torch.equal(packed_product(rows, packed_weights(weight), None), rows @ weight.T)
    except RuntimeError:
        return f"oneDNN does not pack {name} weights on this processor"
    return "" if exact else f"oneDNN multiplies packed {name} weights wrongly on this processor"


@cache
def multiplies_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 by itself, and oneDNN has it do so."""
    if not _backends.mkldnn.is_available() or not _onednn._is_mkldnn_bf16_supported():
        return False
    features = torch.cpu.get_capabilities()
    return any(features.get(name, False) for name in NATIVE_BFLOAT16)
