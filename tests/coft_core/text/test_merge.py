"""Rules for spans that meet, on hand-made cases and on random ones."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.text.merging import cut_spans, merge_spans, resolve_spans, validate_spans
from coft_core.types import FAMILIES, Span

LENGTH = 30


@st.composite
def spans(draw: st.DrawFn, sources: tuple[str, ...] = ("user", "list", "lexicon", "pipeline")) -> Span:
    start = draw(st.integers(0, LENGTH - 1))
    end = draw(st.integers(start + 1, LENGTH))
    category = draw(st.sampled_from((*FAMILIES, "other")))
    source = draw(st.sampled_from(sources))
    score = draw(st.none() | st.floats(0, 1))
    return Span(start, end, category, source, "", draw(st.booleans()), score, draw(st.booleans()))


detected_lists = st.lists(spans(("lexicon", "pipeline")), max_size=8)
any_lists = st.lists(spans(), max_size=8)
texts = st.text(alphabet=st.sampled_from("ab \u00a0\n\u65e5\U0001f469"), min_size=LENGTH, max_size=LENGTH)


def covered(found: tuple[Span, ...] | list[Span]) -> set[int]:
    return {i for span in found for i in range(span.start, span.end)}


def masked(*given: Any) -> tuple[Span, ...]:
    return tuple(span for span in resolve_spans(*given) if span.masked)


TOUCHING = (Span(0, 3, "age", "lexicon"), Span(3, 6, "race", "lexicon"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((Span(3, 12, "name", "pipeline", "PERSON"), Span(0, 5, "race", "lexicon", "a")),
         (Span(0, 12, "name", "pipeline", "PERSON"),)),
        ((Span(0, 9, "race", "lexicon"), Span(8, 10, "age", "user")), (Span(0, 10, "age", "user"),)),
        ((Span(0, 4, "nationality", "pipeline", "NORP"), Span(0, 4, "religion", "lexicon")),
         (Span(0, 4, "religion", "lexicon"),)),
        (TOUCHING, TOUCHING),
    ],
    ids=["the longer one's category", "the user's category", "of equal ones the lexicon's", "touching stay apart"],
)  # fmt: skip
def test_overlapping_spans_merge_to_their_union(found: tuple[Span, ...], expected: tuple[Span, ...]) -> None:
    assert merge_spans(found) == expected


WHOLE, NAME = Span(0, 6, "race", "lexicon"), Span(0, 10, "name", "lexicon")
LONGER, LISTED = Span(0, 9, "name", "pipeline"), Span(2, 5, "race", "list", "hiring")
KEPT, KEPT_BY_LIST = Span(4, 6, "race", "user", kept=True), Span(0, 5, "other", "list", "hiring", kept=True)
OFFERED = Span(4, 8, "family", "lexicon", score=0.5, suggested=True)


@pytest.mark.parametrize(
    ("found", "user", "expected"),
    [
        ([WHOLE, Span(8, 9, "name", "list")], [Span(4, 8, "age")], [Span(4, 8, "age"), Span(8, 9, "name", "list")]),
        ([WHOLE], [Span(0, 3, "age", "lexicon")], [Span(0, 3, "age", "lexicon")]),
        ([NAME], [KEPT], [Span(0, 4, "name", "lexicon"), KEPT, Span(6, 10, "name", "lexicon")]),
        ([replace(WHOLE, kept=True)], [Span(0, 8, "race")], [replace(WHOLE, kept=True), Span(6, 8, "race")]),
        ([OFFERED], [Span(0, 9, "name")], [Span(0, 9, "name")]),
        ([OFFERED, Span(4, 8, "family")], [], [Span(4, 8, "family")]),
        ([LONGER, LISTED], [], [Span(0, 9, "race", "list", "hiring")]),
        ([LONGER, LISTED], [Span(4, 6, "age")], [Span(4, 6, "age")]),
        ([KEPT_BY_LIST], [Span(3, 8, "race")], [Span(3, 8, "race")]),
        ([KEPT_BY_LIST, Span(3, 8, "race", "lexicon")], [], [KEPT_BY_LIST, Span(5, 8, "race", "lexicon")]),
    ],
    ids=[
        "the user's replaces what it overlaps", "the user's by the argument alone", "cut around a kept one",
        "a kept detected one protects from the user's", "a covered suggestion vanishes",
        "a suggestion is masked once it is the reviewer's", "a list wins over a longer one", "the reviewer over both",
        "what a list keeps is masked when marked", "and protects from what is found",
    ],
)  # fmt: skip
def test_who_wins_where_spans_meet(found: list[Span], user: list[Span], expected: list[Span]) -> None:
    assert list(resolve_spans(found, user)) == expected


def test_remains_lose_surrounding_whitespace_and_vanish_when_blank() -> None:
    text = "Middle Eastern man"
    whole, eastern = Span(0, 14, "race", "lexicon"), Span(7, 14, "race", "user", kept=True)
    assert masked([whole], [eastern], text) == (Span(0, 6, "race", "lexicon"),)
    both = [Span(0, 6, kept=True), Span(7, 14, kept=True)]
    assert masked([whole], both, text) == ()


def test_cutting_leaves_spans_without_a_hole_as_they_were() -> None:
    untouched = Span(0, 4, "age", "lexicon")
    assert cut_spans([untouched], [Span(4, 6)], text="abc  ") == (untouched,)


@given(any_lists)
def test_merged_spans_are_sorted_disjoint_and_cover_the_same_characters(found: list[Span]) -> None:
    merged = merge_spans(found)
    assert covered(merged) == covered(found)
    assert all(a.end <= b.start for a, b in pairwise(merged))
    assert merge_spans(merged) == merged


@given(any_lists, any_lists, st.none() | texts)
def test_resolved_spans_are_sorted_disjoint_and_a_fixed_point(
    found: list[Span], user: list[Span], text: str | None
) -> None:
    resolved = resolve_spans(found, user, text)
    assert all(a.end <= b.start for a, b in pairwise(resolved))
    assert all(span.start < span.end for span in resolved)
    assert resolve_spans(resolved, text=text) == resolved


@given(any_lists, any_lists, st.none() | texts)
def test_no_character_of_a_kept_span_is_masked(found: list[Span], user: list[Span], text: str | None) -> None:
    kept = covered([span for span in (*found, *user) if span.kept and span.source != "list"])
    assert covered(masked(found, user, text)).isdisjoint(kept)


@given(detected_lists, any_lists)
def test_every_character_of_a_masked_user_span_is_masked_unless_kept(found: list[Span], user: list[Span]) -> None:
    kept = covered([span for span in (*found, *user) if span.kept])
    wanted = covered([span for span in user if span.masked])
    assert wanted - kept <= covered(masked(found, user))


@given(any_lists, any_lists, texts)
def test_with_the_text_only_blank_characters_are_masked_less(found: list[Span], user: list[Span], text: str) -> None:
    less = covered(masked(found, user)) - covered(masked(found, user, text))
    assert all(text[i].isspace() for i in less)


@given(any_lists, any_lists, st.none() | texts)
def test_suggestions_change_nothing_about_what_is_masked_or_kept(
    found: list[Span], user: list[Span], text: str | None
) -> None:
    without = resolve_spans(*([s for s in given if s.kept or not s.suggested] for given in (found, user)), text)
    with_suggestions = resolve_spans(found, user, text)
    assert tuple(span for span in with_suggestions if not span.suggested) == without


@given(any_lists, any_lists)
def test_what_is_suggested_is_neither_masked_nor_lost(found: list[Span], user: list[Span]) -> None:
    resolved = resolve_spans(found, user)
    offered = covered([span for span in (*found, *user) if span.suggested and not span.kept])
    shown = covered([span for span in resolved if span.suggested])
    settled = covered([span for span in resolved if not span.suggested])
    assert shown == offered - settled


@given(any_lists)
def test_spans_have_one_order_with_and_without_scores(found: list[Span]) -> None:
    backwards = found[::-1]
    assert sorted(found) == sorted(backwards)


def test_a_suggestion_gives_way_to_masked_and_kept_spans() -> None:
    text = "grandmother Mary of the poor"
    offered = Span(0, 16, "family", "lexicon", suggested=True)
    mine, kept = Span(12, 16, "name"), Span(0, 5, "other", "lexicon", kept=True)
    assert resolve_spans([offered], [mine], text) == (Span(0, 11, "family", "lexicon", suggested=True), mine)
    assert resolve_spans([offered, kept], text=text) == (kept, Span(5, 16, "family", "lexicon", suggested=True))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (Span(-1, 2), "starts before the text"),
        (Span(2, 2), "is empty"),
        (Span(4, 2), "is empty"),
        (Span(0, 6), "ends after the text, which has 5 characters"),
        (Span(0, 2, "colour"), "unknown category"),
        (Span(0, 2, "race", "oracle"), "unknown source 'oracle'"),
        (Span(0, 2, "race", "lexicon", score=1.5), "score 1.5"),
        (Span(0, 2, "race", "lexicon", score=float("nan")), "score nan"),
    ],
)
def test_an_invalid_span_is_named_with_what_is_wrong(bad: Span, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validate_spans("hello", [Span(0, 5), bad])
    assert said in str(caught.value)
    assert f"Span 2 ([{bad.start}, {bad.end}), {bad.category!r})" in str(caught.value)


def test_valid_spans_of_every_category_pass() -> None:
    validate_spans("hello", [Span(0, 5, category) for category in (*FAMILIES, "other")])
