"""A model's forward over one new token a row, captured as a CUDA graph for the memories that it runs on.

A graph finds its tensors where they were when it was captured. Tokens are copied into a place of its own; keys, values
and lengths stay where the rows' memory is until that grows, and then another graph is captured. Sessions that share
forwards have a graph for all of them together, as long as the same ones meet. Capturing takes as long as a few eager
steps, so memories that are stepped, or meet, only once or twice never have one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from coft_core.engine.compiled_function import WARM_UPS, first_line
from coft_core.engine.memory.fit import Fit
from coft_core.engine.memory.slots import Slots
from coft_core.engine.memory.step import Part, Prefix, forward

_cuda: Any = torch.cuda

EAGER_STEPS = 2
"""Steps of some memories that run eagerly before their graph is captured."""

MOST_GRAPHS = 64
"""Memories, and sets of them, that are known at a time; the one unused for longest is forgotten."""


@dataclass(slots=True)
class _Graph:
    """A captured forward, or memories that have not been stepped together often enough for one.

    Attributes:
        parts: Each memory, its capacity (it moves when that grows), and what stands before its rows.
        seen: Eager steps so far.
        ids: Where the graph reads its tokens, ``(R, 1)``.
        logits: Where it writes, ``(R, V)``.
        graph: The graph.
    """

    parts: tuple[tuple[ref[Slots], int, Prefix | None], ...]
    seen: int = 0
    ids: Tensor | None = None
    logits: Tensor | None = None
    graph: Any = None

    def is_of(self, parts: Sequence[Part]) -> bool:
        """Whether these are the memories, and still where they were."""
        return all(
            own() is part.slots and capacity == part.slots.capacity and prefix is part.prefix
            for (own, capacity, prefix), part in zip(self.parts, parts, strict=True)
        )

    @property
    def gone(self) -> bool:
        """Whether one of the memories is no longer there."""
        return any(own() is None for own, _, _ in self.parts)


class GraphSteps:
    """Runs single tokens by graphs, one for each memory or set of memories; graphs go when their memories do.

    Attributes:
        failure: Why no further graph is captured; empty while they are.
    """

    def __init__(self, module: Any, fit: Fit, eager_steps: int = EAGER_STEPS) -> None:
        """Capture nothing yet.

        Args:
            module: The transformers module.
            fit: How it is called.
            eager_steps: Steps of some memories that run eagerly before their graph is captured.
        """
        self._module, self._fit, self._eager_steps = module, fit, eager_steps
        self._graphs: OrderedDict[tuple[int, ...], _Graph] = OrderedDict()
        self._pool: Any = None
        self.failure = ""

    def takes(self, parts: Sequence[Part]) -> bool:
        """Any parts: those that have no graph yet run eagerly, or get one."""
        return True

    def logits(self, parts: Sequence[Part]) -> Tensor:
        """Logits that follow each row's token, ``(R, V)``; the caller's own."""
        own = self._known(parts)
        if own.graph is None and own.seen >= self._eager_steps and not self.failure:
            try:
                self._capture(own, parts)
            except RuntimeError as error:
                # A device that is full can still step eagerly; the path says that it does.
                self.failure = first_line(error)
        if own.graph is None:
            own.seen += 1
            return forward(self._module, parts, self._fit.layers, self._fit.accepts)
        return _replay(own, torch.cat([part.ids for part in parts]))

    def _known(self, parts: Sequence[Part]) -> _Graph:
        key = tuple(id(part.slots) for part in parts)
        own = self._graphs.get(key)
        if own is None or not own.is_of(parts):
            for other in [other for other, graph in self._graphs.items() if graph.gone]:
                del self._graphs[other]
            own = _Graph(tuple((ref(part.slots), part.slots.capacity, part.prefix) for part in parts))
            self._graphs[key] = own
        self._graphs.move_to_end(key)
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return own

    @torch.inference_mode()
    def _capture(self, own: _Graph, parts: Sequence[Part]) -> None:
        own.ids = torch.cat([part.ids for part in parts])  # (R, 1)
        given = torch.split(own.ids, [part.slots.rows for part in parts])
        fixed = [
            Part(part.slots, ids, part.prefix, part.slots.capacity) for part, ids in zip(parts, given, strict=True)
        ]
        stream = _cuda.Stream()
        stream.wait_stream(_cuda.current_stream())
        with _cuda.stream(stream):
            # The rows' lengths stay as they are, so that writing the same cells several times changes nothing.
            for _ in range(WARM_UPS):
                forward(self._module, fixed, self._fit.layers, self._fit.accepts)
        _cuda.current_stream().wait_stream(stream)
        graph = _cuda.CUDAGraph()
        # Graphs never run at the same time and share their memory. Other threads may use the device meanwhile.
        with _cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            own.logits = forward(self._module, fixed, self._fit.layers, self._fit.accepts)
        own.graph, self._pool = graph, graph.pool()


@torch.inference_mode()
def _replay(own: _Graph, ids: Tensor) -> Tensor:
    if own.graph is None or own.ids is None or own.logits is None:
        raise ValueError("These memories have no graph yet.")
    own.ids.copy_(ids)
    own.graph.replay()
    return own.logits.clone()
