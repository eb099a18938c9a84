"""Rules for spans that meet, on hand-made cases and on random ones."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.text.merging import cut_spans, maskable_spans, merge_spans, resolve_spans, validate_spans
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


def test_overlapping_spans_merge_to_their_union_with_the_longer_ones_category() -> None:
    short, long = Span(0, 5, "race", "lexicon", "a"), Span(3, 12, "name", "pipeline", "PERSON")
    assert merge_spans([long, short]) == (Span(0, 12, "name", "pipeline", "PERSON"),)


def test_a_users_span_wins_the_category_of_a_longer_detected_one() -> None:
    assert merge_spans([Span(0, 9, "race", "lexicon"), Span(8, 10, "age", "user")])[0].category == "age"


def test_of_equal_spans_the_lexicons_category_wins() -> None:
    found = [Span(0, 4, "nationality", "pipeline", "NORP"), Span(0, 4, "religion", "lexicon")]
    assert merge_spans(found) == (Span(0, 4, "religion", "lexicon"),)


def test_spans_that_only_touch_stay_apart() -> None:
    touching = (Span(0, 3, "age", "lexicon"), Span(3, 6, "race", "lexicon"))
    assert merge_spans(touching) == touching


def test_a_users_span_replaces_the_detected_spans_that_it_overlaps() -> None:
    found = [Span(0, 6, "race", "lexicon"), Span(10, 14, "name", "lexicon")]
    mine = Span(4, 8, "age", "user")
    assert resolve_spans(found, [mine]) == (mine, found[1])


def test_a_span_is_the_users_by_the_argument_whatever_its_source_says() -> None:
    found, edited = Span(0, 6, "race", "lexicon"), Span(0, 3, "age", "lexicon")
    assert resolve_spans([found], [edited]) == (edited,)


def test_masked_spans_are_cut_around_a_kept_one() -> None:
    kept = Span(4, 6, "race", "user", kept=True)
    result = resolve_spans([Span(0, 10, "name", "lexicon")], [kept])
    assert result == (Span(0, 4, "name", "lexicon"), kept, Span(6, 10, "name", "lexicon"))


def test_a_kept_detected_span_protects_against_the_users_masked_span_too() -> None:
    kept = Span(0, 4, "race", "lexicon", kept=True)
    assert maskable_spans([kept], [Span(0, 8, "race", "user")]) == (Span(4, 8, "race", "user"),)


def test_remains_lose_surrounding_whitespace_and_vanish_when_blank() -> None:
    text = "Middle Eastern man"
    whole, eastern = Span(0, 14, "race", "lexicon"), Span(7, 14, "race", "user", kept=True)
    assert maskable_spans([whole], [eastern], text) == (Span(0, 6, "race", "lexicon"),)
    both = [Span(0, 6, kept=True), Span(7, 14, kept=True)]
    assert maskable_spans([whole], both, text) == ()


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
    assert covered(maskable_spans(found, user, text)).isdisjoint(kept)


@given(detected_lists, any_lists)
def test_every_character_of_a_masked_user_span_is_masked_unless_kept(found: list[Span], user: list[Span]) -> None:
    kept = covered([span for span in (*found, *user) if span.kept])
    wanted = covered([span for span in user if span.masked])
    assert wanted - kept <= covered(maskable_spans(found, user))


@given(any_lists, any_lists, texts)
def test_with_the_text_only_blank_characters_are_masked_less(found: list[Span], user: list[Span], text: str) -> None:
    less = covered(maskable_spans(found, user)) - covered(maskable_spans(found, user, text))
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


def test_a_suggestion_that_the_reviewers_span_covers_vanishes() -> None:
    offered, mine = Span(4, 8, "family", "lexicon", suggested=True), Span(0, 9, "name")
    assert resolve_spans([offered], [mine]) == (mine,)


def test_a_suggestion_is_masked_once_it_is_the_reviewers() -> None:
    offered = Span(4, 8, "family", "lexicon", score=0.5, suggested=True)
    assert maskable_spans([offered]) == ()
    accepted = Span(4, 8, "family", "user")
    assert maskable_spans([offered, accepted]) == (accepted,)


def test_a_user_lists_term_wins_over_a_longer_detected_one_and_the_reviewers_over_both() -> None:
    longer, listed = Span(0, 9, "name", "pipeline"), Span(2, 5, "race", "list", "hiring")
    assert resolve_spans([longer, listed]) == (Span(0, 9, "race", "list", "hiring"),)
    assert resolve_spans([longer, listed], [Span(4, 6, "age")]) == (Span(4, 6, "age"),)


def test_a_term_that_a_list_keeps_is_masked_when_the_reviewer_marks_it() -> None:
    kept, mine = Span(0, 5, "other", "list", "hiring", kept=True), Span(3, 8, "race")
    assert resolve_spans([kept], [mine]) == (mine,)
    assert resolve_spans([kept, Span(3, 8, "race", "lexicon")]) == (kept, Span(5, 8, "race", "lexicon"))


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
