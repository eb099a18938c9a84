"""What is said of evaluations."""

from __future__ import annotations

from dataclasses import replace

from app.evaluate import words
from app.evaluate.runs import CalibrationNote, SuitePlan
from app.evaluate.tables import main_table
from tests.app.evaluate.made import (
    COFT,
    VANILLA,
    Harm,
    Questions,
    questions,
    rights,
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


def test_seeds_of_suites_that_draw_no_text_are_said_to_differ_by_their_split_alone():
    both = [*rights("rw", 0), *rights("rw", 1)]
    written = [text("a", 0.5, seed=0), text("a", 0.5, seed=1)]
    sentence = words.deterministic_sentence(table_of(questions("COFT", both), texts("COFT", written)))
    assert sentence.startswith("No text is drawn in Questions: ")
    assert words.deterministic_sentence(table_of(questions("COFT", rights("rw")))) == ""


def test_a_figure_of_some_seeds_alone_says_which():
    given = [questions("Vanilla", [*rights("rw", 0), *rights("rw", 1)]), questions("COFT", rights("rw", 1))]
    assert "Questions: COFT has a figure of the seed 1 alone." in said(table_of(*given))


def test_data_that_is_no_known_release_is_named_for_suites_in_the_table_alone():
    plan = SuitePlan("questions", "Questions", "here", "not a known release", {}, "", 2, 2, {}, {})
    other = replace(plan, suite="harm", title="Harm")
    sentence = said(table_of(questions("COFT", rights("rw"))), plan, other)
    assert "Questions: not a known release." in sentence
    assert "Harm: not a known" not in sentence


def test_calibrations_that_say_nothing_stand_together_where_suite_seeds_and_reason_are_the_same():
    def note(method, seed, silent):
        return CalibrationNote("bbq", method, seed, 0.1, "reference", 3, 9, None, None, None, 0, 1, 1, silent)

    notes = [note("A", 0, "few"), note("B", 0, "few"), note("A", 1, "few"), note("B", 1, ""), note("C", 0, "few"),
             note("C", 1, "few")]  # fmt: skip
    assert words.silent_sentences(notes) == ["A and C on bbq, seeds 0 and 1: few", "B on bbq, seed 0: few"]
