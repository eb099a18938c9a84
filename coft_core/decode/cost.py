"""What a chain costs: memory computed from the models' shapes, and time and memory measured step by step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch

from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan, plan
from coft_core.errors import InvalidInputError
from coft_core.model.group import BASE
from coft_core.model.int_weights import int_layers
from coft_core.model.language_model import LanguageModel
from coft_core.model.slots import rows_size, token_size
from coft_core.policies.base import Policy
from coft_core.scorers.base import ToxicityScorer
from coft_core.text.detection import SpanDetector
from coft_core.types import Span


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that one chain needs, computed before it is written; one entry a branch where there are several."""

    prompt_tokens: tuple[int, ...]
    token_bytes: tuple[int, ...]
    model_bytes: int
    further_bytes: int

    @property
    def known(self) -> bool:
        """Whether the key-value bytes of every branch are known."""
        return all(self.token_bytes)

    def key_value_bytes(self, written: int) -> int:
        """Keys and values of all branches after so many tokens, every branch holding its own prompt in full."""
        pairs = zip(self.prompt_tokens, self.token_bytes, strict=True)
        return sum((tokens + written) * size for tokens, size in pairs)


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step took."""

    seconds: float
    peak_bytes: int | None


def footprint_of(planned: Plan) -> Footprint:
    """Compute a plan's memory; nothing runs."""
    models = planned.all_models
    branches = planned.policy.branches(planned.prompt)
    sizes = {name: token_size(model) for name, model in models.items()}
    modules = {id(model.module): model for name, model in models.items() if name != BASE}
    modules.pop(id(planned.model.module), None)
    return Footprint(
        prompt_tokens=tuple(len(branch.input_ids) for branch in branches),
        token_bytes=tuple(sizes[branch.model] for branch in branches),
        model_bytes=weight_bytes(planned.model),
        further_bytes=sum(weight_bytes(model) for model in modules.values()),
    )


def reserved_bytes(planned: Plan, steps: int) -> int:
    """Bytes of keys and values that a rollout of so many steps sets aside, in the capacities of its rows."""
    models = planned.all_models
    lengths: dict[str, list[int]] = {}
    for branch in planned.policy.branches(planned.prompt):
        lengths.setdefault(branch.model, []).append(len(branch.input_ids) + steps)
    return sum(rows_size(models[name], len(row_lengths), max(row_lengths)) for name, row_lengths in lengths.items())


def weight_bytes(model: LanguageModel) -> int:
    """Bytes of a model's weights, tied ones counted once."""
    if model.engine is not None:
        return model.engine.weight_bytes
    integers = (buffer for layer in int_layers(model.module) for buffer in layer.buffers())
    return sum(tensor.nbytes for tensor in (*model.module.parameters(), *integers))


class DevicePeaks:
    """Most memory held on a device within windows of time that may overlap, although it has one high-water mark."""

    def __init__(
        self,
        read: Callable[[torch.device], int] = torch.cuda.max_memory_allocated,
        reset: Callable[[torch.device], None] = torch.cuda.reset_peak_memory_stats,
    ) -> None:
        self._read, self._reset = read, reset
        self._lock = Lock()
        self._open: list[_Window] = []

    @contextmanager
    def window(self, device: torch.device) -> Iterator[_Window]:
        """Measure inside this block; ``peak`` of what it gives is known when the block has ended."""
        opened = _Window(device)
        with self._lock:
            # So that no open window loses what was reached before.
            self._note(device)
            self._reset(device)
            self._open.append(opened)
        try:
            yield opened
        finally:
            with self._lock:
                self._note(device)
                self._open.remove(opened)

    def _note(self, device: torch.device) -> None:
        peak = self._read(device)
        for window in self._open:
            if window.device == device:
                window.peak = max(window.peak, peak)


@dataclass(eq=False)
class _Window:
    """A window of :class:`DevicePeaks` and the most that was held in it so far, bytes."""

    device: torch.device
    peak: int = 0


@contextmanager
def measured(rollout: Rollout, peaks: DevicePeaks | None = None) -> Iterator[Callable[[], StepCost]]:
    """Measure the step that a rollout takes inside this block, without what it waits for other rollouts' forwards."""
    device = rollout.plan.model.device
    counted = device.type == "cuda"
    began, ended = time.perf_counter(), 0.0
    with (peaks or DevicePeaks()).window(device) if counted else nullcontext(_Window(device)) as window:
        yield lambda: StepCost(ended - began - rollout.waited, window.peak if counted else None)
    ended = time.perf_counter()


@dataclass(frozen=True, slots=True)
class Overhead:
    """Cost of a policy on one prompt, relative to another one: rows of each, and times and their ratios by repeat."""

    branches: int
    baseline_branches: int
    seconds_per_token: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def sentence(self) -> str:
        """The cost in words."""
        return (
            f"{self.branches} branches instead of {self.baseline_branches}: {self.median:.2f} times the time per token "
            f"({min(self.ratios):.2f} to {max(self.ratios):.2f} over {len(self.ratios)} repeats)."
        )


def measure_overhead(
    model: LanguageModel,
    text: str,
    policy: Policy,
    baseline: Policy,
    spans: Sequence[Span] | None = None,
    tokens: int = 16,
    repeats: int = 3,
    detector: SpanDetector | None = None,
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
) -> Overhead:
    """Decode so many tokens under both policies in turn, so many times, and compare the time.

    The prompt's own pass is not counted. The same tokens are forced in both, so that neither stops early.

    Raises:
        InvalidInputError: ``tokens`` or ``repeats`` is below 1, or the prompt is empty.
        PromptTooLongError: Prompt and steps exceed the model's context.
    """
    if tokens < 1 or repeats < 1:
        raise InvalidInputError(f"{tokens} tokens and {repeats} repeats were asked for; ask for at least one of each.")
    options: dict[str, Any] = {"detector": detector, "models": models, "scorers": scorers}
    plans = [
        plan(model, text, each, spans, greedy=True, max_new_tokens=tokens + 1, **options) for each in (policy, baseline)
    ]
    for each in plans:
        _seconds(each, tokens)
    pairs = [tuple(_seconds(each, tokens) / tokens for each in plans) for _ in range(repeats)]
    counts = [len(each.policy.branches(each.prompt)) for each in plans]
    return Overhead(
        counts[0], counts[1], tuple(seconds for seconds, _ in pairs), tuple(seconds / other for seconds, other in pairs)
    )


def _seconds(planned: Plan, tokens: int) -> float:
    filler = next(i for i in range(planned.model.vocabulary_size) if i not in planned.model.end_token_ids)
    rollout = Rollout(planned)
    try:
        rollout.step(filler)
        _wait(planned.model)
        start = time.perf_counter()
        for _ in range(tokens):
            rollout.step(filler)
        _wait(planned.model)
        return time.perf_counter() - start
    finally:
        rollout.close()


def _wait(model: LanguageModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
