"""Tables of several models laid over each other: each number is their mean, with its deviation over models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.evaluate.experiments.grid import Grid, Paper, Value, Values
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.layout import Head
from app.shared.format import listed

AVERAGED = "averaged"
"""What the paper's rows of all models together are of."""


@dataclass(frozen=True, slots=True)
class Section:
    """The tables of one experiment on one model, or their averages over models."""

    experiment: str
    model: str
    grids: tuple[Grid, ...]


def averages(sections: Sequence[Section]) -> Section | None:
    """The averages of an experiment's tables over models; None of fewer than two."""
    if len(sections) < 2:
        return None
    name, models = sections[0].experiment, [own.model for own in sections]
    tables = EXPERIMENTS[name].tables
    grids = zip(*(own.grids for own in sections), strict=True)
    made = (_mean(of_models, table.papers, models) for of_models, table in zip(grids, tables, strict=True))
    return Section(name, f"mean over {len(models)} models", tuple(made))


def _mean(grids: Sequence[Grid], papers: Sequence[Paper], models: Sequence[str]) -> Grid:
    titles = [head.title for head in grids[0].heads]
    printed = {row: values for paper in papers if paper.model == AVERAGED for row, values in paper.rows.items()}
    found = [_ours(grid) for grid in grids]
    rows: list[tuple[Head, Values]] = []
    for row in dict.fromkeys(row for own in found for row in own):
        there = [own[row] for own in found if row in own]
        values = (_over(models, [own.get(title) for own in there]) for title in titles)
        rows.append((Head(row), tuple(values)))
        if row in printed:
            blank = (None,) * (len(titles) - len(printed[row]))
            rows.append((Head(row, source=f"paper, {AVERAGED}"), (*printed[row], *blank)))
    notes = [
        f"Each figure is the mean over {listed(list(models))} ± the standard deviation over them.",
        "A model without a figure is left out of it; n counts models.",
    ]
    return Grid(grids[0].title, grids[0].corner, grids[0].heads, tuple(rows), tuple(notes))


def _ours(grid: Grid) -> dict[str, dict[str, Value | None]]:
    titles = [head.title for head in grid.heads]
    return {head.title: dict(zip(titles, values, strict=True)) for head, values in grid.rows if not head.source}


def _over(models: Sequence[str], values: Sequence[Value | None]) -> Value | None:
    known = [own.value for own in values if own is not None and own.value is not None]
    return Value.of(known, n=len(known), what="models") if known else None
