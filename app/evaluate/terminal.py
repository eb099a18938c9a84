"""Evaluations and their tables on a terminal."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Drawn
from rich.text import Text

from app.evaluate import words
from app.evaluate.coefficients import Coefficients
from app.evaluate.experiments.service import ExperimentRun
from app.evaluate.layout import Head, Layout, Shown, laid_out, readings_laid_out
from app.evaluate.opening import OpenedItem
from app.evaluate.runs import CalibrationNote, EvaluationEstimate, EvaluationSummary, EvaluationView, KnownSuite
from app.evaluate.table_service import EvaluationTable
from app.shared.format import duration
from coft_core.effects import visible


def print_table(shown: EvaluationTable) -> None:
    """The figures, what was read, and the sentences that belong to them."""
    table, view = shown.table, shown.view
    print(f"{view.name} (evaluation {view.id}), {view.request.model}")
    if table.columns:
        print_layout(laid_out(table, shown.elsewhere))
    for note in words.notes(table, view.plans, bool(shown.elsewhere)):
        print(note)
    if any(row.readings for row in table.rows):
        print_layout(readings_laid_out(table))
        print(*words.reading_notes(table), sep="\n")


def print_layout(layout: Layout) -> None:
    """A table; on a terminal as wide as that is."""
    drawn = Drawn(box=box.SIMPLE_HEAD)
    drawn.add_column(layout.corner)
    for head in layout.heads:
        drawn.add_column(_head(head), justify="right")
    for head, line in layout.lines:
        drawn.add_row(_head(head), *(_cell(cell) for cell in line))
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        # Whoever reads it from a file or a pipe has lines as long as they come.
        console.width = Measurement.get(console, console.options.update(width=10_000), drawn).maximum
    console.print(drawn)


def _head(head: Head) -> Text:
    text = Text(visible(f"{head.title} {head.arrow}".rstrip()))
    return text.append(f"\n{visible(head.source)}", "italic") if head.source else text


def _cell(shown: Shown | None) -> Text:
    """The number with its deviation, its interval below, and the difference to the reference method below that."""
    if shown is None:
        return Text("\N{EN DASH}")
    text = Text(f"{visible(shown.text)}{'*' if shown.best else ''}", "bold" if shown.best else "")
    text.append(f" ±{shown.deviation}" if shown.deviation else "", "not bold")
    for line in (shown.interval, shown.contrast):
        text.append(f"\n{line}" if line else "", "not bold dim")
    return text


def print_experiment(run: ExperimentRun) -> None:
    """The tables of an experiment with their notes, and how it differs from the paper's."""
    experiment = run.experiment
    print(f"{experiment.title} ({experiment.source}), {run.view.request.model}")
    print(experiment.shows)
    for table in run.tables:
        print(f"\n{table.title}")
        print_layout(table.layout)
        print(*(f"- {note}" for note in table.notes), sep="\n")
    print("\nNot as in the paper:", *(f"- {sentence}" for sentence in experiment.differs), sep="\n")
    if run.view.plans:
        print(f"\nAll figures, and what was read: python -m app evaluations table {run.view.id}")


def print_suites(suites: tuple[KnownSuite, ...]) -> None:
    """One line a suite, with what is missing."""
    for suite in suites:
        there = f"{suite.items:,} items, {suite.release}" if suite.items else f"from {suite.source}"
        there = suite.missing or there.replace("from hub", "from a hub, downloaded when it is read")
        print(f"{suite.key:<22} {suite.kind:<10} {suite.title}: {there}")
    if any(suite.missing for suite in suites):
        print("What is missing is downloaded by: python -m app data fetch SUITE --data DIR")


def print_evaluations(evaluations: tuple[EvaluationSummary, ...]) -> None:
    """One line an evaluation."""
    if not evaluations:
        print("No evaluation yet; see: python -m app evaluate --help")
    for item in evaluations:
        state = "unknown" if item.job is None else item.job.status
        print(
            f"{item.id:>5}  {item.created_at:%Y-%m-%d %H:%M}  {state:<11} {item.done:,} of {item.planned:,} items  "
            f"{item.name}: {item.request.model}, {len(item.request.methods)} methods on "
            f"{', '.join(item.request.suites) or 'no suite'}"
        )


def print_evaluation(view: EvaluationView) -> None:
    """How far it is, what was read, and what its thresholds rest on."""
    state = "" if view.job is None else f", {view.job.status}"
    print(f"Evaluation {view.id}: {view.name} ({view.request.model}{state}; {view.done:,} of {view.planned:,} items)")
    for plan in view.plans:
        print(f"\n{plan.title}: {plan.items:,} items in {plan.units:,} units; {plan.release}")
        for method in view.request.methods:
            parts = [part for part in view.progress if (part.suite, part.method) == (plan.suite, method.label)]
            done = ", ".join(f"seed {part.seed}: {part.done:,} of {part.planned:,}" for part in parts)
            print(f"  {method.label:<36} {done}")
        for note in view.calibrations:
            if note.suite == plan.suite:
                print(f"  {note_sentence(note)}")
    for sentence in view.notes:
        print(f"\n{sentence}")
    if view.request.experiment is not None:
        print(f"\nThe tables of its experiment: python -m app evaluations table {view.id} --experiment")
    if view.done:
        print(f"\nIts figures: python -m app evaluations table {view.id}")


def note_sentence(note: CalibrationNote) -> str:
    """What is said of the thresholds of a method, in one line."""
    begun = f"Thresholds of {note.method}, seed {note.seed}: "
    if note.silent:
        return " ".join((f"{begun}{note.contexts} contexts, {note.needed} needed: {note.silent}.", *note.notes))
    covered = ""
    if note.coverage is not None and note.low is not None and note.high is not None:
        covered = (
            f"; they keep {note.coverage:.0%} ({note.low:.0%} to {note.high:.0%}) of {note.checked} contexts kept "
            f"apart, {1 - note.alpha:.0%} asked for"
        )
    silent = f"; {note.uninformative} of {note.bins} bins say nothing" if note.uninformative else ""
    said = f"{begun}{note.contexts} contexts, {note.needed} needed, by {note.source}{covered}{silent}."
    return " ".join((said, *note.notes))


def print_estimate(estimate: EvaluationEstimate) -> None:
    """What each suite will take, and what is missing."""
    for suite in estimate.suites:
        written = f", up to {suite.written:,} tokens written" if suite.written else ""
        print(
            f"{suite.suite:<22} {suite.items:,} items, {suite.asks:,} asks, {suite.read:,} tokens read{written} "
            f"by each method; {duration(suite.seconds)} for all"
        )
    print(f"{duration(estimate.seconds).capitalize()} of the model's time, without fitting thresholds.")
    for sentence in estimate.said:
        print(sentence)


def print_opened(opened: OpenedItem) -> None:
    """Which session it is."""
    print(f"Session {opened.session_id}, branch {opened.branch_id}. {opened.note}".rstrip())


def print_sets(sets: dict[str, dict[str, list[str]]]) -> None:
    """One line a set."""
    for what, named in sets.items():
        print(f"Sets of {what}:")
        print(*(f"  {name:<12} {' '.join(members)}" for name, members in named.items()), sep="\n")


def print_coefficients(found: Coefficients) -> None:
    """A row a coefficient, and what has to be said with them."""
    print(f"{found.title} (evaluation {found.evaluation_id}), mixed-effects model")
    print_layout(found.grid.layout)
    print(*found.notes, sep="\n")
