"""Which span counts where several meet, and what a reviewer's word list finds and refuses."""

import unicodedata
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.text.merging import cut_spans, merge_spans, resolve_spans, validate_spans
from coft_core.text.user_list import UserList
from coft_core.types import FAMILIES, Span, UserTerm

LENGTH = 30


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(st.integers(0, LENGTH - 1))
    end = draw(st.integers(start + 1, LENGTH))
    category = draw(st.sampled_from((*FAMILIES, "other")))
    source = draw(st.sampled_from(("user", "list", "lexicon", "pipeline")))
    score = draw(st.none() | st.floats(0, 1))
    return Span(start, end, category, source, "", draw(st.booleans()), score, draw(st.booleans()))


any_lists = st.lists(spans(), max_size=8)
blank_texts = st.text(alphabet=st.sampled_from("ab \u00a0\n\u65e5\U0001f469"), min_size=LENGTH, max_size=LENGTH)


def covered(found: tuple[Span, ...] | list[Span]) -> set[int]:
    return {i for span in found for i in range(span.start, span.end)}


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
    ("given", "expected"),
    [
        ([WHOLE, Span(4, 8, "age"), Span(8, 9, "name", "list")], [Span(4, 8, "age"), Span(8, 9, "name", "list")]),
        ([NAME, KEPT], [Span(0, 4, "name", "lexicon"), KEPT, Span(6, 10, "name", "lexicon")]),
        ([replace(WHOLE, kept=True), Span(0, 8, "race")], [replace(WHOLE, kept=True), Span(6, 8, "race")]),
        ([OFFERED, Span(0, 9, "name")], [Span(0, 9, "name")]),
        ([OFFERED, Span(6, 9, "name")], [replace(OFFERED, end=6), Span(6, 9, "name")]),
        ([OFFERED, replace(WHOLE, kept=True)], [replace(WHOLE, kept=True), replace(OFFERED, start=6)]),
        ([OFFERED, Span(4, 8, "family")], [Span(4, 8, "family")]),
        ([LONGER, LISTED], [Span(0, 9, "race", "list", "hiring")]),
        ([LONGER, LISTED, Span(4, 6, "age")], [Span(4, 6, "age")]),
        ([KEPT_BY_LIST, Span(3, 8, "race")], [Span(3, 8, "race")]),
        ([KEPT_BY_LIST, Span(3, 8, "race", "lexicon")], [KEPT_BY_LIST, Span(5, 8, "race", "lexicon")]),
    ],
    ids=[
        "the user's replaces what it overlaps", "cut around a kept one", "a kept detected one protects from the user's",
        "a covered suggestion vanishes", "a suggestion gives way to a masked one", "and to a kept one",
        "a suggestion is masked once it is the reviewer's", "a list wins over a longer one", "the reviewer over both",
        "what a list keeps is masked when marked", "and protects from what is found",
    ],
)  # fmt: skip
def test_who_wins_where_spans_meet(given: list[Span], expected: list[Span]) -> None:
    assert list(resolve_spans(given)) == expected


def test_remains_lose_surrounding_whitespace_and_cutting_leaves_other_spans_as_they_were() -> None:
    text = "Middle Eastern man"
    whole, middle, eastern = Span(0, 14, "race", "lexicon"), Span(0, 6), Span(7, 14)
    assert cut_spans([whole], [eastern], text) == (Span(0, 6, "race", "lexicon"),)
    assert cut_spans([whole], [middle, eastern], text) == ()
    untouched = Span(0, 4, "age", "lexicon")
    assert cut_spans([untouched], [Span(4, 6)], text="abc  ") == (untouched,)
    validate_spans("hello", [Span(0, 5, category) for category in (*FAMILIES, "other")])


@given(any_lists)
def test_merged_and_resolved_spans_of_any_list_keep_the_rules(found: list[Span]) -> None:
    merged, resolved = merge_spans(found), resolve_spans(found)
    assert covered(merged) == covered(found)
    assert merge_spans(merged) == merged
    assert resolve_spans(resolved) == resolved
    assert all(span.start < span.end for span in resolved)
    for settled in (merged, resolved):
        assert all(a.end <= b.start for a, b in pairwise(settled))
    # All that is kept is visible, and what the reviewer marks besides is masked.
    masked = covered([span for span in resolved if span.masked])
    assert masked.isdisjoint(covered([span for span in found if span.kept and span.source != "list"]))
    marked = covered([span for span in found if span.masked and span.source == "user"])
    assert marked - covered([span for span in found if span.kept]) <= masked
    # Suggestions change nothing about what is masked or kept, and are not lost.
    decided = tuple(span for span in resolved if not span.suggested)
    assert decided == resolve_spans(span for span in found if span.kept or not span.suggested)
    offered = covered([span for span in found if span.suggested and not span.kept])
    assert covered([span for span in resolved if span.suggested]) == offered - covered(decided)
    backwards = found[::-1]
    assert sorted(found) == sorted(backwards)


@given(any_lists, any_lists, blank_texts)
def test_with_the_text_only_blank_characters_are_covered_less(found: list[Span], holes: list[Span], text: str) -> None:
    less = covered(cut_spans(found, holes)) - covered(cut_spans(found, holes, text))
    assert all(text[i].isspace() for i in less)


def test_an_invalid_span_is_named_with_what_is_wrong() -> None:
    for bad, said in (
        (Span(-1, 2), "starts before the text"), (Span(2, 2), "is empty"), (Span(4, 2), "is empty"),
        (Span(0, 6), "ends after the text, which has 5 characters"), (Span(0, 2, "colour"), "unknown category"),
        (Span(0, 2, "race", "oracle"), "unknown source 'oracle'"),
        (Span(0, 2, "race", "lexicon", score=1.5), "score 1.5"),
        (Span(0, 2, "race", "lexicon", score=float("nan")), "score nan"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError) as caught:
            validate_spans("hello", [Span(0, 5), bad])
        assert said in str(caught.value)
        assert f"Span 2 ([{bad.start}, {bad.end}), {bad.category!r})" in str(caught.value)


def listed(*terms: str) -> UserList:
    return UserList("mine", tuple(UserTerm(term) for term in terms))


def listed_words(text: str, *terms: str) -> list[str]:
    return [text[span.start : span.end] for span in listed(*terms).find(text)]


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        ("She sat; SHE, 'she' left.", ("she",), ["She", "SHE", "she"]),
        ("washed ashore, she_x, she2, xshe", ("she",), []),
        ("she's here, non-she too", ("she",), ["she", "she"]),
        ("New  York, New\nYork, Newer York", ("new york",), ["New  York", "New\nYork"]),
        ("the O\u2019Neill family, O'Neill", ("o'neill",), ["O\u2019Neill", "O'Neill"]),
        ("Jean\u2010Luc and Jean Luc", ("jean-luc",), ["Jean\u2010Luc"]),
        ("Jos\u00e9, Jose\u0301, JOS\u00c9, Jose, Jose\u0301s", ("jos\u00e9",),
         ["Jos\u00e9", "Jose\u0301", "JOS\u00c9"]),
        ("STRASSE, stra\u00dfe", ("Stra\u00dfe",), ["STRASSE", "stra\u00dfe"]),
        ("\u0130stanbul \u0130", ("i\u0307",), ["\u0130"]),
        ("C++ or C#, C+", ("c++", "c#"), ["C++", "C#"]),
        ("wo\u00adman, wo\u200bman", ("woman",), ["wo\u00adman"]),
        ("\u65e5\u672c\u4eba\u3067\u3059", ("\u65e5\u672c",), ["\u65e5\u672c"]),
        ("\u05d0\u05d1 \u0412\u0430\u043d\u044f, \u0432\u0430\u043d\u044f!", ("\u0432\u0430\u043d\u044f",),
         ["\u0412\u0430\u043d\u044f", "\u0432\u0430\u043d\u044f"]),
        ("\U0001f469\u200d\U0001f52c she \U0001f600", ("she", "\U0001f600"), ["she", "\U0001f600"]),
        ("", ("she",), []),
        ("\ud800 she", ("she",), ["she"]),
    ],
)  # fmt: skip
def test_whole_words_are_found_whatever_their_case_and_spelling_in_unicode(
    text: str, terms: tuple[str, ...], expected: list[str]
) -> None:
    assert listed_words(text, *terms) == expected


def test_the_longest_term_wins_part_of_a_letter_never_and_spans_have_family_and_list() -> None:
    assert listed_words("north star line", "north star", "star line now", "star") == ["north star"]
    assert listed_words("big north star line", "big north", "north star line") == ["north star line"]
    assert listed_words("e\u0301", "e") == []
    assert listed_words("\u00df", "s") == []
    mine = UserList("hiring", (UserTerm("veteran", "age"), UserTerm("Black Friday", keep=True)))
    assert mine.find("A veteran on black friday") == (
        Span(2, 9, "age", "list", "hiring"),
        Span(13, 25, "other", "list", "hiring", kept=True),
    )
    terms = UserTerm("a", "age"), UserTerm("B", keep=True)
    assert UserList("x", terms).digest == UserList("y", (UserTerm("b", keep=True), UserTerm("A", "age"))).digest
    others = [(terms[0],), (UserTerm("a", "race"), terms[1]), (terms[0], UserTerm("B")), ()]
    assert len({UserList("x", other).digest for other in (terms, *others)}) == 5


any_words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@settings(max_examples=80, deadline=None)
@given(st.lists(any_words, max_size=4), st.lists(any_words | st.sampled_from([" ", "\u0301", "-"]), max_size=10))
def test_spans_in_any_text_are_sorted_disjoint_and_spell_a_term(terms: list[str], parts: list[str]) -> None:
    chosen: dict[str, str] = {}
    for term in terms:
        try:
            chosen.setdefault(listed(term).digest, term)
        except InvalidInputError:
            continue
    text = "".join([*parts, *chosen.values()])
    spans = listed(*chosen.values()).find(text)
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert all(listed(text[span.start : span.end]).digest in chosen for span in spans)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(categories=["Lu", "Ll"]), min_size=1, max_size=8), st.sampled_from(["NFC", "NFD"]))
def test_a_term_finds_itself_in_either_normal_form_and_case(term: str, form: str) -> None:
    text = unicodedata.normalize(form, term)
    assert listed_words(f"({text})", term) == [text]


def test_an_unusable_list_is_refused_in_one_sentence() -> None:
    for name, terms, said in (
        ("  ", (), "needs a name"),
        ("x" * 81, (), "needs a name"),
        ("l", (UserTerm("ok"), UserTerm(" \u200b")), "Term 2 of the word list 'l' is empty"),
        ("l", (UserTerm("a" * 201),), "has 201 characters"),
        ("l", (UserTerm("a", "colour"),), "unknown family 'colour'"),
        ("l", (UserTerm("New York"), UserTerm("new  york", keep=True)), "has 'new  york' twice"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            UserList(name, terms)
