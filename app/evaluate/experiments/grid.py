"""A table of an experiment: our numbers with the paper's rows below them, and the sentences that belong to it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Any

import numpy as np

from app.evaluate import words
from app.evaluate.layout import Head, Layout, Shown, figure_shown
from app.shared.format import count, listed
from app.shared.operations import Json
from coft_core.assets import assets_path
from coft_core.experiments.choice import Selection
from coft_core.suites.base import Figure


@dataclass(frozen=True, slots=True)
class Value:
    """A number of a table; its deviation is over seeds."""

    value: float | None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    what: str = ""
    unscored: int = 0

    @classmethod
    def of(cls, values: Iterable[float | None], **rest: Any) -> Value:
        """The mean and deviation of seeds' values."""
        present = [value for value in values if value is not None]
        spread = stdev(present) if len(present) > 1 and np.isfinite(present).all() else None
        return cls(fmean(present) if present else None, spread, **rest)

    @classmethod
    def of_figure(cls, figure: Figure, deviation: float | None = None) -> Value:
        """A figure of all seeds together."""
        return cls(figure.value, deviation, figure.low, figure.high, figure.n, figure.what, figure.unscored)

    def shown(self, digits: int) -> Shown:
        """It as text, and what it rests on."""
        over = f"over {count(self.n)} {self.what}" if self.what else ""
        missing = f"{count(self.unscored)} could not be scored" if self.unscored else ""
        said = "; ".join(part for part in (over, missing) if part)
        said = f"{said[:1].upper()}{said[1:]}." if said else ""
        return figure_shown(self.value, digits, self.deviation, self.low, self.high, said=said)


Values = tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A row of our own; ``paper`` names the paper's row that follows it."""

    head: str
    values: Values
    paper: str = ""


# What the paper says.


@dataclass(frozen=True, slots=True)
class Paper:
    """The figures that the paper reports for one model."""

    model: str
    source: str
    rows: Mapping[str, Values]


@cache
def published() -> Mapping[str, tuple[Paper, ...]]:
    """The paper's figures as they were printed, by table, a model after the other."""
    found: dict[str, dict[tuple[str, str], dict[str, Values]]] = {}
    with assets_path("experiments", "published.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows = found.setdefault(row["table"], {}).setdefault((row["model"], row["source"]), {})
            rows[row["row"]] = tuple(map(_printed, row["figures"].split()))
    return {table: tuple(Paper(*about, rows) for about, rows in own.items()) for table, own in found.items()}


def _printed(text: str) -> Value | None:
    """A figure, which may have a standard deviation as in ``0.43±0.01``; a hyphen is none."""
    value, _, deviation = text.partition("±")
    return None if text == "-" else Value(float(value), float(deviation) if deviation else None)


def chosen_paper(papers: Sequence[Paper], model: str) -> Paper | None:
    """The paper's figures for the evaluated model, or for its first model if it did not test this one."""
    own = [paper for paper in papers if _plain(paper.model) in _plain(model)]
    return next(iter(own[-1:] or papers[:1]), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# Pictures, as the numbers that they show.


@dataclass(frozen=True, slots=True)
class Front:
    """Bias against utility of swept values."""

    knob: str
    selection: Selection


@dataclass(frozen=True, slots=True)
class Levels:
    """Miscoverage by the risk level that was asked for, ours and that of the paper."""

    measured: Mapping[float, Value]
    published: Mapping[float, Value]
    source: str


@dataclass(frozen=True, slots=True)
class Chains:
    """Miscoverage of whole chains by risk level and length."""

    levels: Mapping[float, Mapping[int, Value]]


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second and overhead by method, against a size where there is one."""

    size: str
    series: Mapping[str, Mapping[str, tuple[Value, Value | None]]]


@dataclass(frozen=True, slots=True)
class Curves:
    """A share between 0 and 1 by method against a size."""

    across: str
    up: str
    series: Mapping[str, Mapping[float, Value]]


Picture = Curves | Front | Levels | Chains | Speeds


# The table.


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; heads of the paper's rows have a source."""

    title: str
    corner: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Head, Values], ...]
    notes: tuple[str, ...]
    picture: Picture | None = None

    @property
    def layout(self) -> Layout:
        """The table as texts; our numbers and the paper's may be of other sizes, and have decimals of their own."""
        columns = range(len(self.heads))
        digits = {
            printed: [
                words.digits_for(
                    own.value for head, row in self.rows if bool(head.source) is printed and (own := row[at])
                )
                for at in columns
            ]
            for printed in (False, True)
        }
        lines = tuple(
            (head, tuple(own.shown(digits[bool(head.source)][at]) if (own := row[at]) else None for at in columns))
            for head, row in self.rows
        )
        return Layout(self.corner, self.heads, lines)

    def cells(self) -> Iterator[dict[str, object]]:
        """One row a cell, as it is exported."""
        for row, values in self.rows:
            for column, value in zip(self.heads, values, strict=True):
                if value is not None:
                    place = {"table": self.title, "row": row.title, "source": row.source, "column": column.title}
                    yield {**place, **asdict(value)}

    def json(self) -> Json:
        """The table as plain JSON."""
        return {
            "title": self.title,
            "columns": [head.title for head in self.heads],
            "rows": [
                {
                    "head": head.title,
                    "source": head.source,
                    "cells": [None if cell is None else asdict(cell) for cell in cells],
                    "numbers": [None if value is None else asdict(value) for value in values],
                }
                for (head, cells), (_, values) in zip(self.layout.lines, self.rows, strict=True)
            ],
            "notes": list(self.notes),
        }


def paper_note(papers: Sequence[Paper], shown: Paper | None) -> str:
    """Which model the paper's rows are of, and which others it has."""
    if shown is None:
        return "The paper has no figures for this table."
    others = [paper.model for paper in papers if paper is not shown]
    about = f"The paper's rows are of {shown.model} ({shown.source}), as they were printed"
    return f"{about}; it also has {listed(others)}." if others else f"{about}."
