"""A model's forward over one new token a row, captured as a CUDA graph for the memory that it runs on.

A graph finds its tensors where they were when it was captured. Tokens are copied into a place of its own; keys, values
and lengths stay where the rows' memory is until that grows, and then another graph is captured. Capturing takes as long
as a few eager steps, so memories that are stepped only once or twice never have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from coft_core.engine.compiled_function import WARM_UPS, first_line
from coft_core.engine.memory.fit import Fit
from coft_core.engine.memory.slots import Slots
from coft_core.engine.memory.step import Part, Prefix, forward

_cuda: Any = torch.cuda

EAGER_STEPS = 2
"""Steps of a memory that run eagerly before its graph is captured."""


@dataclass(slots=True)
class _Graph:
    """A captured forward, or a memory that has not been stepped often enough for one.

    Attributes:
        capacity: Capacity of the memory, which moves when it grows.
        prefix: What stands before the rows.
        seen: Eager steps so far.
        ids: Where the graph reads its tokens, ``(R, 1)``.
        logits: Where it writes, ``(R, V)``.
        graph: The graph.
    """

    capacity: int
    prefix: Prefix | None
    seen: int = 0
    ids: Tensor | None = None
    logits: Tensor | None = None
    graph: Any = None

    def is_of(self, part: Part) -> bool:
        """Whether the memory is still where it was."""
        return self.capacity == part.slots.capacity and self.prefix is part.prefix


class GraphSteps:
    """Runs single tokens by graphs, one for each memory; graphs go when their memories do.

    Attributes:
        failure: Why no further graph is captured; empty while they are.
    """

    def __init__(self, module: Any, fit: Fit, eager_steps: int = EAGER_STEPS) -> None:
        """Capture nothing yet.

        Args:
            module: The transformers module.
            fit: How it is called.
            eager_steps: Steps of a memory that run eagerly before its graph is captured.
        """
        self._module, self._fit, self._eager_steps = module, fit, eager_steps
        self._graphs: WeakKeyDictionary[Slots, _Graph] = WeakKeyDictionary()
        self.failure = ""

    def takes(self, part: Part) -> bool:
        """Any part: one that has no graph yet runs eagerly, or gets one."""
        return True

    def logits(self, part: Part) -> Tensor:
        """Logits that follow each row's token, ``(R, V)``; the caller's own."""
        own = self._graphs.get(part.slots)
        if own is None or not own.is_of(part):
            own = self._graphs[part.slots] = _Graph(part.slots.capacity, part.prefix)
        if own.graph is None and own.seen >= self._eager_steps and not self.failure:
            try:
                self._capture(own, part)
            except RuntimeError as error:
                # A device that is full can still step eagerly; the path says that it does.
                self.failure = first_line(error)
        if own.graph is None:
            own.seen += 1
            return forward(self._module, [part], self._fit.layers, self._fit.accepts)
        return _replay(own, part.ids)

    @torch.inference_mode()
    def _capture(self, own: _Graph, part: Part) -> None:
        own.ids = part.ids.clone()
        fixed = Part(part.slots, own.ids, part.prefix, part.slots.capacity)
        stream = _cuda.Stream()
        stream.wait_stream(_cuda.current_stream())
        with _cuda.stream(stream):
            # The rows' lengths stay as they are, so that writing the same cells several times changes nothing.
            for _ in range(WARM_UPS):
                forward(self._module, [fixed], self._fit.layers, self._fit.accepts)
        _cuda.current_stream().wait_stream(stream)
        graph = _cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        with _cuda.graph(graph, capture_error_mode="thread_local"):
            own.logits = forward(self._module, [fixed], self._fit.layers, self._fit.accepts)
        own.graph = graph


@torch.inference_mode()
def _replay(own: _Graph, ids: Tensor) -> Tensor:
    if own.graph is None or own.ids is None or own.logits is None:
        raise ValueError("This memory has no graph yet.")
    own.ids.copy_(ids)
    own.graph.replay()
    return own.logits.clone()
