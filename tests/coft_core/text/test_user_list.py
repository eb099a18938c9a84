"""What a reviewer's word list finds, where exactly, and which lists are refused."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.text.user_list import UserList
from coft_core.types import Span, UserTerm


def listed(*terms: str) -> UserList:
    return UserList("mine", tuple(UserTerm(term) for term in terms))


def found(text: str, *terms: str) -> list[str]:
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
    assert found(text, *terms) == expected


def test_the_longest_term_wins_part_of_a_letter_never_and_spans_have_family_and_list() -> None:
    assert found("north star line", "north star", "star line now", "star") == ["north star"]
    assert found("big north star line", "big north", "north star line") == ["north star line"]
    assert found("e\u0301", "e") == []
    assert found("\u00df", "s") == []
    mine = UserList("hiring", (UserTerm("veteran", "age"), UserTerm("Black Friday", keep=True)))
    assert mine.find("A veteran on black friday") == (
        Span(2, 9, "age", "list", "hiring"),
        Span(13, 25, "other", "list", "hiring", kept=True),
    )
    terms = UserTerm("a", "age"), UserTerm("B", keep=True)
    assert UserList("x", terms).digest == UserList("y", (UserTerm("b", keep=True), UserTerm("A", "age"))).digest
    others = [(terms[0],), (UserTerm("a", "race"), terms[1]), (terms[0], UserTerm("B")), ()]
    assert len({UserList("x", other).digest for other in (terms, *others)}) == 5


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@settings(max_examples=80, deadline=None)
@given(st.lists(words, max_size=4), st.lists(words | st.sampled_from([" ", "\u0301", "-"]), max_size=10))
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
    assert found(f"({text})", term) == [text]


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
