"""A model's forward over one new token a row, traced: the same operations without Python between them.

On a CPU most of a small model's step is spent in Python. A trace leaves that out. It holds the model's own weights, and
serves any number of rows and any length, since all shapes are read off its inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coft_core.engine.memory.fit import Fit
from coft_core.engine.memory.slots import LayerMemory, Slots
from coft_core.engine.memory.step import Part, forward

_torch: Any = torch._C


def why_not_traced(module: Any, device: torch.device) -> str:
    """Why a model is not traced, as half a sentence; empty if it can be tried."""
    if device.type != "cpu":
        return f"nothing faster is known for {device.type}"
    if {parameter.dtype for parameter in module.parameters()} - {torch.float32, torch.bfloat16}:
        return "only float32 and bfloat16 weights are traced on a CPU"
    return ""


class TracedSteps:
    """Runs single tokens by a trace of the model's forward.

    ``torch.jit.trace`` enters what it makes in a table of the process, which nothing is ever taken out of. This trace
    is a function of its own over the weights as inputs, so that it goes with the model.
    """

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
        self._layers = fit.layers
        self._weights = (*module.parameters(), *module.buffers())
        given = _inputs(example)

        def run(*tensors: Tensor) -> Tensor:
            # The weights behind the inputs are known to the tracer by being the module's own tensors.
            return _forward(module, fit, tensors[: len(given)])

        with torch.inference_mode(), warnings.catch_warnings():
            # Tracing warns of each shape that Python reads; whether one was baked in is seen by comparing logits.
            warnings.simplefilter("ignore")
            graph, _ = _torch._create_graph_by_tracing(run, (*given, *self._weights), lambda _: "", False, False)
        self._run = _torch._create_function_from_graph("step", graph)

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether they are rows of one memory that holds tokens already, without a prefix that is held apart.

        A prompt of one token is a single token as well, but before it there are no keys and values to begin with.
        """
        return len(parts) == 1 and parts[0].prefix is None and len(parts[0].slots.layers) == self._layers

    def logits(self, parts: Sequence[Part]) -> Tensor:
        """Logits that follow each row's token, ``(R, V)``."""
        with torch.inference_mode():
            found: Tensor = self._run(*_inputs(parts[0]), *self._weights)
        return found


def _forward(module: Any, fit: Fit, given: Sequence[Tensor]) -> Tensor:
    """The forward as a function of tensors alone: tokens, lengths, and each layer's keys and values."""
    ids, lengths, *held = given
    layers = [LayerMemory(keys, values) for keys, values in zip(held[::2], held[1::2], strict=True)]
    part = Part(_GivenSlots(ids.shape[0], lengths, layers), ids, width=held[0].shape[2])
    return forward(module, [part], fit.layers, fit.accepts)


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
