"""A step from logits to bytes for the host: as eager operations, or as one captured or compiled function."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coft_core.decode.keep import Keeper
from coft_core.decode.record import pack_step
from coft_core.model.compiled import WARM_UPS, Progress, path_of, prepare
from coft_core.model.language_model import LanguageModel
from coft_core.model.loading import first_line
from coft_core.model.packed import weights_text
from coft_core.policies.base import Policy, Views
from coft_core.policies.sampling import choose

CUDA_GRAPH = "CUDA graph"
MOST_FUNCTIONS = 48
"""Functions that are held; the one unused for longest goes first."""

_KEPT_AS = "step functions"
_cuda: Any = torch.cuda

TensorFunction = Callable[..., Tensor]
"""Takes tensors and returns one; reads nothing else that changes, and waits for no device."""


@dataclass(frozen=True, slots=True)
class StepForm:
    """What the tensors of a step depend on besides logits, draws and forced tokens.

    Attributes:
        policy: The policy.
        index: Position of the step, for its thresholds.
        branches: Names of the branches.
        greedy: Take the likeliest token.
        keeper: How the logits are kept; None where they are not.
        noise: Nats by which log-probabilities may differ between ways of running the model.
    """

    policy: Policy
    index: int
    branches: tuple[str, ...]
    greedy: bool
    keeper: Keeper | None = None
    noise: float = 0.0

    @property
    def key(self) -> Hashable:
        """Equal where the function is the same."""
        thresholds = self.policy.thresholds(self.index, self.branches)
        return (self.policy.form, thresholds, self.branches, self.greedy, self.keeper, self.noise)

    def views(self, logits: Tensor) -> Views:
        """What the policy says of logits, ``(G, B, V)``; for policies that do not look back."""
        return self.policy.views(logits, self.index, self.branches)

    def tensors(
        self, logits: Tensor, draws: Tensor, forced: Tensor | None, views: Views
    ) -> tuple[Tensor, Tensor | None]:
        """Choose and pack.

        Args:
            logits: ``(G, B, V)``.
            draws: ``(G,)`` float64.
            forced: Tokens to write whatever is chosen, ``(G,)``, negative for none; None where there is none at all.
            views: What the policy says of the logits.

        Returns:
            The packed rows, ``(G, N)`` float64, and the kept logits as bytes, ``(G, M)``.
        """
        choice = choose(views.log_p_fused, views.certified, self.policy.sampling, draws, self.greedy)
        emitted = choice.token_ids if forced is None else torch.where(forced < 0, choice.token_ids, forced)
        packed = pack_step(views, choice, emitted, self.noise)
        if self.keeper is None:
            return packed, None
        return packed, self.keeper.pack(logits, torch.stack([emitted, choice.token_ids], dim=-1))


@dataclass(frozen=True, slots=True)
class Numbers:
    """All that a step says, on the host.

    Attributes:
        views: The step's views, for thresholds and families; their tensors are not to be read.
        rows: What :func:`coft_core.decode.record.pack_step` packed, one list a chain.
        kept: The kept logits, one run of bytes a chain; empty bytes where they are not kept.
    """

    views: Views
    rows: list[list[float]]
    kept: list[bytes]


def to_host(views: Views, packed: Tensor, kept: Tensor | None) -> Numbers:
    """What a step's tensors say, on the host; they cross as one, since two transfers would wait for the device twice.

    Args:
        views: The step's views.
        packed: Packed rows, ``(G, N)`` float64.
        kept: Kept logits, ``(G, M)`` bytes; None where they are not kept.
    """
    if kept is None:
        return Numbers(views, packed.tolist(), [b""] * len(packed))
    size = packed.shape[-1] * packed.element_size()
    data = torch.cat([packed.contiguous().view(torch.uint8), kept], dim=-1).cpu().numpy()  # (G, 8 N + M)
    rows = [np.frombuffer(row[:size].tobytes()).tolist() for row in data]
    return Numbers(views, rows, [row[size:].tobytes() for row in data])


class CapturedFunction:
    """Runs a function as a CUDA graph over inputs and an output of its own, and brings the result to the host.

    The output is copied into pinned memory within the graph, so that one launch does everything and one wait, for that
    copy, is all that the host does.
    """

    def __init__(self, function: TensorFunction, inputs: Sequence[Tensor], pool: Any = None) -> None:
        """Capture; the function is run a few times on copies of the inputs.

        Args:
            function: The function.
            inputs: CUDA tensors of the shapes with which it will be called.
            pool: Memory that graphs share which never run at the same time; None begins one.

        Raises:
            RuntimeError: It cannot be captured.
        """
        self._lock = Lock()
        with torch.inference_mode():
            self._inputs = tuple(tensor.clone() for tensor in inputs)
            stream = _cuda.Stream()
            stream.wait_stream(_cuda.current_stream())
            with _cuda.stream(stream):
                for _ in range(WARM_UPS):
                    output = function(*self._inputs)
            _cuda.current_stream().wait_stream(stream)
            self._host = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
            self._graph = _cuda.CUDAGraph()
            with _cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
                self._host.copy_(function(*self._inputs), non_blocking=True)
        self._done = _cuda.Event()
        self.pool = self._graph.pool()

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


class CompiledFunction:
    """Runs a function through ``torch.compile``, and brings the result to the host."""

    def __init__(self, function: TensorFunction, inputs: Sequence[Tensor], backend: str) -> None:
        """Compile.

        Args:
            function: The function.
            inputs: Tensors of the shapes with which it will be called.
            backend: Backend of ``torch.compile``, such as ``"inductor"``, which needs a C++ compiler on a CPU.

        Raises:
            RuntimeError: It cannot be compiled.
        """
        compiled: Any = torch.compile(function, backend=backend, fullgraph=True, dynamic=False)
        self._function: TensorFunction = compiled
        self._lock = Lock()
        try:
            self(*inputs)
        except Exception as error:
            # What torch.compile raises has no public base: too many compilations are no RuntimeError, for one.
            raise RuntimeError(f"torch.compile with {backend!r} failed: {error}") from error

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The result on the host."""
        # Tensors that were made for inference alone have no version, without which they cannot be compiled for.
        with self._lock, torch.inference_mode(False), torch.no_grad():
            return self._function(*(tensor.clone() for tensor in inputs)).cpu()


class StepFunctions:
    """The steps of one model as one function each, made when they are first needed.

    Attributes:
        failure: Why none is made any more; empty while they are.
    """

    def __init__(self, backend: str) -> None:
        """Make none yet.

        Args:
            backend: :data:`CUDA_GRAPH`, or a backend of ``torch.compile``.
        """
        self.backend = backend
        self.failure = ""
        self.functions: OrderedDict[Hashable, tuple[Views, int, Callable[..., Tensor]]] = OrderedDict()
        self._pool: Any = None
        self._lock = Lock()

    def numbers(self, form: StepForm, logits: Tensor, draws: Tensor, forced: Tensor | None) -> Numbers | None:
        """A step's numbers; None where it is not one function of tensors, or none could be made.

        Args:
            form: What it depends on besides.
            logits: ``(G, B, V)``.
            draws: ``(G,)`` float64.
            forced: Tokens to write whatever is chosen, as in :meth:`StepForm.tensors`.
        """
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
        rows = np.frombuffer(data, count=count).reshape(len(draws), width).tolist()
        if form.keeper is None:
            return Numbers(views, rows, [b""] * len(rows))
        kept = np.frombuffer(data, dtype=np.uint8, offset=8 * count).reshape(len(draws), -1)  # (G, M)
        return Numbers(views, rows, [row.tobytes() for row in kept])

    def _make(
        self, form: StepForm, logits: Tensor, draws: Tensor, forced: Tensor
    ) -> tuple[Views, int, Callable[..., Tensor]]:
        def whole(logits: Tensor, draws: Tensor, forced: Tensor) -> Tensor:
            packed, kept = form.tensors(logits, draws, forced, form.views(logits))
            data = packed.flatten().view(torch.uint8)
            return data if kept is None else torch.cat([data, kept.flatten()])

        run: Callable[..., Tensor]
        if self.backend == CUDA_GRAPH:
            captured = CapturedFunction(whole, (logits, draws, forced), self._pool)
            self._pool, run = captured.pool, captured
        else:
            run = CompiledFunction(whole, (logits, draws, forced), self.backend)
        with torch.inference_mode():
            views = form.views(logits)
            packed, _ = form.tensors(logits, draws, forced, views)
        return _without_tensors(views), packed.shape[-1], run


def prepare_model(model: LanguageModel, progress: Progress | None = None) -> str:
    """Make the fastest ways to decode with a model that give its eager results, and use them from then on.

    Args:
        model: The model.
        progress: Told how much is done, 0 to 1, and what is being done.

    Returns:
        The way in words, as :func:`path_text` gives it.
    """
    if prepare(model, progress).name == CUDA_GRAPH:
        capture_steps(model)
    return path_text(model)


def path_text(model: LanguageModel) -> str:
    """How a model's steps run: ``"CUDA graph"``, ``"traced"`` or ``"eager: <why>"``, and on a CPU its weights' form."""
    functions, text = step_functions(model), path_of(model).text
    if weights := weights_text(model):
        text += f"; {weights}"
    return f"{text}, its diagnostics eager: {functions.failure}" if functions and functions.failure else text


def capture_steps(model: LanguageModel, backend: str = CUDA_GRAPH) -> StepFunctions:
    """Have the steps of a model run as one function each from now on."""
    functions = model.findings[_KEPT_AS] = StepFunctions(backend)
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
