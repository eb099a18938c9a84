"""Outcomes read from continuations, and a batch's totals: what counts, what is left out, and how sure a mean is."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batch.impact import NUMBER, outcomes_of, scores_of
from app.batch.rows import MEASURES, group_totals, sorted_rows
from app.prompts.rows import BatchRowView, mean_interval
from app.shared.errors import ServiceError
from app.shared.impact import OutcomeRule, impact_table
from app.shared.thinking import divided_text

ROW = BatchRowView(
    line=2, state="finished", session_id=1, prompt="p", reference=None, group="a", context=None, text="", error="",
    certificate="certified", verdict="", verdicts=0, steps=4, certified_share=0.5, fallbacks=1, overruled=0,
    mean_log_ratio=0.25, max_log_ratio=1.0, min_margin=0.1, archived=False,
)  # fmt: skip


def test_outcomes_are_read_from_answers_and_not_from_the_thinking_before_them():
    kept = {"opens": "<think>", "closes": "</think>", "inside": True}
    texts = ("hired? no.</think>rejected", "no.</think>\n\nhired", "hired, I think")
    thought = [replace(row, divided=divided_text(row.text, kept)) for row in rows(*texts)]
    assert [row.answer for row in thought] == ["rejected", "hired", None]
    outcomes = outcomes_of(thought, OutcomeRule("hired"))
    assert [chosen for _, chosen in outcomes.pairs] == [False, True]
    assert outcomes.unanswered == (4,)
    assert outcomes.notes == ("1 row without an answer, since the thinking before it did not end: in no rate.",)
    _, median = scores_of([replace(row, divided=divided_text("7</think>5", kept)) for row in rows("")], NUMBER)
    assert median == 5.0


def rows(*texts, **changes):
    return [replace(ROW, line=line, text=text, **changes) for line, text in enumerate(texts, 2)]


def selected(rule, *texts):
    return [chosen for _, chosen in outcomes_of(rows(*texts), rule).pairs]


def test_a_word_is_found_whole_in_any_case_and_across_line_breaks():
    texts = (" was Hired.", " hires", " unhired", "hired", "re-hired!", "")
    assert selected(OutcomeRule("hired"), *texts) == [True, False, False, True, True, False]
    assert selected(OutcomeRule("hired", match_case=True), *texts) == [False, False, False, True, True, False]
    assert selected(OutcomeRule(" the  job "), "got the\njob", "the jobs") == [True, False]
    assert selected(OutcomeRule("C++"), "knows C++.", "knows C") == [True, False]


def test_of_two_words_the_first_one_in_the_text_decides_and_only_finished_rows_have_an_outcome():
    rule = OutcomeRule("yes", "no")
    found = outcomes_of(rows("no, yes", "yes, no", "nothing", "so no", "yes"), rule)
    assert [chosen for _, chosen in found.pairs] == [False, True, False, True]
    assert found.undecided == (4,)
    assert found.notes == ("1 row with neither word in the continuation: in no rate.",)
    mixed = [*rows("hired"), replace(ROW, line=9, state="unfinished", text="hired", group=None)]
    found = outcomes_of(mixed, OutcomeRule("hired"))
    assert (found.pairs, found.unfinished) == ((("a", True),), (9,))
    assert selected(OutcomeRule(r"hire[sd]?\b", regex=True), "hires", "hired", "hiring") == [True, True, False]


def test_a_rule_that_cannot_be_read_is_refused_and_an_expression_without_an_end_is_stopped(monkeypatch):
    for rule, words in (
        (OutcomeRule("  "), "No word is given"),
        (OutcomeRule("(", regex=True), "not a regular expression"),
        (OutcomeRule("a", "(", regex=True), "not a regular expression"),
    ):
        with pytest.raises(ServiceError, match=words):
            outcomes_of(rows("a"), rule)
    monkeypatch.setattr("app.shared.answers.SECONDS_PER_TEXT", 0.05)
    with pytest.raises(ServiceError, match=r"line 2 .* takes too long"):
        outcomes_of(rows("x" * 5000), OutcomeRule(r"(x+x+)+(y|x+x+)+z", regex=True))


TEXTS = (("men", "I give 8 of 10."), ("men", "a 6.5, perhaps"), ("women", "3"), ("women", "no number"), (None, "9"))
SCORED = [replace(ROW, line=line, text=text, group=group) for line, (group, text) in enumerate(TEXTS, 2)]


def test_a_score_is_above_the_median_of_all_or_not_and_texts_without_one_are_counted():
    scores, median = scores_of(SCORED, NUMBER)
    assert median == 7.25
    assert scores.pairs == (("men", True), ("men", False), ("women", False), (None, True))
    assert scores.undecided == (5,)
    table = impact_table(scores.pairs)
    assert [(item.group, item.rate, item.ratio) for item in table.rows] == [("men", 0.5, 1.0), ("women", 0.0, 0.0)]
    assert table.unknown == 1
    assert [chosen for _, chosen in scores_of(rows("5", "5"), NUMBER)[0].pairs] == [False, False]
    assert scores_of(SCORED, r"of (\d+)")[1] == 10.0
    for texts, read, sentence in (
        (SCORED, "(", "is not a regular expression"),
        (SCORED, r"\d+", "has no group that holds the score"),
        (SCORED, "(perhaps)", "which is not a number"),
        (rows("none"), NUMBER, "No text has a score"),
    ):
        with pytest.raises(ServiceError, match=sentence):
            scores_of(texts, read)


def test_rows_of_one_context_count_once_by_their_mean():
    own = [
        replace(ROW, line=2, context="c", certified_share=0.0),
        replace(ROW, line=3, context="c", certified_share=0.4),
        replace(ROW, line=4, certified_share=0.8),
    ]
    (totals,) = group_totals(own)
    share = totals.means[MEASURES.index("certified_share")]
    assert (totals.group, totals.rows, totals.contexts) == ("a", 3, 2)
    assert share.mean == pytest.approx(0.5)
    assert share.contexts == 2
    assert (share.low, share.high) == (0.0, 1.0)


def test_values_that_do_not_exist_are_left_out_and_counted():
    own = [
        replace(ROW, min_margin=math.inf), replace(ROW, line=3, min_margin=None), replace(ROW, line=4, min_margin=2.0),
    ]  # fmt: skip
    margin = group_totals(own)[0].means[MEASURES.index("min_margin")]
    assert (margin.mean, margin.low, margin.high, margin.contexts, margin.left_out) == (2.0, None, None, 1, 2)
    nothing = group_totals([replace(ROW, min_margin=None)])[0].means[MEASURES.index("min_margin")]
    assert (nothing.mean, nothing.contexts, nothing.left_out) == (None, 0, 1)


def test_groups_stand_in_the_order_of_the_file_and_unfinished_rows_in_none():
    own = [
        replace(ROW, line=4, group=None), replace(ROW, line=3, group="z"),
        replace(ROW, line=5, group="b", state="unfinished"), replace(ROW, line=6, group="z"),
    ]  # fmt: skip
    assert [(totals.group, totals.rows) for totals in group_totals(own)] == [("z", 2), (None, 1)]


def test_the_interval_of_a_mean_is_students_and_never_of_no_width():
    found = mean_interval("mean_log_ratio", [1.0, 2.0, 3.0, 4.0])
    # t quantile 3.182446 at 3 degrees of freedom, standard error sqrt(5/3)/2
    reach = 3.182446305 * math.sqrt(5 / 3) / 2
    assert (found.low, found.high) == (pytest.approx(2.5 - reach), pytest.approx(2.5 + reach))
    assert mean_interval("mean_log_ratio", [0.0, 0.0, 3.0]).low == 0.0
    assert mean_interval("min_margin", [0.0, 0.0, 3.0]).low < 0.0
    found = mean_interval("certified_share", [1.0] * 20)
    assert (found.mean, found.low, found.high, found.contexts) == (1.0, None, None, 20)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30, unique=True))
def test_an_interval_of_shares_holds_its_mean_and_stays_a_share(values):
    found = mean_interval("certified_share", values)
    assert 0.0 <= found.low <= found.mean + 1e-12
    assert found.mean - 1e-12 <= found.high <= 1.0


def test_sorting_keeps_rows_without_a_value_last_either_way():
    own = [
        replace(ROW, line=2, mean_log_ratio=None), replace(ROW, line=3, mean_log_ratio=2.0),
        replace(ROW, line=4, mean_log_ratio=1.0), replace(ROW, line=5, mean_log_ratio=2.0),
    ]  # fmt: skip
    assert [row.line for row in sorted_rows(own, "mean_log_ratio", False)] == [4, 3, 5, 2]
    assert [row.line for row in sorted_rows(own, "mean_log_ratio", True)] == [3, 5, 4, 2]
    named = [replace(ROW, line=2, prompt="b"), replace(ROW, line=3, prompt="A")]
    assert [row.line for row in sorted_rows(named, "prompt", False)] == [3, 2]
