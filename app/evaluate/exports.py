"""Tables of evaluations as files: CSV, LaTeX and HTML, and as plain JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.evaluate import words
from app.evaluate.layout import Elsewhere, Head, Layout, Shown, laid_out, readings_laid_out
from app.evaluate.measured import SuiteReading
from app.evaluate.runs import EvaluationMethod, EvaluationView, SuitePlan
from app.evaluate.tables import Cell, Column, Row, Table
from app.shared.files import to_csv
from coft_core.assets import assets_path
from coft_core.effects import visible


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What is said above a table."""

    name: str
    model: str
    methods: tuple[EvaluationMethod, ...] = ()
    plans: tuple[SuitePlan, ...] = ()

    @classmethod
    def of(cls, view: EvaluationView) -> Evaluated:
        """That of an evaluation."""
        return cls(view.name, view.request.model, view.request.methods, view.plans)


# CSV.

CSV_COLUMNS = (
    "method", "suite", "figure", "part", "title", "what", "better", "value", "deviation", "pooled", "low", "high", "n",
    "unscored", "seeds", "rank", "best", "reference", "difference", "difference_low", "difference_high", "outside",
    "items", "unread", "unread_reasons", "compared", "unmasked", "refused", "empty",
)  # fmt: skip
"""One row a method and figure; average ranks stand below, with the kind of suites as their part."""

AVERAGE = "average_rank"


def table_csv(table: Table, elsewhere: Sequence[Elsewhere] = ()) -> str:
    """The table as RFC 4180 text, safe in a spreadsheet; figures from elsewhere in columns of their own."""
    columns = [name for other in elsewhere for name in _published_columns(other)]
    rows = [*_cell_rows(table, elsewhere), *_average_rows(table)]
    empty = dict.fromkeys((*CSV_COLUMNS, *columns))
    return to_csv((*CSV_COLUMNS, *columns), ({**empty, **row} for row in rows))


def _published_columns(other: Elsewhere) -> tuple[str, str]:
    return f"published in {other.source}", f"deviation in {other.source}"


def _cell_rows(table: Table, elsewhere: Sequence[Elsewhere]) -> Iterator[dict[str, object]]:
    known = {row.method: row for row in table.rows}
    for label in dict.fromkeys([*known, *(label for other in elsewhere for label in other.values)]):
        for place, column in enumerate(table.columns):
            cell = known[label].cells[place] if label in known else None
            published = _published_cells(label, column, elsewhere)
            if cell is None and not published:
                continue
            told: dict[str, object] = {"method": label, **_column_cells(column), **published}
            if cell is not None:
                told |= {"outside": table.outside, **_figure_cells(cell, table), **_readings(known[label], column)}
            yield told


def _published_cells(label: str, column: Column, elsewhere: Sequence[Elsewhere]) -> dict[str, object]:
    return {
        name: value
        for other in elsewhere
        if (found := other.value(label, column)) is not None
        for name, value in zip(_published_columns(other), (found.value, found.deviation), strict=True)
    }


def _column_cells(column: Column) -> dict[str, object]:
    return {name: getattr(column, name) for name in ("suite", "figure", "part", "title", "what", "better")}


def _figure_cells(cell: Cell, table: Table) -> dict[str, object]:
    names = ("value", "deviation", "pooled", "low", "high", "n", "unscored", "rank")
    told: dict[str, object] = {name: getattr(cell, name) for name in names}
    told["seeds"] = " ".join(f"{seed.seed}={seed.value!r}" for seed in cell.seeds if seed.value is not None)
    told["best"] = None if cell.rank is None else cell.best
    if cell.contrast is not None:
        told["reference"] = table.reference
        told |= dict(zip(("difference", "difference_low", "difference_high"), _ends(cell), strict=True))
    return told


def _ends(cell: Cell) -> tuple[float | None, ...]:
    return (None, None, None) if cell.contrast is None else (cell.contrast.value, cell.contrast.low, cell.contrast.high)


def _readings(row: Row, column: Column) -> dict[str, object]:
    reading = next(reading for reading in row.readings if reading.suite == column.suite)
    names = ("items", "unread", "compared", "unmasked", "refused", "empty")
    return {**{name: getattr(reading, name) for name in names}, "unread_reasons": _reasons(reading)}


def _reasons(reading: SuiteReading) -> str:
    return " | ".join(f"{number}: {reason}" for reason, number in reading.reasons)


def _average_rows(table: Table) -> Iterator[dict[str, object]]:
    for row in table.rows:
        for average in row.averages:
            yield {
                "method": row.method, "figure": AVERAGE, "part": average.kind, "title": words.average_title(average),
                "what": "figures", "better": "lower", "value": average.value, "deviation": average.deviation,
                "n": average.columns, "seeds": " ".join(f"{seed}={value!r}" for seed, value in average.seeds),
            }  # fmt: skip


# LaTeX.

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "\N{MINUS SIGN}": "$-$", "±": r"$\pm$", "λ": r"$\lambda$",
    "α": r"$\alpha$", "τ": r"$\tau$", "Δ": r"$\Delta$", "\N{INFINITY}": r"$\infty$",
    "\N{UPWARDS ARROW}": r"$\uparrow$", "\N{DOWNWARDS ARROW}": r"$\downarrow$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$", "\N{EN DASH}": "--", "\N{EM DASH}": "---",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}", "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''", "\N{LEFT SINGLE QUOTATION MARK}": "`",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}",
    "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip


def latex_text(text: str) -> str:
    """A text as LaTeX sets it, on one line; nothing in it is a command."""
    return "".join(_LATEX.get(char, char) for char in re.sub(r"\s+", " ", visible(text)).strip())


def table_latex(table: Table, evaluated: Evaluated, elsewhere: Sequence[Elsewhere] = ()) -> str:
    """The table for a paper, with its notes below; needs the packages booktabs and textcomp."""
    layout = laid_out(table, elsewhere)
    notes = words.notes(table, evaluated.plans, bool(elsewhere), short=True)
    return layout_latex(layout, f"{evaluated.name}: {evaluated.model}", notes)


def layout_latex(layout: Layout, caption: str, notes: Sequence[str]) -> str:
    """A table of texts for a paper, with its notes below; needs the packages booktabs and textcomp."""
    heads = [layout.corner, *(_latex_head(head) for head in layout.heads)]
    lines = [
        "% \\usepackage{booktabs,textcomp}",
        "\\begin{table}[t]",
        "\\centering",
        f"\\caption{{{latex_text(caption)}}}",
        "\\small",
        f"\\begin{{tabular}}{{l{'r' * len(layout.heads)}}}",
        "\\toprule",
        f"{' & '.join(heads)} \\\\",
        "\\midrule",
        *(f"{' & '.join([_latex_head(head), *map(_latex_cell, shown)])} \\\\" for head, shown in layout.lines),
        "\\bottomrule",
        "\\end{tabular}",
        "",
        "\\smallskip",
        "\\begin{minipage}{\\linewidth}\\footnotesize",
        *(f"{latex_text(note)}\\par" for note in notes),
        "\\end{minipage}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_head(head: Head) -> str:
    title = latex_text(f"{head.title} {head.arrow}")
    return f"\\emph{{{title} ({latex_text(head.source)})}}" if head.source else title


def _latex_cell(shown: Shown | None) -> str:
    """The mean with a small deviation, or with a small interval where there is none."""
    if shown is None:
        return "--"
    small = f"$\\pm${latex_text(shown.deviation)}" if shown.deviation else latex_text(shown.interval)
    number = latex_text(shown.text)
    strong = f"\\textbf{{{number}}}" if shown.best else number
    return f"{strong}{{\\scriptsize {small}}}" if small else strong


# HTML.


def table_fragment(layout: Layout, caption: str, name: str = "figures") -> Markup:
    """A table's markup for any page; cells hold their numbers in ``data-value``, so that columns can be sorted."""
    return Markup(_environment().get_template("evaluation_table.html.j2").render(layout=layout, caption=caption,
                                                                                 name=name))  # fmt: skip


def table_html(table: Table, evaluated: Evaluated, elsewhere: Sequence[Elsewhere] = ()) -> str:
    """The table as one HTML file that needs nothing else."""
    return page_html(
        "evaluation.html.j2",
        evaluated=evaluated,
        figures=table_fragment(laid_out(table, elsewhere), "Figures"),
        readings=table_fragment(readings_laid_out(table), "What was read", "readings"),
        notes=words.notes(table, evaluated.plans, bool(elsewhere)),
        reading_notes=words.reading_notes(table),
        methods=[(method.label, words.method_sentence(method)) for method in evaluated.methods],
    )


def page_html(template: str, **values: object) -> str:
    """One HTML file that needs nothing else, from a template of ``assets/reports`` whose values are escaped."""
    folder = assets_path("reports")
    style = Markup("".join((folder / name).read_text("utf-8") for name in ("report.css", "evaluation.css")))
    return _environment().get_template(template).render(style=style, **values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(str(assets_path("reports"))),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


# JSON.


def table_json(table: Table) -> dict[str, Any]:
    """A table as plain JSON, without draws; what is not finite is null."""
    return {
        "suite": table.suite,
        "outside": table.outside,
        "reference": table.reference,
        "seeds": list(table.seeds),
        "absent": list(table.absent),
        "columns": [{"name": column.name, **asdict(column)} for column in table.columns],
        "rows": [_row_json(row, table.columns) for row in table.rows],
    }


def json_text(content: Mapping[str, Any]) -> str:
    """JSON of a file."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def finite(value: Any) -> Any:
    """The same with null in place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _row_json(row: Row, columns: Sequence[Column]) -> dict[str, Any]:
    return {
        "method": row.method,
        "certifies": row.certifies,
        "cells": {
            column.name: _cell_json(cell) for column, cell in zip(columns, row.cells, strict=True) if cell is not None
        },
        "readings": {reading.suite: finite(asdict(reading)) for reading in row.readings},
        "average_ranks": [finite({**asdict(average), "deviation": average.deviation}) for average in row.averages],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    plain = {item.name: getattr(cell, item.name) for item in fields(Cell) if item.name != "draws"}
    contrast = None if cell.contrast is None else {**asdict(cell.contrast), "noise": cell.contrast.noise}
    seeds = [asdict(seed) for seed in cell.seeds]
    return {name: finite(value) for name, value in {**plain, "contrast": contrast, "seeds": seeds}.items()}
