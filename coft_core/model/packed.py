"""Linear layers whose weights are also held in the order in which oneDNN multiplies a few rows by them.

A decoding step multiplies one or two rows by every matrix of a model. Over weights as they are stored two rows can cost
twice as much as one; over a copy that was rearranged once they cost the same.
"""

from __future__ import annotations

import copy
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from coft_core.model.int_weights import int_text
from coft_core.model.language_model import LanguageModel
from coft_core.model.loading import first_line
from coft_core.model.placement import ROWS, packed_product, packed_weights, packs_single_rows, why_not_packed

PACKED_BYTES = 1 << 30
"""Weights up to this are packed unless told otherwise: they are held twice."""

LEAST_WEIGHTS = 1 << 16
"""Numbers in a matrix from which packing pays for a single row, by measurement."""

_jit: Any = torch.jit
_KEPT_AS = "linear layers"


class PackedLinear(nn.Linear):
    """A linear layer over packed weights; where gradients are wanted or weights have changed, it reads its own."""

    packed: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        """Pack."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.train(linear.training)
        # Not part of the state that is saved or digested: it is made of the weights, and is no plain memory.
        self.register_buffer("packed", packed_weights(linear.weight), persistent=False)
        self._packed_from = _identity(linear.weight)
        self._single = packs_single_rows() or linear.weight.dtype is not torch.float32

    def forward(self, rows: Tensor) -> Tensor:
        """The product with the weights, ``(..., out)``."""
        if not self._usable(rows):
            return super().forward(rows)
        product: Any = _scripted_product() if _jit.is_tracing() else _product
        rows_out: Tensor = product(rows, self.packed, self.weight, self.bias, self._single)
        return rows_out

    def _usable(self, rows: Tensor) -> bool:
        return (
            self.packed is not None
            and rows.dtype == self.weight.dtype
            and not (torch.is_grad_enabled() and (rows.requires_grad or self.weight.requires_grad))
            and self._packed_from == _identity(self.weight)
        )

    def _apply(self, fn: Any, recurse: bool = True) -> PackedLinear:
        # Whatever moves or converts a module cannot convert packed weights; without them it is a plain layer.
        self.packed = self._packed_from = None
        super()._apply(fn, recurse)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Linear:
        # Packed weights cannot be copied, and a copy is made to be changed.
        copied = memo[id(self)] = _plain(self)
        copied.weight = copy.deepcopy(self.weight, memo)
        copied.bias = copy.deepcopy(self.bias, memo)
        return copied


def pack_linears(model: LanguageModel, most_bytes: int = PACKED_BYTES) -> str:
    """Pack the linear layers of a model that is held by the CPU, and remember with the model what came of it."""
    reason = _packed(model, most_bytes)
    model.keep_finding(_KEPT_AS, reason)
    return reason


def weights_text(model: LanguageModel) -> str:
    """``"weights packed"``, the bits of quantised ones, or why those that a CPU holds are plain; else empty."""
    if integers := int_text(model.module):
        return integers
    if packed_bytes(model.module):
        return "weights packed"
    reason = model.finding(_KEPT_AS)
    return f"weights plain ({reason})" if reason is not None and model.device.type == "cpu" else ""


def _packed(model: LanguageModel, most_bytes: int) -> str:
    linears = [
        (parent, name, child)
        for parent in model.module.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and child.weight.numel() >= LEAST_WEIGHTS and not child.weight.is_inference()
    ]
    if reason := _why_not(model, [child for _, _, child in linears], most_bytes):
        return reason
    try:
        layers = [PackedLinear(child) for _, _, child in linears]
    except RuntimeError as error:
        # The processor packs this type; whether there is room for a second copy is known only by trying.
        return f"oneDNN does not pack them here ({first_line(error)})"
    if not all(_agrees(layer) for layer in layers):
        return "oneDNN gives other products here"
    for (parent, name, _), layer in zip(linears, layers, strict=True):
        setattr(parent, name, layer)
    return ""


def packed_bytes(module: nn.Module) -> int:
    """Bytes that packed weights hold besides the weights."""
    return sum(
        child.weight.nbytes
        for child in module.modules()
        if isinstance(child, PackedLinear) and child.packed is not None
    )


def _product(rows: Tensor, packed: Tensor, weight: Tensor, bias: Tensor | None, single: bool) -> Tensor:
    """The product by packed weights, for one row only where ``single`` says so."""
    if not single and rows.numel() == rows.shape[-1]:
        return nn.functional.linear(rows, weight, bias)
    return packed_product(rows, packed, bias)


@cache
def _scripted_product() -> Any:
    """The same for traces, which cannot write down choices and empty lists, as scripts can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return _jit.script(_product)


def _why_not(model: LanguageModel, layers: list[nn.Linear], most_bytes: int) -> str:
    if model.places != ("cpu",) or model.quantization != "none":
        return "only plain weights in the CPU's memory are packed"
    if not layers:
        return "the model has no linear layers of a size that pays"
    if reasons := sorted({why_not_packed(layer.weight.dtype) for layer in layers} - {""}):
        return reasons[0]
    size = sum(layer.weight.nbytes for layer in layers)
    if size > most_bytes:
        return f"weights of {size / 1e9:.1f} GB would be held twice"
    return ""


@torch.inference_mode()
def _agrees(layer: PackedLinear) -> bool:
    """Whether packed and plain weights give the same products of as many rows as a step has."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(ROWS, layer.in_features, generator=generator).to(layer.weight.dtype)  # (2, in)
    expected = nn.functional.linear(rows, layer.weight, layer.bias).float()  # (2, out)
    tolerance = 1e-4 if layer.weight.dtype == torch.float32 else 0.05
    return bool((layer(rows).float() - expected).abs().max() <= tolerance * expected.abs().max().clamp_min(1.0))


def _identity(weight: Tensor) -> tuple[int, int] | None:
    """What changes when a weight is written or replaced; None where writing leaves no trace."""
    return None if weight.is_inference() else (weight.data_ptr(), weight._version)


def _plain(layer: nn.Linear) -> nn.Linear:
    with torch.device("meta"):
        linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    linear.weight, linear.bias = layer.weight, layer.bias
    return linear.train(layer.training)
