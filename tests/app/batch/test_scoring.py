"""Scores of a batch's texts: read as asked, counted where there is none, and compared with the median of all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.batch.impact import impact_table, scores_of
from app.shared.errors import ServiceError
from tests.app.batch.test_outcomes_and_totals import ROW

TEXTS = (("men", "I give 8 of 10."), ("men", "a 6.5, perhaps"), ("women", "3"), ("women", "no number"), (None, "9"))


def row(line: int, text: str, group: str | None):
    return replace(ROW, line=line, text=text, group=group, state="finished")


def rows():
    return [row(line, text, group) for line, (group, text) in enumerate(TEXTS, 2)]


def test_the_first_number_is_the_score_and_texts_without_one_are_counted():
    scores, _ = scores_of(rows(), "number")
    assert scores.pairs == [("men", True), ("men", False), ("women", False), (None, True)]
    assert scores.undecided == (5,)


def test_the_median_is_of_all_scores_and_rates_are_of_known_groups():
    scores, median = scores_of(rows(), "number")
    assert median == 7.25
    table = impact_table(scores.pairs)
    assert [(item.group, item.rate, item.ratio) for item in table.rows] == [("men", 0.5, 1.0), ("women", 0.0, 0.0)]
    assert table.unknown == 1


def test_a_score_at_the_median_is_not_above_it():
    tied = [row(line, "5", "men") for line in (2, 3)]
    assert scores_of(tied, "number")[0].pairs == [("men", False), ("men", False)]


def test_an_expressions_first_group_is_the_score():
    assert scores_of(rows(), r"of (\d+)")[1] == 10.0


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        ("(", "is not a regular expression"),
        (r"\d+", "has no group that holds the score"),
        ("(perhaps)", "which is not a number"),
    ],
)
def test_what_cannot_be_read_as_a_score_is_refused_with_what_to_do(read: str, sentence: str):
    with pytest.raises(ServiceError, match=sentence):
        scores_of(rows(), read)


def test_texts_without_any_score_have_no_median():
    with pytest.raises(ServiceError, match="No text has a score"):
        scores_of([row(2, "none", "men")], "number")
