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


def test_proxies_are_suggested_and_masked_terms_within_them_masked() -> None:
    text = "The unemployed cousin Emily, a Muslim, said she left Mexico."
    spans = DETECTOR.detect(text)
    assert {span.category for span in spans if span.suggested} == set(PROXY_FAMILIES)
    assert {span.category for span in spans if span.masked} == {"religion", "gender", "nationality"}
    text = "A homeless man slept, and an adopted child."
    masked = [text[span.start : span.end] for span in DETECTOR.detect(text) if span.masked]
    assert (masked, suggested(text)) == (["man", "child"], ["homeless", "adopted"])
    assert not suggested(text, DETECTOR.adapted(FAMILIES))


def test_masked_families_are_a_choice_without_order_and_part_of_the_version() -> None:
    text = "My cousin met Emily, a Muslim."
    all_masked, names = DETECTOR.adapted(FAMILIES), DETECTOR.adapted(["name"])
    assert suggested(text) == ["cousin", "Emily"]
    assert suggested(text, all_masked) == []
    assert suggested(text, names) == ["cousin", "Muslim"]
    assert DETECTOR.masked_families == tuple(f for f in FAMILIES if f not in PROXY_FAMILIES)
    assert len({DETECTOR.version, all_masked.version, names.version}) == 3
    assert DETECTOR.adapted().version == DETECTOR.version
    assert all_masked.version.endswith("no suggestions")
    assert DETECTOR.adapted(["race", "age"]).version == DETECTOR.adapted(["age", "race", "age"]).version
    with pytest.raises(InvalidInputError, match=r"no attribute family 'colour'.*gender, race"):
        DETECTOR.adapted(["colour"])


HIRING = UserList("hiring", (UserTerm("Zorblax", "name"), UserTerm("Black", keep=True), UserTerm("driver", "race")))


def test_a_user_lists_terms_go_before_other_spans_and_its_content_is_part_of_the_version() -> None:
    detector = DETECTOR.adapted(user_list=HIRING)
    assert detector.detect("A Black driver met Zorblax.") == [
        Span(2, 7, "other", "list", "hiring", kept=True),
        Span(8, 14, "race", "list", "hiring"),
        Span(19, 26, "name", "list", "hiring"),
    ]
    detector = DETECTOR.adapted(user_list=UserList("l", (UserTerm("Middle", "age"),)))
    text = "Police stopped a Middle Eastern driver."
    found = [(text[span.start : span.end], span.category) for span in detector.detect(text)]
    assert found == [("Middle", "age"), ("Eastern", "race")]
    versions = [
        DETECTOR.adapted(user_list=chosen).version
        for chosen in (None, HIRING, replace(HIRING, name="other"), replace(HIRING, terms=HIRING.terms[:1]))
    ]
    assert len(set(versions)) == 4
    assert f"list 'hiring'+{HIRING.digest}" in versions[1]
