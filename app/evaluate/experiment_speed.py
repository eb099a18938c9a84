"""Tables of speed and memory: measured on the model when an experiment is run, and kept nowhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app.evaluate import words
from app.evaluate.experiment_figures import Value
from app.evaluate.experiment_layout import ExperimentTable, Line, laid_out
from app.evaluate.experiments import SpeedTable
from app.evaluate.layout import Head
from app.evaluate.prepared import LoadedGroup, ReadyMethod
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

Progress = Callable[[float, str], None]


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
        """Prompts of one length that are written on to another.

        Args:
            prompt: Tokens of the prompt.
            words_masked: Masked words.
            batch: Prompts.
            length: Tokens of prompt and text together.

        Raises:
            CoftError: They do not fit into the model's context.
        """
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
        """Nothing runs yet.

        Args:
            host: Gives turns on the model.
            methods: The methods.
            progress: Told how far a table is, and what is measured.
        """
        self._host, self._methods, self._progress = host, methods, progress

    def table(self, table: SpeedTable, model: str) -> ExperimentTable:
        """Measure a table.

        Args:
            table: The table.
            model: The model's name, to choose the paper's rows by.

        Raises:
            CoftError: A method cannot decode the prompts.
        """
        methods = [own for own in self._methods if not table.methods or own.label in table.methods]
        absent = [label for label in table.methods if label not in {own.label for own in methods}]
        notes = [
            f"Prompts of {table.prompt} tokens, {table.repeats} rounds; median, and in brackets the range over rounds. "
            "The prompt's own pass is not timed, and the end token is not obeyed.",
            *(f"{label} is left out: it did not take part." for label in absent),
        ]
        if not methods or (table.rows != "methods" and absent):
            layout = laid_out(table, model, "Method", [Head(head) for head in table.heads], [])
            return ExperimentTable(table.title, layout, tuple(notes))
        made = self._by_method if table.rows == "methods" else self._by_size
        lines, more = made(table, methods)
        heads = [Head(head, _ARROWS.get(head, "")) for head in table.heads]
        corner = {"methods": "Method", "lengths": "Tokens", "batches": "Prompts"}[table.rows]
        return ExperimentTable(table.title, laid_out(table, model, corner, heads, lines), (*notes, *more))

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


_ARROWS = {"Tokens a second": words.ARROWS["higher"], "Overhead, %": words.ARROWS["lower"]}


def _spread(summary: Mapping[str, float], scale: float = 1.0) -> Value:
    """Median with the range over rounds in the place of an interval."""
    return Value(scale * summary["median"], None, scale * summary["min"], scale * summary["max"])
