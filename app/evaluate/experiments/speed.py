"""Tables of speed and memory: measured on the model while an experiment runs, and kept with its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import TypeAdapter

from app.evaluate.experiments.figures import Experiment, Figures, Table
from app.evaluate.experiments.grid import Grid, Line, Picture, Speeds, Value
from app.evaluate.experiments.tables import HIGHER, LOWER, stand_in_notes
from app.evaluate.layout import Head
from app.evaluate.prepared import LoadedGroup, MethodPreparer, ReadyMethod
from app.evaluate.runs import SPEED, EvaluationRequest
from app.hosting.memory import free_unused
from app.hosting.model_host import ModelHost
from app.jobs.service import JobContext, JobView
from app.shared.format import count, listed, plural
from coft_core.decode.cost import reserved_bytes, weight_bytes
from coft_core.decode.plan import Plan, plan
from coft_core.experiments.speed import (
    FAMILIES,
    Decoding,
    Efficiency,
    decode,
    efficiency,
    endless,
    timed_prompt,
    with_thresholds,
)


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """A table of speed as it was measured; ``place`` is its place among all tables of the experiment."""

    place: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


_MEMORY = {
    "cuda": "the most that is allocated on the device beyond what was allocated before the method began, and the "
    "weights of the audited model.",
    "cpu": "the most that is resident of the process beyond what was resident before the method began, looked at every "
    "5 ms in a run of its own, and the weights of the audited model.",
}

_ADAPTER = TypeAdapter(tuple[MeasuredSpeed, ...])


def measured_by(job: JobView | None) -> dict[int, MeasuredSpeed]:
    """The tables that an evaluation's job measured, by place."""
    kept = None if job is None or job.result is None else job.result.get(SPEED)
    return {own.place: own for own in _ADAPTER.validate_python(kept or ())}


@dataclass(frozen=True)
class SpeedTable(Table):
    """A row a method, or a row a size that two methods are compared at; all others are compared with the first one."""

    kind: ClassVar[str] = "speed"
    rows: Literal["methods", "lengths", "batches"] = "methods"
    methods: tuple[str, ...] = ()
    batches: tuple[int, ...] = (4,)
    lengths: tuple[int, ...] = (256,)
    prompt: int = 64
    words: int = 1
    repeats: int = 5

    def grid(self, figures: Figures) -> Grid:
        """Make it of what was measured."""
        found: MeasuredSpeed | None = figures.speeds.get(figures.experiment.tables.index(self))
        lines = () if found is None else found.lines
        told = ("Speed is not measured yet; it is once everything is read.",) if found is None else found.notes
        corner = {"methods": "Method", "lengths": "Tokens", "batches": "Prompts"}[self.rows]
        overhead, peak = Head("Overhead, %", LOWER), Head("Peak memory, GB")
        heads = [*map(Head, self.methods), overhead]
        if self.rows == "methods":
            heads = [Head("Tokens a second", HIGHER), overhead, peak]
        picture = self._picture(lines) if lines else None
        return self.made(figures, corner, heads, lines, (*told, *stand_in_notes(figures)), picture)

    def _picture(self, lines: Sequence[Line]) -> Picture:
        if self.rows == "methods":
            speeds = {line.head: (own, line.values[1]) for line in lines if (own := line.values[0]) is not None}
            return Speeds("", {"Tokens a second": speeds})
        size = {"lengths": "tokens of prompt and text", "batches": "prompts at a time"}[self.rows]
        # The last column is by how much the second method is slower than the first.
        series = {
            label: {
                line.head: (own, line.values[-1] if place else None)
                for line in lines
                if (own := line.values[place]) is not None
            }
            for place, label in enumerate(self.methods)
        }
        return Speeds(size, series)

    def planned(self, methods: Sequence[str]) -> str:
        """What measuring will take."""
        timed = [label for label in methods if not self.methods or label in self.methods]
        written = sum(batch * (length - self.prompt) for batch in self.batches for length in self.lengths)
        tokens = count(len(timed) * (self.repeats + 1) * written)
        return (
            f"{self.title}: {plural(len(timed), 'method')} in {plural(self.repeats + 1, 'round')} will write about "
            f"{tokens} tokens to measure speed; their time is not in the estimate."
        )


def speed_tables(experiment: Experiment) -> dict[int, SpeedTable]:
    """An experiment's tables of speed by their places."""
    return {place: table for place, table in enumerate(experiment.tables) if isinstance(table, SpeedTable)}


@dataclass(frozen=True)
class Timed:
    """A method that is timed, with what it runs."""

    ready: ReadyMethod
    loaded: LoadedGroup

    def plans(self, table: SpeedTable, batch: int, length: int) -> list[Plan]:
        """Prompts of one length that are written on to another."""
        model = endless(self.loaded.group.model)
        text, spans = timed_prompt(model, table.prompt, table.words)
        policy = with_thresholds(self.ready.policy, model, FAMILIES[: table.words])
        return [
            plan(
                model, text, policy, spans, seed=place, max_new_tokens=length - table.prompt, models=self.loaded.models,
                scorers=self.loaded.scorers,
            )
            for place in range(batch)
        ]  # fmt: skip


class SpeedRun:
    """Measures the tables of speed of an evaluation within its job."""

    def __init__(self, host: ModelHost, preparer: MethodPreparer, context: JobContext) -> None:
        self._host, self._preparer, self._context = host, preparer, context

    def run(self, request: EvaluationRequest, tables: Mapping[int, SpeedTable], begin: float) -> list[Any]:
        """Measure them, from a share of the job on."""
        self._context.begin_phase(begin, "loading what is timed")
        loaded = [self._preparer.load(group) for group in self._preparer.groups(request)]
        by_label = {ready.label: Timed(ready, own) for own in loaded for ready in own.group.methods}
        methods = {method.label: by_label[method.label] for method in request.methods}
        width, found = (1 - begin) / len(tables), []
        for number, (place, table) in enumerate(tables.items()):
            found.append(self.measured(place, table, methods, begin + number * width, width))
        kept: list[Any] = _ADAPTER.dump_python(tuple(found), mode="json")
        return kept

    def measured(
        self, place: int, table: SpeedTable, timed: Mapping[str, Timed], begin: float, width: float
    ) -> MeasuredSpeed:
        """Measure a table, from a share of the job on."""
        methods = {label: timed[label] for label in table.methods or timed if label in timed}
        notes = [
            f"Prompts of {table.prompt} tokens, {table.repeats} rounds; median ± standard deviation, and in brackets "
            "the range over rounds. The prompt's own pass is not timed, and the end token is not obeyed.",
            *(f"{label} is left out: it did not take part." for label in table.methods if label not in timed),
        ]
        if not methods or (table.rows != "methods" and len(methods) < len(table.methods)):
            return MeasuredSpeed(place, (), tuple(notes))
        model = next(iter(methods.values())).loaded.group.model
        device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else str(model.device)
        sizes = [(batch, length) for batch in table.batches for length in table.lengths]
        lines: list[Line] = []
        left_out: list[int] = []
        for number, (batch, length) in enumerate(sizes):
            if length > model.context_length and table.rows == "methods":
                context = model.context_length
                notes.append(f"The text has {context} tokens in place of {length}, which the model's context allows.")
                length = context
            elif length > model.context_length:
                left_out.append(batch if table.rows == "batches" else length)
                continue
            share = width / len(sizes)
            found = self._timed(table, methods, batch, length, begin + number * share, share)
            if table.rows == "methods":
                lines = _by_method(found, weight_bytes(model))
            else:
                size = str(batch if table.rows == "batches" else length)
                values = (*(_spread(own.tokens_per_second) for own in found.values()),
                          _spread(found[table.methods[1]].overhead, 100))  # fmt: skip
                lines.append(Line(size, values, size))
        if table.rows == "methods":
            notes.append(f"Peak memory: {_MEMORY['cuda' if model.device.type == 'cuda' else 'cpu']}")
        if left_out:
            notes.append(f"Left out: {listed(left_out)}; the model's context has {model.context_length} tokens.")
        return MeasuredSpeed(place, tuple(lines), (f"Measured on {device}, {model.dtype_name}.", *notes))

    def _timed(
        self, table: SpeedTable, methods: Mapping[str, Timed], batch: int, length: int, begin: float, width: float
    ) -> Mapping[str, Efficiency]:
        """Figures of methods, the first of them what others are compared with."""
        runs, done = len(methods) * (table.repeats + 1), 0

        def ran() -> None:
            nonlocal done
            done += 1
            self._context.check_cancelled()
            share = min(begin + width * done / runs, 1.0)
            self._context.progress(share, f"{batch} prompts of {length} tokens")
            self._host.give_way()

        def run(own: Timed, mark: Callable[[], None]) -> None:
            decode(own.plans(table, batch, length), mark)

        timed: dict[str, Decoding] = {label: partial(run, own) for label, own in methods.items()}
        # One method runs at a time, so the largest one's keys and values are all that is held.
        planned = [own.plans(table, batch, length) for own in methods.values()]
        size = max(sum(reserved_bytes(own, own.max_new_tokens) for own in plans) for plans in planned)
        device = next(iter(methods.values())).loaded.group.model.device
        return self._host.memory.run(size, partial(efficiency, device, batch, timed, table.repeats, ran, free_unused))


def _by_method(found: Mapping[str, Efficiency], weights: int) -> list[Line]:
    """A row a method; the first one has no overhead."""
    lines = []
    for label, own in found.items():
        overhead = _spread(own.overhead, 100) if lines else None
        peak = Value((own.peak + weights) / 1e9)
        lines.append(Line(label, (_spread(own.tokens_per_second), overhead, peak), label))
    return lines


def _spread(summary: Mapping[str, float], scale: float = 1.0) -> Value:
    """Median with the deviation over rounds, and their range in the place of an interval."""
    median, deviation, low, high = (scale * summary[name] for name in ("median", "deviation", "min", "max"))
    return Value(median, deviation if summary["n"] > 1 else None, low, high)
