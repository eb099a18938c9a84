"""Tables as CSV, LaTeX and HTML: complete, harmless, and the same for the same outcomes."""

from __future__ import annotations

import csv
import io
import re

from app.evaluate.exports import latex_text, table_csv, table_html, table_latex
from app.evaluate.layout import Elsewhere, Published, laid_out, readings_laid_out
from tests.app.evaluate.made import (
    COFT,
    VANILLA,
    Harm,
    Questions,
    main_table,
    method,
    questions,
    rights,
    suite_table,
    text,
    texts,
    unread,
    view_of,
)

GIVEN = [
    questions("Vanilla", [*rights("rw" * 10, 0), *rights("rrww" * 5, 1)]),
    questions("COFT", [*rights("r" * 20, 0), unread("q900", "Too long."), *rights("r" * 20, 1)]),
    texts("Vanilla", [text(f"t{place}", 0.5) for place in range(5)]),
    texts("COFT", [text("t0", None), *(text(f"t{place}", 0.25) for place in range(1, 5))]),
]
TABLE = main_table([Questions(), Harm()], [VANILLA, COFT], GIVEN, reference="Vanilla")
VIEW = view_of(VANILLA, COFT)
PAPER = Elsewhere(
    "paper",
    {
        "COFT": {"questions": Published(71.1), "harm": Published(0.079)},
        "SDD": {"questions:accuracy": Published(70.5)},
    },
)


def rows_of(csv_text):
    return list(csv.DictReader(io.StringIO(csv_text, newline="")))


def test_a_row_of_the_csv_holds_every_number_of_a_cell():
    rows = {(row["method"], row["suite"]): row for row in rows_of(table_csv(TABLE))}
    row, cell = rows["COFT", "questions"], TABLE.row("COFT").cells[0]
    assert float(row["value"]) == cell.value == 100.0
    assert [float(row[name]) for name in ("low", "high", "rank")] == [cell.low, cell.high, 1.0]
    assert (row["n"], row["unscored"], row["items"], row["unread"]) == ("40", "0", "41", "1")
    assert row["unread_reasons"] == "1: Too long."
    assert row["seeds"] == "0=100.0 1=100.0"
    assert (row["best"], row["reference"]) == ("true", "Vanilla")
    assert float(row["difference"]) == 50.0
    assert rows["Vanilla", "questions"]["difference"] == ""
    assert (rows["COFT", "harm"]["unscored"], rows["COFT", "harm"]["deviation"]) == ("1", "")


def test_published_figures_have_columns_of_their_own_and_touch_no_other_number():
    own, beside = rows_of(table_csv(TABLE)), rows_of(table_csv(TABLE, [PAPER]))
    added = {"published in paper", "deviation in paper"}
    both = [{name: value for name, value in row.items() if name not in added} for row in beside]
    assert [row for row in both if row["method"] != "SDD"] == own
    published = {(row["method"], row["suite"]): row["published in paper"] for row in beside}
    assert published["COFT", "questions"] == "71.1"
    assert published["Vanilla", "questions"] == ""
    sdd = next(row for row in beside if row["method"] == "SDD")
    assert (sdd["published in paper"], sdd["value"], sdd["rank"]) == ("70.5", "", "")


def test_published_figures_follow_the_same_method_without_rank_or_mark():
    layout = laid_out(TABLE, [PAPER])
    assert [(head.title, head.source) for head, _ in layout.lines] == [
        ("Vanilla", ""), ("COFT", ""), ("COFT", "paper"), ("SDD", "paper"),
    ]  # fmt: skip
    assert [shown.text for shown in layout.lines[0][1][2:]] == ["2.0", "2.0"]
    published = layout.lines[2][1]
    assert [shown and shown.text for shown in published] == ["71.1", "0.079", None, None]
    assert not any(shown.best for shown in published if shown)
    turned = laid_out(suite_table(Questions(), [VANILLA, COFT], GIVEN), [PAPER])
    assert [head.title for head in turned.heads] == ["Vanilla", "COFT", "COFT", "SDD"]
    assert [head.title for head, _ in turned.lines] == ["Accuracy", "Tokens of the answers", "Accuracy: law"]
    assert [shown.text for shown in turned.lines[0][1]] == ["50.0", "100.0", "71.1", "70.5"]


def test_what_was_read_has_a_line_for_each_suite_and_method():
    layout = readings_laid_out(TABLE)
    assert [head.title for head in layout.heads] == [
        "Items, all seeds", "No answer", "Nothing masked", "Refused", "Empty",
    ]  # fmt: skip
    lines = {head.title: [shown and shown.text for shown in line] for head, line in layout.lines}
    assert list(lines) == ["Questions: Vanilla", "Questions: COFT", "Harm: Vanilla", "Harm: COFT"]
    assert lines["Questions: COFT"] == ["41", "1", "0.0 %", "0.0 %", "0.0 %"]
    assert lines["Questions: Vanilla"] == ["40", "0", "0.0 %", None, None]


def test_latex_sets_every_character_as_it_is():
    for plain, written in (
        (r"a\b", r"a\textbackslash{}b"),
        ("50 % of $1 & #2_x", r"50 \% of \$1 \& \#2\_x"),
        ("{~^}", r"\{\textasciitilde{}\textasciicircum{}\}"),
        ("one\n%two", r"one \%two"),
        ("λ ≤", r"$\lambda$ ≤"),
    ):
        assert latex_text(plain) == written


def test_latex_marks_the_best_and_sets_deviations_small():
    written = table_latex(VIEW, TABLE)
    line = next(line for line in written.splitlines() if line.startswith("COFT"))
    assert r"\textbf{100.0}{\scriptsize $\pm$0.0}" in line
    assert r"\textbf{0.250}{\scriptsize [0.250, 0.250]}" in line
    vanilla = next(line for line in written.splitlines() if line.startswith("Vanilla"))
    assert r"\textbf" not in vanilla
    assert [written.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


def test_files_hold_what_a_person_named_as_text_and_nothing_else():
    label = r"a & b \\ % <b>x</b>{x}" + "\u202e"
    table = main_table([Questions()], [method(label)], [questions(label, rights("rw"))])
    view = view_of(method(label), name="50 % & more\n\\input{x}<script>1</script>")
    latex, html = table_latex(view, table, [PAPER]), table_html(view, table, [PAPER])
    rows = [line for line in latex.splitlines() if line.endswith(r" \\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {2}
    assert r"\input" not in latex
    assert not re.search(r"(?<!\\)%", latex.split("\n", 1)[1])
    assert not re.search(r"<script|<b>x|\u202e|(src|href)=", html)
    assert {"&lt;b&gt;x&lt;/b&gt;{x}[U+202E]" in html, 'data-value="50.0"' in html} == {True}
