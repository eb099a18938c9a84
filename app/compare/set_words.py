"""What the compare page says of a comparison over a prompt set: means, rows, and how far the columns are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from markupsafe import Markup

from app.compare.chains import (
    MEANS,
    NONE,
    SetCell,
    SetColumn,
    SetComparison,
    SetOrder,
    SetRow,
    SetSummary,
    interval_words,
    memory,
)
from app.compare.words import DASH, FIGURE, columns_table
from app.prompts.rows import MeanInterval
from app.prompts.words import Message
from app.shared.format import count, day, level, plural
from app.shared.glossary import explained_titles
from app.shared.markup import from_file
from app.shared.policies import parameters_line, policy_name
from app.shared.settings_json import one_of, whole
from db.prompt_sets import PromptSetRecord

PAGE_ROWS = 50
ORDERS = get_args(SetOrder)


@dataclass(frozen=True, slots=True)
class SetQuery:
    """What of a comparison is shown, and in which order; the column counts from 0, the page from 1."""

    comparison: int
    order: SetOrder
    column: int
    descending: bool
    page: int


def set_query(given: Mapping[str, Any]) -> SetQuery:
    """A query as the browser gives it."""
    order: Any = one_of(given, "order", ORDERS)
    number, column, page = (whole(given, name) for name in ("set", "column", "page"))
    return SetQuery(number, order, column, bool(given.get("descending")), max(1, page))


def set_message(view: SetComparison, query: SetQuery) -> Message:
    """An open comparison: the asked-for page of its rows, and everything above them."""
    names = column_names(view.columns)
    pages = max(1, math.ceil(len(view.rows) / PAGE_ROWS))
    page = min(query.page, pages)
    shown = view.rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    first = (page - 1) * PAGE_ROWS + 1
    return {
        "kind": "set",
        "set": view.id,
        "name": view.name,
        "about": f"{view.filename}, {plural(len(view.rows), 'prompt')}, {day(view.created_at)}",
        "running": view.running,
        "cancellable": view.running and view.own,
        "resumable": view.resumable and view.own,
        "progress": [_progress(column, name, len(view.rows)) for column, name in zip(view.columns, names, strict=True)],
        "means": means_table(view.columns, names),
        "rows": rows_table(shown, names, query) + EXPLAINED,
        "where": f"{count(first)} to {count(first + len(shown) - 1)} of {count(len(view.rows))}",
        "page": page,
        "pages": pages,
        "notes": list(view.notes),
    }


def column_names(columns: Sequence[SetColumn]) -> list[str]:
    """A name of each column that no other one has."""
    names = [policy_name(column.settings.policy) for column in columns]
    return [
        name if names.count(name) == 1 else f"{name} ({_settings(column) or place})"
        for place, (name, column) in enumerate(zip(names, columns, strict=True), 1)
    ]


def sets_message(found: Sequence[SetSummary], stored: Sequence[PromptSetRecord]) -> Message:
    """Comparisons of earlier, and stored prompt sets."""
    return {
        "kind": "listed",
        "sets": [
            {"id": item.id, "name": item.name, "running": item.running,
             "about": f"{', '.join(map(policy_name, item.policies))}; {plural(item.rows, 'prompt')}, "
                      f"{day(item.created_at)}"}
            for item in found
        ],
        "stored": [[item.id, f"{item.filename}, {plural(item.row_count, 'prompt')}, {day(item.created_at)}"]
                   for item in stored],
    }  # fmt: skip


ONCE: tuple[tuple[str, Callable[[SetColumn], int | None]], ...] = (
    ("Weights of the model", lambda column: column.footprint.model_bytes if column.footprint else None),
    ("Weights of further models", lambda column: column.footprint.further_bytes if column.footprint else None),
    ("Device memory, measured peak of all that ran", lambda column: column.peak_bytes),
)
"""What is the same for all prompts; a line stands only where some column has a value."""


def means_rows(columns: Sequence[SetColumn], written: Callable[[str, str], str] = "{} ({})".format) -> list[list[str]]:
    """Means with 95 % intervals below their title; ``written`` puts a mean and what it rests on together."""

    def cell(item: MeanInterval, shown: Callable[[float], str]) -> str:
        return NONE if item.mean is None else written(shown(item.mean), interval_words(item, shown))

    by_measure = [{item.measure: item for item in column.means} for column in columns]
    lines = [
        [words, *(cell(own[measure], shown) for own in by_measure)]
        for measure, words, shown in MEANS
        if any(own[measure].mean is not None for own in by_measure)
    ]
    return lines + [[words, *(memory(read(own)) for own in columns)] for words, read in ONCE if any(map(read, columns))]


def means_table(columns: Sequence[SetColumn], names: Sequence[str]) -> Markup:
    """The means on the page."""
    rows = means_rows(columns, Markup('{} <span class="hint">{}</span>').format)
    return columns_table(FIGURE, names, rows, "setmeans", "Means of the columns", "n")


CELLS: tuple[tuple[str, str, str, Callable[[SetCell], str]], ...] = (
    ("Parts at", "parted_at", "First token that differs from column 1",
     lambda cell: cell_text(cell.parted, cell.parted_at)),
    ("From vanilla", "mean_tv_factual", "Total variation from vanilla, mean over the text",
     lambda cell: _decimal(cell.mean_tv_factual, 3)),
    ("Sensitivity", "mean_log_ratio", "Mean size of the log-ratio", lambda cell: _decimal(cell.mean_log_ratio, 2)),
    ("Fallbacks", "fallbacks", "Steps at which no token was certified",
     lambda cell: DASH if cell.fallbacks is None else count(cell.fallbacks)),
)  # fmt: skip
"""Title, what a click sorts by, what it means, and how it is written."""

EXPLAINED = explained_titles(title for title, *_ in CELLS)


def rows_table(rows: Sequence[SetRow], names: Sequence[str], query: SetQuery) -> Markup:
    """The prompts with each column's numbers; the first column parts from nothing."""
    shown = [CELLS[1:] if place == 0 else CELLS for place in range(len(names))]
    heads = [("Line", "line", 0, "Line in the file", ""), ("Prompt", "prompt", 0, "The prompt; opens its texts", "t")]
    heads += [
        (title, order, place, f"{names[place]}: {about}", "n" if number else "n first")
        for place, column in enumerate(shown)
        for number, (title, order, about, _) in enumerate(column)
    ]
    return from_file(
        "compare/set_rows.html",
        over=[(name, len(own)) for name, own in zip(names, shown, strict=True)],
        heads=heads,
        query=query,
        rows=[(row, " ".join(row.prompt.split()), list(zip(row.cells, shown, strict=True))) for row in rows],
    )


def _progress(column: SetColumn, name: str, total: int) -> Message:
    failed = f", {count(column.failed)} failed" if column.failed else ""
    job = column.job
    waits = job is not None and job.status == "queued"
    error = f" {job.error}" if job is not None and job.error else ""
    return {
        "name": name,
        "line": _settings(column),
        "share": (column.finished + column.failed) / max(1, total),
        "said": f"{count(column.finished)} of {count(total)}{failed}{', waits for its turn' if waits else ''}{error}",
        "batch": column.batch_id,
    }


def _settings(column: SetColumn) -> str:
    settings = column.settings
    parts = [parameters_line(settings)]
    if settings.policy.startswith("coft"):
        parts.append(f"λ {settings.lam:.2f}")
    if settings.calibration_id is not None:
        parts.append(f"α {level(settings.alpha)}")
    return ", ".join(part for part in parts if part)


def cell_text(parted: bool | None, at: int | None) -> str:
    """Where a chain parts from the first column's, once that is known."""
    return "…" if parted is None else "same" if at is None else count(at + 1)


def _decimal(value: float | None, digits: int) -> str:
    if value is None:
        return DASH
    return f"{value:.{digits}f}" if math.isfinite(value) else "∞"
