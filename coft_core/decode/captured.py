"""A step's numbers on the host: copied there, or made by one captured function of the step's logits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from coft_core.model.compiled import GraphPool, Progress, path_of, prepare
from coft_core.model.language_model import LanguageModel
from coft_core.model.loading import first_line
from coft_core.model.packed import weights_text
from coft_core.policies.base import Views

if TYPE_CHECKING:
    from coft_core.decode.decide import StepForm

CUDA_GRAPH = "CUDA graph"
MOST_FUNCTIONS = 48
"""Functions that are held; the one unused for longest goes first."""

_KEPT_AS = "step functions"
_cuda: Any = torch.cuda

TensorFunction = Callable[..., Tensor]
"""Takes tensors and returns one; reads nothing else that changes, and waits for no device."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """All that a step says, on the host."""

    views: Views
    rows: list[list[float]]
    kept: list[bytes]


def to_host(views: Views, packed: Tensor, kept: Tensor | None) -> Numbers:
    """What a step's packed rows ``(G, N)`` float32 and kept logits ``(G, M)`` bytes say, on the host."""
    if kept is None:
        return Numbers(views, packed.tolist(), [b""] * len(packed))
    # They cross as one, since two transfers would wait for the device twice.
    size = packed.shape[-1] * packed.element_size()
    data = torch.cat([packed.contiguous().view(torch.uint8), kept], dim=-1).cpu().numpy()  # (G, 4 N + M)
    rows = [np.frombuffer(row[:size].tobytes(), dtype=np.float32).tolist() for row in data]
    return Numbers(views, rows, [row[size:].tobytes() for row in data])


class CapturedFunction:
    """Runs a function as a CUDA graph over inputs of its own, with a pinned output, so that one wait does."""

    def __init__(self, function: TensorFunction, inputs: Sequence[Tensor], pool: GraphPool) -> None:
        """Capture; the function is run a few times on copies of the inputs."""
        self._lock = Lock()
        with torch.inference_mode():
            self._inputs = tuple(tensor.clone() for tensor in inputs)
            output = function(*self._inputs)
            self._host = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)

            def run() -> Tensor:
                return self._host.copy_(function(*self._inputs), non_blocking=True)

            self._graph, _ = pool.record(run, output.device)
        self._done = _cuda.Event()

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> Tensor:
        """The result on the host, the caller's own."""
        with self._lock:
            for held, given in zip(self._inputs, inputs, strict=True):
                held.copy_(given, non_blocking=True)
            self._graph.replay()
            self._done.record()
            self._done.synchronize()
            return self._host.clone()


class StepFunctions:
    """The steps of one model as one captured function each, made when they are first needed."""

    def __init__(self) -> None:
        self.failure = ""
        self.functions: OrderedDict[Hashable, tuple[Views, int, Callable[..., Tensor]]] = OrderedDict()
        self._pool = GraphPool()
        self._lock = Lock()

    def numbers(self, form: StepForm, logits: Tensor, draws: Tensor, forced: Tensor | None) -> Numbers | None:
        """A step's numbers; None where it is not one function of tensors, or none could be made."""
        if self.failure or form.policy.form is None:
            return None
        if forced is None:
            forced = torch.full(draws.shape, -1, device=logits.device)  # (G,)
        key = (form.key, logits.shape, logits.dtype)
        with self._lock:
            try:
                function = self.functions.get(key) or self._make(form, logits, draws, forced)
            except RuntimeError as error:
                # What a device cannot capture is known only by trying; the eager operations are always there.
                self.failure = first_line(error)
                return None
            self.functions[key] = function
            self.functions.move_to_end(key)
            while len(self.functions) > MOST_FUNCTIONS:
                self.functions.popitem(last=False)
        views, width, run = function
        data = run(logits, draws, forced).numpy().tobytes()
        count = width * len(draws)
        rows = np.frombuffer(data, dtype=np.float32, count=count).reshape(len(draws), width).tolist()
        if form.keeper is None:
            return Numbers(views, rows, [b""] * len(rows))
        kept = np.frombuffer(data, dtype=np.uint8, offset=4 * count).reshape(len(draws), -1)  # (G, M)
        return Numbers(views, rows, [row.tobytes() for row in kept])

    def _make(
        self, form: StepForm, logits: Tensor, draws: Tensor, forced: Tensor
    ) -> tuple[Views, int, Callable[..., Tensor]]:
        def whole(logits: Tensor, draws: Tensor, forced: Tensor) -> Tensor:
            packed, kept = form.tensors(logits, draws, forced, form.views(logits))
            data = packed.flatten().view(torch.uint8)
            return data if kept is None else torch.cat([data, kept.flatten()])

        run = CapturedFunction(whole, (logits, draws, forced), self._pool)
        with torch.inference_mode():
            views = form.views(logits)
            packed, _ = form.tensors(logits, draws, forced, views)
        return _without_tensors(views), packed.shape[-1], run


def prepare_model(model: LanguageModel, progress: Progress | None = None) -> str:
    """Make the fastest ways to decode with a model that give its eager results, and use them from then on."""
    if prepare(model, progress).name == CUDA_GRAPH:
        capture_steps(model)
    return path_text(model)


def path_text(model: LanguageModel) -> str:
    """How a model's steps run: ``"CUDA graph"``, ``"traced"`` or ``"eager: <why>"``, and on a CPU its weights' form."""
    if model.engine is not None:
        return model.engine.title
    functions, text = step_functions(model), path_of(model).text
    if weights := weights_text(model):
        text += f"; {weights}"
    return f"{text}, its diagnostics eager: {functions.failure}" if functions and functions.failure else text


def capture_steps(model: LanguageModel) -> StepFunctions:
    """Have the steps of a model run as one captured function each from now on."""
    functions = model.findings[_KEPT_AS] = StepFunctions()
    return functions


def step_functions(model: LanguageModel) -> StepFunctions | None:
    """The functions of a model; None where its steps run eagerly."""
    functions: StepFunctions | None = model.findings.get(_KEPT_AS)
    return functions


def _without_tensors(views: Views) -> Views:
    """Views of which only numbers and names are left."""
    nothing = torch.empty(0)
    families = tuple(replace(view, log_p=nothing, certified=None) for view in views.families)
    tensors: dict[str, Any] = {
        item.name: nothing for item in fields(Views) if isinstance(getattr(views, item.name), Tensor)
    }
    return replace(views, **tensors, families=families)
