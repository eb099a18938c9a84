"""Tables of an experiment with the paper's figures beside ours, made of what is kept and without the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.evaluate import words
from app.evaluate.experiment_coverage import chains_table, coverage_table, drift_table
from app.evaluate.experiment_figures import Figures, Kept
from app.evaluate.experiment_layout import (
    ExperimentTable,
    Line,
    average_notes,
    laid_out,
    missing_notes,
    paper_notes,
    seed_notes,
    silent_notes,
    stand_in_notes,
    unread_notes,
)
from app.evaluate.experiment_sweeps import choice_table, stability_table
from app.evaluate.experiments import (
    ChainsTable,
    ChoiceTable,
    ColumnEntry,
    CoverageTable,
    DriftTable,
    MethodsTable,
    SpeedTable,
    StabilityTable,
    SuitesTable,
)
from app.evaluate.layout import Head
from coft_core.suites.base import Outside


def experiment_tables(kept: Kept, model: str, outside: Outside = "floor") -> list[ExperimentTable]:
    """All tables of an experiment but those that are measured when it is run."""
    tables = [table for table in kept.experiment.tables if not isinstance(table, SpeedTable)]
    if not tables:
        return []
    figures = Figures(kept, outside)
    return [_MAKERS[type(table)](table, figures, model, outside) for table in tables]


def _methods(table: MethodsTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept = figures.kept
    ranks = {column.rank: figures.ranks(column.rank) for column in table.columns if column.rank}
    lines = [
        Line(
            label,
            tuple(
                ranks[column.rank].get(label) if column.rank else figures.column(column, label)
                for column in table.columns
            ),
            label,
        )
        for label in kept.labels
    ]
    heads = [_head(column, figures) for column in table.columns]
    kinds = [column.average for column in table.columns if column.average]
    notes = [
        *average_notes(figures, kinds),
        *stand_in_notes(kept),
        *seed_notes(kept),
        *missing_notes(heads, lines),
        *unread_notes(figures, kept.suites),
        *silent_notes(kept, kept.labels),
        *paper_notes(table, model),
    ]
    return ExperimentTable(table.title, laid_out(table, model, "Method", heads, lines), tuple(notes))


def _suites(table: SuitesTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept = figures.kept
    present = [key for key in table.suites or kept.experiment.suites if key in kept.suites]
    lines = [
        Line(
            kept.suites[key].title,
            tuple(figures.column(column, column.method, key) for column in table.columns),
            key,
        )
        for key in present
    ]
    heads = [_head(column, figures, present) for column in table.columns]
    notes = [
        *stand_in_notes(kept),
        *seed_notes(kept),
        *missing_notes(heads, lines),
        *unread_notes(figures, present),
        *silent_notes(kept, {column.method for column in table.columns}),
        *paper_notes(table, model),
    ]
    return ExperimentTable(table.title, laid_out(table, model, "Suite", heads, lines), tuple(notes))


def _head(column: ColumnEntry, figures: Figures, suites: Sequence[str] = ("",)) -> Head:
    """A column's head, with an arrow where all its figures have one direction."""
    if column.rank:
        return Head(column.title, words.ARROWS["lower"])
    labels = [column.method] if column.method else figures.kept.labels
    found = {own for suite in suites for label in labels if (own := figures.better(column, label, suite)) is not None}
    return Head(column.title, words.ARROWS[found.pop()] if len(found) == 1 else "")


_MAKERS: Mapping[type[Any], Callable[..., ExperimentTable]] = {
    MethodsTable: _methods,
    SuitesTable: _suites,
    ChoiceTable: choice_table,
    StabilityTable: stability_table,
    CoverageTable: coverage_table,
    ChainsTable: chains_table,
    DriftTable: drift_table,
}
