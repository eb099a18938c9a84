"""Counterfactual substitutions: one attribute at a time, all its words, and nothing that is kept."""

import re

import pytest

from coft_core.errors import InvalidInputError
from coft_core.text.counterfactuals import AGES, parse_pairs, substituted, substitutions
from coft_core.text.lexicon import Lexicons
from coft_core.text.vocabulary import lexicon_words, shipped_tables
from coft_core.types import Span


def marked(written):
    """A text with its spans, written as ``[words|family]``, ``[words|family|kept]`` or ``[words|family|suggested]``."""
    text, spans = "", []
    for plain, words, family, state in re.findall(r"([^\[]*)(?:\[([^|\]]+)\|([^|\]]+)(?:\|([^\]]+))?\])?", written):
        text += plain
        if words:
            kept, suggested = state == "kept", state == "suggested"
            spans.append(Span(len(text), len(text) + len(words), family, kept=kept, suggested=suggested))
            text += words
    return text, spans


def texts(written):
    return [found.text for found in substitutions(*marked(written)).found]


def test_genders_are_exchanged_with_everything_that_tells_them_unless_it_is_kept_visible():
    assert texts("A [salesman|gender] told [his|gender] [mother|family|suggested] that [she|gender] is late") == [
        "A saleswoman told her father that he is late",
        "A salesperson told their parent that they are late",
    ]
    assert texts("[She|gender] told [him|gender]")[0] == "He told her"
    assert texts("[He|gender|kept] told the [woman|gender]") == ["He told the man", "He told the person"]
    assert texts("He told the [woman|gender|suggested] a [Muslim|religion|kept]") == []


def test_first_names_get_the_other_genders_names_and_surnames_are_none():
    (exchanged, _) = texts("[John|name] met [John|name] and [Johnny|name]; [he|gender] left")
    first, again, other, pronoun = re.fullmatch(r"(\w+) met (\w+) and (\w+); (\w+) left", exchanged).groups()
    names = lexicon_words()
    assert first == again != other
    assert {names.name_gender(first), names.name_gender(other)} == {"female"}
    assert pronoun == "she"
    assert texts("[Mr|gender] [Carter|name|suggested] came")[0] == "Ms Carter came"


def test_words_of_one_family_move_on_together_also_where_no_row_lists_them():
    found = texts("The [Muslim|religion] man at the [mosque|religion] met a [Christian|religion]")
    assert found[0] == "The Jewish man at the synagogue met a Muslim"
    assert found[1] == "The Hindu man at the Hindu temple met a Jew"
    assert len(found) == len(set(found)) == 6
    for text in found:
        first, building, other = re.fullmatch(r"The (.+) man at the (.+) met an? (.+)", text).groups()
        assert first != other
        assert building != "mosque"
    assert texts("[Belgians|nationality] and a [Peruvian|nationality]")[0] == "Mexicans and a German"
    assert texts("aged [30|age]") == [f"aged {age}" for age in AGES if age != 25]
    found = texts("the [old|age] [Muslim|religion] [man|gender]")
    assert found[:4] == ["the old Muslim woman", "the old Jewish man", "the young Muslim man", "the old Muslim person"]
    made = substitutions(*marked("a [nurse|other], [child|age]-like, said [they|gender] met a [woman|gender]"))
    assert made.left == ("nurse", "child", "they")
    assert made.found[0].text == "a nurse, child-like, said they met a man"


def test_a_word_is_substituted_in_its_form_and_reading():
    for written, first in (
        ("the [oldest|age] child", "the youngest child"), ("an [80-year-old|age] man", "a 25-year-old man"),
        ("she is [34|age]", "she is 45"), ("[working-class|socioeconomic] people", "middle-class people"),
        ("the [blind|disability] man", "the sighted man"), ("she is [Muslim|religion]", "she is Jewish"),
        ("she is a [Muslim|religion]", "she is a Jew"),
    ):  # fmt: skip
        assert texts(written)[0] == first


def test_own_pairs_take_words_plurals_and_whole_sets_of_pronouns():
    text, spans = marked("A Muslim and two [Muslims|religion|kept]; he saw his Muslims, mere Muslimness")
    made = substituted(text, spans, parse_pairs("muslim = atheist ; his = she"))
    assert made.text == "An atheist and two Muslims; she saw her atheists, mere Muslimness"
    assert "he → she" in made.label
    assert substituted(text, spans, parse_pairs("Sikh = Hindu")) is None


def test_an_own_pair_that_cannot_be_read_is_refused():
    for written in ("", "he", "he =", "= she", "he = she;"):
        with pytest.raises(InvalidInputError, match="cannot be read"):
            parse_pairs(written)


def test_the_tables_name_known_families_and_kinds_and_neutral_words_tell_no_gender():
    entries = Lexicons.load().entries
    kinds = {(entry.family, entry.detail) for entry in entries}
    kinds |= {("age", detail) for detail in ("decades of life", "birthdays", "birth years", "age groups")}
    tables = shipped_tables()
    for row in tables.groups:
        assert len(row.words) == len(set(row.words)) > 1
        assert row.reading in ("adjective", "noun", "any")
        assert all((row.family, kind) in kinds for kind in row.kinds)
    for row in tables.hypernyms:
        assert not row.kind or (row.family, row.kind) in kinds
        assert bool(row.noun) == bool(row.plural)
    gendered = {e.term.lower() for e in Lexicons.load().entries if e.family == "gender"}
    for row in shipped_tables().gendered:
        assert row.neutral.lower() not in gendered, row
        assert row.female.lower() != row.male.lower()
