"""Tables of what evaluations keep: chosen, exported, and shown on a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from app.evaluate.runs import Done, EvaluationRequest, EvaluationView
from app.evaluate.table_service import TableRequest, TableService, usual_reference
from app.evaluate.terminal import print_table
from app.shared.errors import ServiceError
from coft_core.suites.base import Item
from coft_core.suites.files import DataError
from tests.app.evaluate.made import (
    CHOICES,
    COFT,
    VANILLA,
    Harm,
    Questions,
    main_table,
    method,
    questions,
    rights,
    text,
    texts,
    unread,
)


class Kept:
    """An evaluation of which some outcomes are kept; counts how often they are asked for."""

    def __init__(self, methods=(VANILLA, COFT)):
        self.request = EvaluationRequest("first", ("questions", "harm"), methods, "tiny")
        self.given = [
            questions("Vanilla", rights("rwrw")),
            questions("COFT", [*rights("rrrr"), unread("q9", "Too long.")]),
            texts("COFT", [text("a", 0.5)]),
        ]
        self.asked = 0
        self.lost = False

    def known_suites(self):
        return Questions(), Harm()

    def view(self, number):
        done = tuple(Done(part.suite, part.method, 0, len(part.outcomes), 9) for part in self.given)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return EvaluationView(number, "first", self.request, moment, None, done)

    def outcomes(self, number, suite, label):
        self.asked += 1
        found = [part.outcomes for part in self.given if (part.suite, part.method) == (suite, label)]
        return found[0] if found else ()

    def suite_outcomes(self, number, suite):
        self.asked += 1
        return {part.method: part.outcomes for part in self.given if part.suite == suite}

    def items(self, number, suite):
        if self.lost:
            raise DataError("The folder is gone; put it back.")
        return (Item("q000", "q000", (CHOICES,)),)


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def tables(kept):
    return TableService(kept, 1_000_000)


def test_a_table_has_the_main_figures_of_all_suites_or_every_figure_of_one_against_the_model_alone(tables, kept):
    assert [column.name for column in tables.table(TableRequest(1)).table.columns] == ["questions", "harm"]
    one = tables.table(TableRequest(1, "questions")).table
    assert [column.name for column in one.columns] == ["questions", "questions:length", "questions:accuracy:law"]
    assert usual_reference((COFT,)) is None
    references = [tables.table(TableRequest(1, reference=own)).table.reference for own in (None, "COFT", "")]
    assert references == ["Vanilla", "COFT", None]
    with pytest.raises(ServiceError, match=r"no suite 'bbq'; it has questions, harm"):
        tables.table(TableRequest(1, "bbq"))
    with pytest.raises(ServiceError, match="no method 'SDD'"):
        tables.table(TableRequest(1, reference="SDD"))


def test_a_table_is_made_again_only_where_something_was_added(tables, kept):
    first = tables.table(TableRequest(1)).table
    asked = kept.asked
    assert tables.table(TableRequest(1)).table is first
    assert kept.asked == asked
    kept.given[1] = questions("COFT", rights("rrrrr"))
    kept.given[2] = texts("COFT", [text("a", 0.5), text("b", 0.5)])
    assert tables.table(TableRequest(1)).table.row("COFT").cells[0].n == 5


def test_another_reference_asks_for_no_outcome_again_and_gives_the_table_that_would_be_made_anew(tables, kept):
    tables.table(TableRequest(1))
    asked = kept.asked
    again = tables.table(TableRequest(1, reference="COFT")).table
    assert kept.asked == asked
    assert again == main_table((Questions(), Harm()), (VANILLA, COFT), kept.given, reference="COFT")
    assert again != tables.table(TableRequest(1)).table


def test_working_a_table_out_tells_how_far_it_is_and_nothing_once_all_is_known(tables):
    assert list(tables.measuring(TableRequest(1))) == [(0, 2), (1, 2)]
    assert list(tables.measuring(TableRequest(1, reference=""))) == []
    assert list(tables.measuring(TableRequest(1, "questions"))) == [(0, 1)]
    assert list(tables.measuring(TableRequest(1, outside="zero"))) == [(0, 2), (1, 2)]
    with pytest.raises(ServiceError, match="no method 'SDD'"):
        list(tables.measuring(TableRequest(1, reference="SDD")))


def test_two_evaluations_stand_beside_each_other_with_their_methods_told_apart(tables):
    table = tables.beside(1, 2)
    labels = [row.method for row in table.rows]
    told = [f"(tiny, first, evaluation {number})" for number in (1, 2)]
    assert labels == [f"{method} {one}" for one in told for method in ("Vanilla", "COFT")]
    assert tables.beside(1, 2) is table
    assert tables.beside(1, 2, "questions").suite == "questions"


def test_every_format_is_written_with_its_own_ending(tables, tmp_path):
    for form, name in (("csv", "evaluation-1.csv"), ("latex", "evaluation-1.tex"), ("html", "evaluation-1.html")):
        path = tables.write(TableRequest(1), form, tmp_path)
        assert path.name == name
        assert path.read_bytes().decode("utf-8") == tables.content(TableRequest(1), form)
    assert tables.write(TableRequest(1, "harm"), "json", tmp_path).name == "evaluation-1-harm.json"


def test_a_results_file_holds_every_suite_and_on_request_its_items(tables, kept):
    found = json.loads(tables.content(TableRequest(1), "json"))
    assert list(found["results"]) == ["questions", "harm"]
    assert "samples" not in found
    found = json.loads(tables.content(TableRequest(1, samples=True), "json"))
    first = next(sample for sample in found["samples"]["questions"] if sample["doc"]["id"] == "q000")
    assert first["arguments"] == [["Who?", " she"], ["Who?", " he"]]
    assert found["evaluation"]["unknown"] == {}
    kept.lost = True
    found = json.loads(tables.content(TableRequest(1, "questions", samples=True), "json"))
    assert len(found["samples"]["questions"]) == 9
    assert found["evaluation"]["unknown"]["questions"].endswith("The folder is gone; put it back.")
    with pytest.raises(ServiceError, match="the samples"):
        tables.content(TableRequest(1, samples=True), "csv")


def test_a_terminal_shows_figures_and_labels_as_they_are_on_lines_as_long_as_they_come(tables, capsys):
    print_table(tables.table(TableRequest(1)))
    said = capsys.readouterr().out
    assert {"100.0*" in said, "Δ +50.0 [" in said, "1 of 5 items" in said} == {True}
    methods = tuple(method(f"[red]a method[/red] with a long label\u202e, the {place}th") for place in range(9))
    kept = Kept(methods)
    kept.given = [questions(own.label, rights("rw")) for own in methods]
    print_table(TableService(kept, 1).table(TableRequest(1, "questions")))
    head = next(line for line in capsys.readouterr().out.splitlines() if "Figure" in line)
    assert all(own.label.replace("\u202e", "[U+202E]") in head for own in methods)
