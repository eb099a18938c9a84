"""Rules for spans that meet, on hand-made cases and on random ones."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.masking.merge import cut_spans, maskable_spans, merge_spans, resolve_spans, validate_spans
from coft_core.types import FAMILIES, Span

LENGTH = 30


@st.composite
def spans(draw: st.DrawFn, sources: tuple[str, ...] = ("user", "lexicon", "pipeline")) -> Span:
    start = draw(st.integers(0, LENGTH - 1))
    end = draw(st.integers(start + 1, LENGTH))
    category = draw(st.sampled_from((*FAMILIES, "other")))
    return Span(start, end, category, draw(st.sampled_from(sources)), "", draw(st.booleans()))


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
    kept = covered([span for span in (*found, *user) if span.kept])
    assert covered(maskable_spans(found, user, text)).isdisjoint(kept)


@given(detected_lists, any_lists)
def test_every_character_of_a_masked_user_span_is_masked_unless_kept(found: list[Span], user: list[Span]) -> None:
    kept = covered([span for span in (*found, *user) if span.kept])
    wanted = covered([span for span in user if not span.kept])
    assert wanted - kept <= covered(maskable_spans(found, user))


@given(any_lists, any_lists, texts)
def test_with_the_text_only_blank_characters_are_masked_less(found: list[Span], user: list[Span], text: str) -> None:
    less = covered(maskable_spans(found, user)) - covered(maskable_spans(found, user, text))
    assert all(text[i].isspace() for i in less)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (Span(-1, 2), "starts before the text"),
        (Span(2, 2), "is empty"),
        (Span(4, 2), "is empty"),
        (Span(0, 6), "ends after the text, which has 5 characters"),
        (Span(0, 2, "colour"), "unknown category"),
        (Span(0, 2, "race", "oracle"), "unknown source 'oracle'"),
    ],
)
def test_an_invalid_span_is_named_with_what_is_wrong(bad: Span, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validate_spans("hello", [Span(0, 5), bad])
    assert said in str(caught.value)
    assert f"Span 2 ([{bad.start}, {bad.end}), {bad.category!r})" in str(caught.value)


def test_valid_spans_of_every_category_pass() -> None:
    validate_spans("hello", [Span(0, 5, category) for category in (*FAMILIES, "other")])
