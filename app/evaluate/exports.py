"""Tables of evaluations as files: CSV, LaTeX and HTML, and as plain JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from markupsafe import Markup

from app.evaluate import words
from app.evaluate.layout import Elsewhere, Head, Layout, Shown, labels_of, laid_out, readings_laid_out
from app.evaluate.runs import EvaluationView
from app.evaluate.tables import Cell, Column, Row, Table
from app.shared.exported import fragment, page
from app.shared.files import to_csv
from coft_core.effects import visible
from coft_core.step_numbers import finite

# CSV.

CSV_COLUMNS = (
    "method", "suite", "figure", "part", "title", "what", "better", "value", "deviation", "pooled", "low", "high", "n",
    "unscored", "seeds", "rank", "best", "reference", "difference", "difference_low", "difference_high", "outside",
    "items", "unread", "unread_reasons", "compared", "unmasked", "refused", "empty",
)  # fmt: skip
"""One row a method and figure; average ranks come last, with the kind of suites as their part."""

AVERAGE = "average_rank"


def table_csv(table: Table, elsewhere: Sequence[Elsewhere] = ()) -> str:
    """The table as RFC 4180 text, safe in a spreadsheet; figures from elsewhere in columns of their own."""
    sources = [(other, f"published in {other.source}", f"deviation in {other.source}") for other in elsewhere]
    columns = (*CSV_COLUMNS, *(name for _, *names in sources for name in names))
    known = {row.method: row for row in table.rows}
    rows: list[dict[str, object]] = []
    for label in labels_of(table, elsewhere):
        for place, column in enumerate(table.columns):
            found = [(own, *names) for other, *names in sources if (own := other.value(label, column)) is not None]
            told: dict[str, object] = {}
            for own, value, deviation in found:
                told |= {value: own.value, deviation: own.deviation}
            cell = known[label].cells[place] if label in known else None
            if cell is not None:
                told |= _figure_cells(cell, table) | _reading_cells(known[label], column)
            if told:
                rows.append(told | {"method": label} | _picked(column, COLUMN_NAMES))
    return to_csv(columns, (dict.fromkeys(columns) | row for row in (*rows, *_average_rows(table))))


COLUMN_NAMES = ("suite", "figure", "part", "title", "what", "better")


def _picked(record: object, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(record, name) for name in names}


def _figure_cells(cell: Cell, table: Table) -> dict[str, object]:
    told = _picked(cell, ("value", "deviation", "pooled", "low", "high", "n", "unscored", "rank"))
    told["outside"] = table.outside
    told["seeds"] = " ".join(f"{seed.seed}={seed.value!r}" for seed in cell.seeds if seed.value is not None)
    told["best"] = None if cell.rank is None else cell.best
    if (contrast := cell.contrast) is not None:
        told |= {"reference": table.reference, "difference": contrast.value}
        told |= {"difference_low": contrast.low, "difference_high": contrast.high}
    return told


def _reading_cells(row: Row, column: Column) -> dict[str, object]:
    reading = next(reading for reading in row.readings if reading.suite == column.suite)
    told = _picked(reading, ("items", "unread", "compared", "unmasked", "refused", "empty"))
    return told | {"unread_reasons": " | ".join(f"{number}: {reason}" for reason, number in reading.reasons)}


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


def table_latex(view: EvaluationView, table: Table, elsewhere: Sequence[Elsewhere] = ()) -> str:
    """The table for a paper, with its notes below; needs the packages booktabs and textcomp."""
    notes = words.notes(table, view.plans, bool(elsewhere), short=True)
    return layout_latex(laid_out(table, elsewhere), f"{view.name}: {view.request.model}", notes)


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
STYLES = ("report.css", "evaluation.css")


def table_fragment(layout: Layout, caption: str, name: str = "figures") -> Markup:
    """A table's markup for any page; cells hold their numbers in ``data-value``, so that columns can be sorted."""
    return fragment("evaluation_table.html.j2", layout=layout, caption=caption, name=name)


def table_html(view: EvaluationView, table: Table, elsewhere: Sequence[Elsewhere] = ()) -> str:
    """The table as one HTML file that needs nothing else."""
    return page(
        "evaluation.html.j2",
        STYLES,
        view=view,
        figures=table_fragment(laid_out(table, elsewhere), "Figures"),
        readings=table_fragment(readings_laid_out(table), "What was read", "readings"),
        notes=words.notes(table, view.plans, bool(elsewhere)),
        reading_notes=words.reading_notes(table),
        methods=[(method.label, words.method_sentence(method)) for method in view.request.methods],
    )


# JSON.


def table_json(table: Table) -> dict[str, Any]:
    """A table as plain JSON, without draws; what is not finite is null."""
    columns = [{"name": column.name, **asdict(column)} for column in table.columns]
    told = {name: getattr(table, name) for name in ("suite", "outside", "reference", "seeds", "absent")}
    return finite({**told, "columns": columns, "rows": [_row_json(row, table.columns) for row in table.rows]})


def json_text(content: Mapping[str, Any]) -> str:
    """JSON of a file."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def _row_json(row: Row, columns: Sequence[Column]) -> dict[str, Any]:
    cells = {column.name: cell for column, cell in zip(columns, row.cells, strict=True) if cell is not None}
    return {
        "method": row.method,
        "certifies": row.certifies,
        "cells": {name: _cell_json(cell) for name, cell in cells.items()},
        "readings": {reading.suite: asdict(reading) for reading in row.readings},
        "average_ranks": [{**asdict(average), "deviation": average.deviation} for average in row.averages],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    told: dict[str, Any] = {name: own for name, own in asdict(replace(cell, draws=None)).items() if name != "draws"}
    if cell.contrast is not None:
        told["contrast"] |= {"noise": cell.contrast.noise}
    return told
