"""Faster ways to run one new token a row through a model, prepared on request and described in words.

On CUDA the forward of a row's memory is captured as a graph, so that a step launches one thing and not a thousand. On a
CPU the forward is traced, so that a step of a small model is not spent in Python. Neither is used before
:func:`prepare` has seen that it gives the logits of the eager forward; where it does not, the eager forward stays and
:func:`path_of` says why.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor

from coft_core.model.attention import Part, Prefix, forward
from coft_core.model.int_weights import int_layers
from coft_core.model.language_model import LanguageModel
from coft_core.model.loading import first_line
from coft_core.model.memory_fit import Fit, fit_of
from coft_core.model.slots import LayerMemory, Slots

_cuda: Any = torch.cuda

WARM_UPS = 2
"""Runs before a capture: libraries choose their kernels and allocate on first use, neither of which can be captured."""

EAGER_STEPS = 2
"""Steps of some memories that run eagerly before their graph is captured."""

MOST_GRAPHS = 64
"""Memories, and sets of them, that are known at a time; the one unused for longest is forgotten."""


@dataclass(slots=True)
class _Graph:
    """A captured forward, or memories that have not been stepped together often enough for one."""

    # Each memory, its capacity (it moves when that grows), and what stands before its rows.
    parts: tuple[tuple[ref[Slots], int, Prefix | None], ...]
    seen: int = 0  # eager steps so far
    # Once there is a graph: where it reads its tokens, (R, 1), and writes, (R, V).
    ids: Any = None
    logits: Any = None
    graph: Any = None

    def is_of(self, parts: Sequence[Part]) -> bool:
        """Whether these are the memories, and still where they were."""
        return all(
            memory() is part.slots and capacity == part.slots.capacity and prefix is part.prefix
            for (memory, capacity, prefix), part in zip(self.parts, parts, strict=True)
        )


class GraphSteps:
    """Runs single tokens by graphs, one for each memory or set of memories."""

    def __init__(self, module: Any, fit: Fit) -> None:
        self._module, self._fit = module, fit
        self._graphs: OrderedDict[tuple[int, ...], _Graph] = OrderedDict()
        self._pool = GraphPool()
        self.failure = ""

    def takes(self, parts: Sequence[Part]) -> bool:
        """Any parts: those that have no graph yet run eagerly, or get one."""
        return True

    def logits(self, parts: Sequence[Part]) -> Tensor:
        """Logits that follow each row's token, ``(R, V)``; the caller's own."""
        known = self._known(parts)
        if known.graph is None and known.seen >= EAGER_STEPS and not self.failure:
            try:
                self._capture(known, parts)
            except RuntimeError as error:
                # A device that is full can still step eagerly; the path says that it does.
                self.failure = first_line(error)
        if known.graph is None:
            known.seen += 1
            return forward(self._module, parts, self._fit.layers, self._fit.accepts)
        return _replay(known, torch.cat([part.ids for part in parts]))

    def _known(self, parts: Sequence[Part]) -> _Graph:
        key = tuple(id(part.slots) for part in parts)
        known = self._graphs.get(key)
        if known is None or not known.is_of(parts):
            # Graphs go with their memories.
            gone = [own for own, graph in self._graphs.items() if any(memory() is None for memory, _, _ in graph.parts)]
            for own in gone:
                del self._graphs[own]
            known = _Graph(tuple((ref(part.slots), part.slots.capacity, part.prefix) for part in parts))
            self._graphs[key] = known
        self._graphs.move_to_end(key)
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return known

    @torch.inference_mode()
    def _capture(self, captured: _Graph, parts: Sequence[Part]) -> None:
        captured.ids = torch.cat([part.ids for part in parts])  # (R, 1)
        ids_of_parts = torch.split(captured.ids, [part.slots.rows for part in parts])
        fixed = [
            Part(part.slots, ids, part.prefix, part.slots.capacity)
            for part, ids in zip(parts, ids_of_parts, strict=True)
        ]
        # The rows' lengths stay as they are, so that writing the same cells several times changes nothing.
        run = partial(forward, self._module, fixed, self._fit.layers, self._fit.accepts)
        captured.graph, captured.logits = self._pool.record(run, captured.ids.device)


class GraphPool:
    """CUDA graphs that share memory and never run at the same time."""

    def __init__(self) -> None:
        self._first: Any = None

    def record(self, run: Callable[[], Tensor], device: torch.device) -> tuple[Any, Tensor]:
        """Capture a function as a graph, and give the graph with the tensor that replays write."""
        if self._first is None:
            # PyTorch gives up the memory with the last graph that uses it and then refuses to capture into it, so that
            # one graph stays that is never run.
            self._first, _ = _record(lambda: torch.zeros(1, device=device), None)
        return _record(run, self._first.pool())


def _record(run: Callable[[], Tensor], pool: Any) -> tuple[Any, Tensor]:
    stream = _cuda.Stream()
    stream.wait_stream(_cuda.current_stream())
    with _cuda.stream(stream):
        for _ in range(WARM_UPS):
            run()
    _cuda.current_stream().wait_stream(stream)
    graph = _cuda.CUDAGraph()
    # Other threads may use the device meanwhile.
    with _cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        return graph, run()


@torch.inference_mode()
def _replay(captured: _Graph, ids: Tensor) -> Tensor:
    captured.ids.copy_(ids)
    captured.graph.replay()
    logits: Tensor = captured.logits.clone()
    return logits


_torch: Any = torch._C


class TracedSteps:
    """Runs single tokens by a trace of the model's forward.

    ``torch.jit.trace`` enters what it makes in a table of the process for good. This trace is a function over the
    weights as inputs, so that it goes with the model.
    """

    failure = ""

    def __init__(self, module: Any, fit: Fit, example: Part) -> None:
        """Trace."""
        self._layers = fit.layers
        self._weights = (*module.parameters(), *module.buffers())
        inputs = _inputs(example)

        def run(*tensors: Tensor) -> Tensor:
            # The weights behind the inputs are known to the tracer by being the module's own tensors.
            return _forward(module, fit, tensors[: len(inputs)])

        with torch.inference_mode(), warnings.catch_warnings():
            # Tracing warns of each shape that Python reads; whether one was baked in is seen by comparing logits.
            warnings.simplefilter("ignore")
            graph, _ = _torch._create_graph_by_tracing(run, (*inputs, *self._weights), lambda _: "", False, False)
        self._run = _torch._create_function_from_graph("step", graph)

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether they are rows of one memory that holds tokens already, without a prefix that is held apart.

        A prompt of one token is a single token as well, but before it there are no keys and values to begin with.
        """
        return len(parts) == 1 and parts[0].prefix is None and len(parts[0].slots.layers) == self._layers

    def logits(self, parts: Sequence[Part]) -> Tensor:
        """Logits that follow each row's token, ``(R, V)``."""
        with torch.inference_mode():
            logits: Tensor = self._run(*_inputs(parts[0]), *self._weights)
        return logits


def _forward(module: Any, fit: Fit, inputs: Sequence[Tensor]) -> Tensor:
    """The forward as a function of tensors alone: tokens, lengths, and each layer's keys and values."""
    ids, lengths, *held = inputs
    layers = [LayerMemory(keys, values) for keys, values in zip(held[::2], held[1::2], strict=True)]
    part = Part(_GivenSlots(ids.shape[0], lengths, layers), ids, width=held[0].shape[2])
    return forward(module, [part], fit.layers, fit.accepts)


class _GivenSlots(Slots):
    """Rows over tensors that are somebody else's; only what a forward over a fixed width asks for is there."""

    def __init__(self, rows: int, lengths: Tensor, layers: Sequence[LayerMemory]) -> None:
        self.rows, self.lengths, self.layers = rows, lengths, list(layers)
        # Lengths are read off the tensor; positions and masks are given to the model.
        self.uniform, self.longest = False, 0


def _inputs(part: Part) -> tuple[Tensor, ...]:
    """Tokens, lengths, and views of as many cells as the longest row needs."""
    views = [part.slots.read(index, part.cells) for index in range(len(part.slots.layers))]
    return (part.ids, part.slots.lengths, *(tensor for view in views for tensor in (view.keys, view.values)))


PathName = Literal["CUDA graph", "traced", "eager"]
Progress = Callable[[float, str], None]
"""Told how much is done, 0 to 1, and what is being done."""

_KEPT_AS = "step path"
_PROBE_ROWS = ((7, 7), (5,))
"""Lengths of the rows on which a path must agree with the eager forward: another number of rows, other lengths."""


Steps = GraphSteps | TracedSteps
"""Runs one new token a row; the rows' lengths stay as they are."""


@dataclass(frozen=True, slots=True)
class StepPath:
    """How single tokens are run."""

    name: PathName
    reason: str = ""
    steps: Steps | None = None

    @property
    def text(self) -> str:
        """In words, as status lines show it: ``"CUDA graph"``, ``"traced"`` or ``"eager: <why>"``."""
        if self.steps is not None and self.steps.failure:
            return f"{self.name}, eager where there is none yet: {self.steps.failure}"
        return f"{self.name}: {self.reason}" if self.reason else self.name


NOT_PREPARED = StepPath("eager", "no faster path has been prepared")


def path_of(model: LanguageModel) -> StepPath:
    """The path that runs a model's single tokens."""
    return model.finding(_KEPT_AS) or NOT_PREPARED


def prepare(model: LanguageModel, progress: Progress | None = None) -> StepPath:
    """Make the fastest path of a model that gives the eager forward's logits, in some seconds; use it from then on."""
    report = progress or (lambda share, what: None)
    report(0.0, "Looking at the model's memory")
    fit = fit_of(model)
    if reason := _why_eager(model, fit):
        path = StepPath("eager", reason)
    elif model.device.type == "cuda":
        report(0.2, "Capturing a step as a CUDA graph")
        path = _tried(model, fit, "CUDA graph", lambda: GraphSteps(model.module, fit), report)
    else:
        report(0.2, "Tracing a step")
        path = _tried(model, fit, "traced", lambda: TracedSteps(model.module, fit, _probe(model, fit, (6, 6))), report)
    model.keep_finding(_KEPT_AS, path)
    report(1.0, f"Steps run {path.text}")
    return path


def step_logits(model: LanguageModel, parts: Sequence[Part], fit: Fit, prepared: bool = True) -> Tensor:
    """Logits that follow each row's last token, ``(R, V)``, by the path that was prepared where it takes the parts."""
    steps = path_of(model).steps if prepared else None
    if steps is not None and all(part.ids.shape[1] == 1 for part in parts) and steps.takes(parts):
        return steps.logits(parts)
    return forward(model.module, parts, fit.layers, fit.accepts)


def _why_eager(model: LanguageModel, fit: Fit) -> str:
    """Why nothing faster can be tried, as half a sentence; empty if it can."""
    if fit.kind != "slots":
        return fit.reason
    parameters = list(model.module.parameters())
    if len(model.places) > 1 or len({parameter.device for parameter in parameters}) > 1:
        return "the model is spread over several devices"
    if model.quantization != "none" and not int_layers(model.module):
        return f"the weights are quantised ({model.quantization})"
    if model.device.type not in ("cuda", "cpu"):
        return f"nothing faster is known for {model.device.type}"
    if model.device.type == "cpu" and {parameter.dtype for parameter in parameters} - {torch.float32, torch.bfloat16}:
        return "only float32 and bfloat16 weights are traced on a CPU"
    return ""


def _tried(model: LanguageModel, fit: Fit, name: PathName, build: Callable[[], Steps], report: Progress) -> StepPath:
    """The path if it can be made and agrees with the eager forward, else the eager one with what was wrong."""
    try:
        steps = build()
        report(0.6, "Comparing it with the eager forward")
        agree = all(_agrees(steps, _probe(model, fit, lengths), model, fit) for lengths in _PROBE_ROWS)
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        # Which operations an architecture uses that can be neither traced nor captured is known only by trying, and so
        # is whether this PyTorch has what tracing needs.
        return StepPath("eager", f"a faster path failed ({first_line(error)})")
    if steps.failure:
        return StepPath("eager", f"a faster path failed ({steps.failure})")
    if not agree:
        return StepPath("eager", "a faster path gave other logits")
    return StepPath(name, steps=steps)


def _agrees(steps: Steps, part: Part, model: LanguageModel, fit: Fit) -> bool:
    expected = forward(model.module, [part], fit.layers, fit.accepts).float()  # (R, V)
    # A memory has a graph only after some steps, and a trace is optimised in its first ones.
    for _ in range(EAGER_STEPS + 2):
        logits = steps.logits([part]).float()
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.1
    return bool((logits - expected).abs().max() <= tolerance * (1.0 + expected.abs().max()))


def _probe(model: LanguageModel, fit: Fit, lengths: Sequence[int]) -> Part:
    """A token to run behind rows of some lengths, which hold arbitrary tokens."""
    ids = model.arbitrary_tokens(len(lengths), max(lengths) + 1, seed=sum(lengths)).to(model.device)
    slots = Slots(len(lengths), model.context_length, model.device)
    slots.reserve(ids.shape[1])
    forward(model.module, [Part(slots, ids[:, :-1])], fit.layers, fit.accepts)
    slots.settle(lengths)
    return Part(slots, ids[:, -1:])
