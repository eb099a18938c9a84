"""Tables of speed and memory: measured on the model while an experiment runs, and kept with its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from pydantic import TypeAdapter

from app.evaluate import words
from app.evaluate.experiment_figures import Value
from app.evaluate.experiment_layout import ExperimentTable, Line, laid_out, paper_notes
from app.evaluate.experiment_pictures import SpeedPicture, SpeedPoint
from app.evaluate.experiments import Experiment, SpeedTable
from app.evaluate.layout import Head
from app.evaluate.prepared import LoadedGroup, MethodPreparer, ReadyMethod
from app.evaluate.runs import EvaluationRequest
from app.shared.format import count, plural
from app.shared.jobs import JobContext, JobView
from app.shared.model_host import ModelHost
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
from coft_core.model.language_model import LanguageModel

Progress = Callable[[float, str], None]

KEPT_AS = "speed"
"""Key in a job's result: the tables that it measured."""


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """A table of speed as it was measured."""

    place: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


_ADAPTER = TypeAdapter(tuple[MeasuredSpeed, ...])


def measured_by(job: JobView | None) -> tuple[MeasuredSpeed, ...] | None:
    """The tables that an evaluation's job measured; None where it measured none."""
    kept = None if job is None or job.result is None else job.result.get(KEPT_AS)
    return None if kept is None else _ADAPTER.validate_python(kept)


def speed_tables(experiment: Experiment) -> dict[int, SpeedTable]:
    """An experiment's tables of speed by their places."""
    return {place: table for place, table in enumerate(experiment.tables) if isinstance(table, SpeedTable)}


def speed_table(
    table: SpeedTable, found: MeasuredSpeed | None, model: str, further: Sequence[str] = ()
) -> ExperimentTable:
    """A table of speed with the paper's rows below ours, of what was measured."""
    corner = {"methods": "Method", "lengths": "Tokens", "batches": "Prompts"}[table.rows]
    heads = [Head(head, _ARROWS.get(head, "")) for head in table.heads]
    lines = () if found is None else found.lines
    told = ("Speed is not measured yet; it is once everything is read.",) if found is None else found.notes
    notes = (*told, *further, *paper_notes(table, model))
    return ExperimentTable(
        table.title, laid_out(table, model, corner, heads, lines), notes, _picture(table, lines) if lines else None
    )


def _picture(table: SpeedTable, lines: Sequence[Line]) -> SpeedPicture:
    if table.rows == "methods":
        points = [SpeedPoint(line.head, own, line.values[1]) for line in lines if (own := line.values[0]) is not None]
        return SpeedPicture("", {table.heads[0]: tuple(points)})
    size = {"lengths": "tokens of prompt and text", "batches": "prompts at a time"}[table.rows]
    series: dict[str, tuple[SpeedPoint, ...]] = {}
    for place, label in enumerate(table.methods):
        # The last column is by how much the second method is slower than the first.
        points = [
            SpeedPoint(line.head, own, line.values[-1] if place else None)
            for line in lines
            if (own := line.values[place]) is not None
        ]
        series[label] = tuple(points)
    return SpeedPicture(size, series)


def planned_words(experiment: Experiment, methods: Sequence[str]) -> list[str]:
    """What measuring will take, a sentence a table."""
    said = []
    for table in speed_tables(experiment).values():
        timed = [label for label in methods if not table.methods or label in table.methods]
        written = sum(batch * (length - table.prompt) for batch in table.batches for length in table.lengths)
        runs = len(timed) * (table.repeats + 1)
        said.append(
            f"{table.title}: {plural(len(timed), 'method')} in {plural(table.repeats + 1, 'round')} will write about "
            f"{count(runs * written)} tokens to measure speed; their time is not in the estimate."
        )
    return said


class SpeedRun:
    """Measures the tables of speed of an evaluation within its job."""

    def __init__(self, host: ModelHost, preparer: MethodPreparer, context: JobContext) -> None:
        self._host, self._preparer, self._context = host, preparer, context

    def run(self, request: EvaluationRequest, begin: float) -> list[Any]:
        """Measure them."""
        assert request.experiment is not None
        self._context.begin_phase(begin, "loading what is timed")
        tables = speed_tables(Experiment.model_validate(request.experiment.content))
        loaded = [self._preparer.load(group) for group in self._preparer.groups(request)]
        by_label = {ready.label: Timed(ready, own) for own in loaded for ready in own.group.methods}
        methods = [by_label[method.label] for method in request.methods]
        width = (1 - begin) / len(tables)
        found = []
        for number, (place, table) in enumerate(tables.items()):
            meter = SpeedMeter(self._host, methods, partial(self._told, begin + number * width, width))
            found.append(meter.table(place, table))
        kept: list[Any] = _ADAPTER.dump_python(tuple(found), mode="json")
        return kept

    def _told(self, begin: float, width: float, share: float, label: str) -> None:
        self._context.check_cancelled()
        self._context.progress(min(begin + width * share, 1.0), label)


@dataclass(frozen=True)
class Timed:
    """A method that is timed, with what it runs."""

    ready: ReadyMethod
    loaded: LoadedGroup

    @property
    def label(self) -> str:
        """Its label."""
        return self.ready.label

    def plans(self, prompt: int, words_masked: int, batch: int, length: int) -> list[Plan]:
        """Prompts of one length that are written on to another."""
        model = endless(self.loaded.group.model)
        text, spans = timed_prompt(model, prompt, words_masked)
        policy = with_thresholds(self.ready.policy, model, FAMILIES[:words_masked])
        return [
            plan(
                model,
                text,
                policy,
                spans,
                seed=place,
                max_new_tokens=length - prompt,
                models=self.loaded.models,
                scorers=self.loaded.scorers,
            )
            for place in range(batch)
        ]


class SpeedMeter:
    """Measures the tables of speed of an experiment."""

    def __init__(self, host: ModelHost, methods: Sequence[Timed], progress: Progress) -> None:
        """Nothing runs yet."""
        self._host, self._methods, self._progress = host, methods, progress

    def table(self, place: int, table: SpeedTable) -> MeasuredSpeed:
        """Measure a table."""
        methods = [own for own in self._methods if not table.methods or own.label in table.methods]
        absent = [label for label in table.methods if label not in {own.label for own in methods}]
        notes = [
            f"Prompts of {table.prompt} tokens, {table.repeats} rounds; median, and in brackets the range over rounds. "
            "The prompt's own pass is not timed, and the end token is not obeyed.",
            *(f"{label} is left out: it did not take part." for label in absent),
        ]
        if not methods or (table.rows != "methods" and absent):
            return MeasuredSpeed(place, (), tuple(notes))
        made = self._by_method if table.rows == "methods" else self._by_size
        lines, more = made(table, methods)
        return MeasuredSpeed(place, tuple(lines), (_where(methods[0].loaded.group.model), *notes, *more))

    def _by_method(self, table: SpeedTable, methods: Sequence[Timed]) -> tuple[list[Line], list[str]]:
        (batch,), (length,) = table.batches, table.lengths
        context = methods[0].loaded.group.model.context_length
        notes = []
        if length > context:
            notes.append(f"The text has {context} tokens in place of {length}, which the model's context allows.")
            length = context
        found = self._measured(table, methods, batch, length, 0.0, 1.0)
        weights = weight_bytes(methods[0].loaded.group.model)
        lines = [
            Line(
                label,
                (
                    _spread(own.tokens_per_second),
                    None if place == 0 else _spread(own.overhead, 100),
                    None if own.peak is None else Value((own.peak + weights) / 1e9),
                ),
                label,
            )
            for place, (label, own) in enumerate(found.items())
        ]
        if all(own.peak is None for own in found.values()):
            notes.append("Peak memory is counted on CUDA alone.")
        return lines, notes

    def _by_size(self, table: SpeedTable, methods: Sequence[Timed]) -> tuple[list[Line], list[str]]:
        ordered = [next(own for own in methods if own.label == label) for label in table.methods]
        context = ordered[0].loaded.group.model.context_length
        sizes = table.lengths if table.rows == "lengths" else table.batches
        lines, left_out = [], []
        for place, size in enumerate(sizes):
            batch = size if table.rows == "batches" else table.batches[0]
            length = size if table.rows == "lengths" else table.lengths[0]
            if length > context:
                left_out.append(size)
                continue
            begin, end = place / len(sizes), (place + 1) / len(sizes)
            found = self._measured(table, ordered, batch, length, begin, end)
            speeds = [_spread(own.tokens_per_second) for own in found.values()]
            lines.append(Line(str(size), (*speeds, _spread(found[ordered[1].label].overhead, 100)), str(size)))
        notes = []
        if left_out:
            notes.append(f"Left out: {words.listed(left_out)}; the model's context has {context} tokens.")
        return lines, notes

    def _measured(
        self, table: SpeedTable, methods: Sequence[Timed], batch: int, length: int, begin: float, end: float
    ) -> Mapping[str, Efficiency]:
        """Figures of methods, the first of them what others are compared with."""
        runs = len(methods) * (table.repeats + 1)
        done = 0

        def ran() -> None:
            nonlocal done
            done += 1
            self._progress(begin + (end - begin) * done / runs, f"{batch} prompts of {length} tokens")
            self._host.give_way()

        def run(own: Timed, mark: Callable[[], None]) -> None:
            decode(own.plans(table.prompt, table.words, batch, length), mark)

        timed: dict[str, Decoding] = {own.label: partial(run, own) for own in methods}
        # One method runs at a time, so the largest one's keys and values are all that is held.
        planned = [own.plans(table.prompt, table.words, batch, length) for own in methods]
        size = max(sum(reserved_bytes(own, own.max_new_tokens) for own in plans) for plans in planned)
        device = methods[0].loaded.group.model.device
        return self._host.memory.run(size, partial(efficiency, device, batch, timed, table.repeats, ran))


def _where(model: LanguageModel) -> str:
    """What a model was timed on."""
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else str(model.device)
    return f"Measured on {device}, {model.dtype_name}."


_ARROWS = {"Tokens a second": words.ARROWS["higher"], "Overhead, %": words.ARROWS["lower"]}


def _spread(summary: Mapping[str, float], scale: float = 1.0) -> Value:
    """Median with the range over rounds in the place of an interval."""
    return Value(scale * summary["median"], None, scale * summary["min"], scale * summary["max"])
