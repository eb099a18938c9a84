"""A model's forward over one new token a row, traced: the same operations without Python between them.

On a CPU most of a small model's step is spent in Python. A trace leaves that out. It holds the model's own weights, and
serves any number of rows and any length, since all shapes are read off its inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coft_core.engine.memory.fit import Fit
from coft_core.engine.memory.slots import LayerMemory, Slots
from coft_core.engine.memory.step import Part, forward

_jit: Any = torch.jit


def why_not_traced(module: Any, device: torch.device) -> str:
    """Why a model is not traced, as half a sentence; empty if it can be tried."""
    if device.type != "cpu":
        return f"nothing faster is known for {device.type}"
    if {parameter.dtype for parameter in module.parameters()} - {torch.float32, torch.bfloat16}:
        return "only float32 and bfloat16 weights are traced on a CPU"
    return ""


class TracedSteps:
    """Runs single tokens by a trace of the model's forward."""

    failure = ""

    def __init__(self, module: Any, fit: Fit, example: Part) -> None:
        """Trace.

        Args:
            module: The transformers module; its weights must not change any more.
            fit: How it is called.
            example: A token a row behind some others; what it computes is not used.

        Raises:
            RuntimeError: The forward cannot be traced.
        """
        with torch.inference_mode(), warnings.catch_warnings():
            # Tracing warns of each shape that Python reads; whether one was baked in is seen by comparing logits.
            warnings.simplefilter("ignore")
            self._run = _jit.trace(_Forward(module, fit).eval(), _inputs(example), check_trace=False, strict=False)

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether they are rows of one memory without a prefix that is held apart."""
        return len(parts) == 1 and parts[0].prefix is None

    def logits(self, parts: Sequence[Part]) -> Tensor:
        """Logits that follow each row's token, ``(R, V)``."""
        with torch.inference_mode():
            found: Tensor = self._run(*_inputs(parts[0]))
        return found


class _Forward(nn.Module):
    """The forward as a function of tensors alone: tokens, lengths, and each layer's keys and values."""

    def __init__(self, module: Any, fit: Fit) -> None:
        super().__init__()
        self.module = module
        self._fit = fit

    def forward(self, ids: Tensor, lengths: Tensor, *held: Tensor) -> Tensor:
        layers = [LayerMemory(keys, values) for keys, values in zip(held[::2], held[1::2], strict=True)]
        slots = _GivenSlots(ids.shape[0], lengths, layers)
        part = Part(slots, ids, width=held[0].shape[2])
        return forward(self.module, [part], self._fit.layers, self._fit.accepts)


class _GivenSlots(Slots):
    """Rows over tensors that are somebody else's; only what a forward over a fixed width asks for is there."""

    def __init__(self, rows: int, lengths: Tensor, layers: Sequence[LayerMemory]) -> None:
        self.rows = rows
        self.lengths = lengths
        self.layers = list(layers)

    @property
    def uniform(self) -> bool:
        """Lengths are read off the tensor."""
        return False

    @property
    def longest(self) -> int:
        """What a model is told is held; positions and masks are given to it."""
        return 0


def _inputs(part: Part) -> tuple[Tensor, ...]:
    """Tokens, lengths, and views of as many cells as the longest row needs."""
    views = [part.slots.read(index, part.cells) for index in range(len(part.slots.layers))]
    return (part.ids, part.slots.lengths, *(tensor for view in views for tensor in (view.keys, view.values)))
