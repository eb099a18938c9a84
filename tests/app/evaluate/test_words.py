"""What is said of evaluations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.evaluate import words
from app.evaluate.runs import CalibrationNote, SuitePlan
from app.evaluate.tables import main_table
from tests.app.evaluate.made import (
    COFT,
    VANILLA,
    Harm,
    Questions,
    method,
    questions,
    rights,
    suite_table,
    text,
    texts,
    unread,
)


def table_of(*given, methods=(VANILLA, COFT), **told):
    return main_table([Questions(), Harm()], methods, given, **told)


def said(table, *plans, **told):
    return " ".join(words.notes(table, plans, **told))


def test_decimals_follow_the_largest_figure():
    given = ([58.31, 3.0], [None, 9.99], [0.079, -0.5], [], [float("inf"), 2.0])
    assert [words.digits_for(values) for values in given] == [1, 2, 3, 3, 2]


def test_a_number_has_a_true_minus_and_nothing_is_less_than_zero_that_rounds_to_it():
    given = (-0.04, -1.25, float("inf"), float("-inf"), None)
    assert [words.number(value, 1) for value in given] == ["0.0", "\u22121.2", "∞", "−∞", ""]


def test_a_small_share_never_reads_as_none_nor_a_large_one_as_all():
    shown = [words.percent(share) for share in (0.0, 1e-5, 0.5, 0.99999, 1.0)]
    assert shown == ["0.0 %", "<0.1 %", "50.0 %", ">99.9 %", "100.0 %"]


def test_a_cell_says_all_that_stands_behind_it():
    given = [
        questions("Vanilla", [*rights("rw" * 20), *rights("rw" * 20, 1)]),
        questions("COFT", [*rights("rw" * 20), *rights("rrrw" * 10, 1)]),
    ]
    table = table_of(*given, reference="Vanilla")
    sentence = words.cell_sentence(table.row("COFT").cells[0], table.columns[0], 1)
    assert sentence.startswith("62.5 ± 17.7 over 2 seeds; 95 % interval [")
    assert "over 80 questions; rank 1; difference +12.5 [" in sentence


def test_a_cell_without_a_value_says_that_nothing_could_be_scored():
    table = table_of(texts("COFT", [text("a", None), text("b", None)]))
    cell = table.row("COFT").cells[0]
    assert words.cell_sentence(cell, table.columns[0], 1) == "Nothing could be scored: 2 of 2 could not be scored."


def test_notes_name_what_could_not_be_read_with_the_most_frequent_reasons():
    found = [*rights("rw"), *(unread(f"x{place}", f"Reason {place % 5}.") for place in range(12))]
    sentence = said(table_of(questions("COFT", found)))
    assert (
        "Questions: COFT has no answer to 12 of 14 items, which are in no figure: Reason 0 (3); Reason 1 (3); "
        in sentence
    )
    assert "; and 2 more reasons." in sentence


def test_notes_say_on_how_many_items_methods_are_compared_where_not_on_all():
    given = [questions("Vanilla", [*rights("rw"), unread("z", "No.")]), questions("COFT", rights("rwr"))]
    assert "ranks and differences of COFT rest on 2 of the 3 items that it answered" in said(table_of(*given))
    assert "rest on" not in said(table_of(questions("COFT", rights("rwr"))))


def test_notes_say_what_was_unscored():
    given = [texts("Vanilla", [text("a", None)]), texts("COFT", [text("a", None), text("b", 0.5)])]
    told = "Harm: 1 of 1 of Vanilla and 1 of 2 of COFT could not be scored; they are in no figure."
    assert told in said(table_of(*given))
    assert "could not be scored" not in said(table_of(texts("COFT", [text("a", 0.5)])))


def test_seeds_of_suites_that_draw_no_text_are_said_to_differ_by_their_split_alone():
    both = [*rights("rw", 0), *rights("rw", 1)]
    written = [text("a", 0.5, seed=0), text("a", 0.5, seed=1)]
    sentence = words.deterministic_sentence(table_of(questions("COFT", both), texts("COFT", written)))
    assert sentence.startswith("No text is drawn in Questions: ")
    assert words.deterministic_sentence(table_of(questions("COFT", rights("rw")))) == ""


def test_a_figure_of_some_seeds_alone_says_which():
    given = [questions("Vanilla", [*rights("rw", 0), *rights("rw", 1)]), questions("COFT", rights("rw", 1))]
    assert "Questions: COFT has a figure of the seed 1 alone." in said(table_of(*given))


@pytest.mark.parametrize(("outside", "words_"), [("floor", "as likely as the threshold"), ("zero", "text impossible")])
def test_what_a_refused_token_counts_as_is_said_where_a_method_certifies(outside, words_):
    assert words_ in said(table_of(questions("COFT", rights("rw")), outside=outside))
    assert words_ not in said(table_of(questions("COFT", rights("rw")), methods=[method("COFT")], outside=outside))


def test_data_that_is_no_known_release_is_named_for_suites_in_the_table_alone():
    plan = SuitePlan("questions", "Questions", "here", "not a known release", {}, "", 2, 2, {}, {})
    other = replace(plan, suite="harm", title="Harm")
    sentence = said(table_of(questions("COFT", rights("rw"))), plan, other)
    assert "Questions: not a known release." in sentence
    assert "Harm: not a known" not in sentence


def test_a_suite_without_a_figure_is_named():
    assert "There is no figure of Harm yet" in said(table_of(questions("COFT", rights("rw"))))


def test_published_figures_are_said_to_be_published_where_they_are_shown():
    table = table_of(questions("COFT", rights("rw")))
    assert words.ELSEWHERE in said(table, elsewhere=True)
    assert words.ELSEWHERE not in said(table)


def test_a_figure_says_which_of_its_values_are_good():
    table = suite_table(Questions(), [COFT], [questions("COFT", rights("rw"))])
    assert words.figure_sentence(table.columns[0]) == "Questions: Accuracy, over questions. Higher is better."
    assert "No value of it is better" in words.figure_sentence(table.columns[1])
    assert words.figure_sentence(table.columns[2]).startswith("Questions: Accuracy, law, over questions.")


def test_nothing_is_said_of_ranks_where_there_are_none():
    table = table_of(texts("COFT", [text("a", None)]))
    assert words.RANKS not in said(table)
    assert words.cells_sentence(()) == "Nothing has been read yet."


def test_a_method_is_told_by_its_own_settings():
    assert words.method_sentence(VANILLA) == "Vanilla, temperature 1, top-p 0.9."
    dropped = replace(method("x", lam=0.4, greedy=True), dropped=0.2)
    assert words.method_sentence(dropped) == (
        "COFT, λ 0.4, certifying nothing, 20.0 % of the detected spans left out, greedy."
    )


def test_calibrations_that_say_nothing_stand_together_where_suite_seeds_and_reason_are_the_same():
    def note(method, seed, silent):
        return CalibrationNote("bbq", method, seed, 0.1, "reference", 3, 9, None, None, None, 0, 1, 1, silent)

    notes = [note("A", 0, "few"), note("B", 0, "few"), note("A", 1, "few"), note("B", 1, ""), note("C", 0, "few"),
             note("C", 1, "few")]  # fmt: skip
    assert words.silent_sentences(notes) == ["A and C on bbq, seeds 0 and 1: few", "B on bbq, seed 0: few"]
