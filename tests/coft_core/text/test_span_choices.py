"""What a choice of masked families and a user's list change in the detector's spans and version."""

from dataclasses import replace

import pytest

from coft_core.errors import InvalidInputError
from coft_core.text.detection import SpanDetector
from coft_core.text.user_list import UserList
from coft_core.types import FAMILIES, PROXY_FAMILIES, Span, UserTerm

DETECTOR = SpanDetector(pipeline=None)


def suggested(text: str, detector: SpanDetector = DETECTOR) -> list[str]:
    return [text[span.start : span.end] for span in detector.detect(text) if span.suggested]


def test_proxies_are_suggested_and_every_other_family_is_masked() -> None:
    text = "The unemployed cousin Emily, a Muslim, said she left Mexico."
    spans = DETECTOR.detect(text)
    assert {span.category for span in spans if span.suggested} == set(PROXY_FAMILIES)
    assert {span.category for span in spans if span.masked} == {"religion", "gender", "nationality"}


def test_a_masked_term_within_a_suggested_one_is_masked() -> None:
    text = "A homeless man slept, and an adopted child."
    masked = [text[span.start : span.end] for span in DETECTOR.detect(text) if span.masked]
    assert (masked, suggested(text)) == (["man", "child"], ["homeless", "adopted"])
    assert not suggested(text, DETECTOR.adapted(FAMILIES))


def test_the_masked_families_are_a_choice_and_part_of_the_version() -> None:
    text = "My cousin met Emily, a Muslim."
    all_masked, names = DETECTOR.adapted(FAMILIES), DETECTOR.adapted(["name"])
    assert suggested(text) == ["cousin", "Emily"]
    assert suggested(text, all_masked) == []
    assert suggested(text, names) == ["cousin", "Muslim"]
    assert DETECTOR.masked_families == tuple(f for f in FAMILIES if f not in PROXY_FAMILIES)
    assert len({DETECTOR.version, all_masked.version, names.version}) == 3
    assert DETECTOR.adapted().version == DETECTOR.version
    assert all_masked.version.endswith("no suggestions")


def test_the_order_of_masked_families_does_not_matter() -> None:
    assert DETECTOR.adapted(["race", "age"]).version == DETECTOR.adapted(["age", "race", "age"]).version


def test_an_unknown_family_to_mask_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"no attribute family 'colour'.*gender, race"):
        DETECTOR.adapted(["colour"])


HIRING = UserList("hiring", (UserTerm("Zorblax", "name"), UserTerm("Black", keep=True), UserTerm("driver", "race")))


def test_a_user_lists_terms_are_masked_even_in_a_proxy_family_and_kept_terms_stay() -> None:
    detector = DETECTOR.adapted(user_list=HIRING)
    assert detector.detect("A Black driver met Zorblax.") == [
        Span(2, 7, "other", "list", "hiring", kept=True),
        Span(8, 14, "race", "list", "hiring"),
        Span(19, 26, "name", "list", "hiring"),
    ]


def test_what_a_user_list_finds_is_taken_from_other_spans() -> None:
    detector = DETECTOR.adapted(user_list=UserList("l", (UserTerm("Middle", "age"),)))
    text = "Police stopped a Middle Eastern driver."
    found = [(text[span.start : span.end], span.category) for span in detector.detect(text)]
    assert found == [("Middle", "age"), ("Eastern", "race")]


def test_a_user_lists_name_and_content_are_part_of_the_version() -> None:
    versions = [
        DETECTOR.adapted(user_list=chosen).version
        for chosen in (None, HIRING, replace(HIRING, name="other"), replace(HIRING, terms=HIRING.terms[:1]))
    ]
    assert len(set(versions)) == 4
    assert f"list 'hiring'+{HIRING.digest}" in versions[1]
