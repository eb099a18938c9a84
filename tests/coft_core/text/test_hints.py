"""Cues that only hint at an attribute are masked where a text says none outright, and suggested where it does."""

from coft_core.text.detection import SpanDetector
from coft_core.text.lexicon import Lexicons
from coft_core.text.merging import HINT_DETAILS
from coft_core.types import FAMILIES, PROXY_FAMILIES

DETECTOR = SpanDetector(pipeline=None)
PROTECTED = [family for family in FAMILIES if family not in PROXY_FAMILIES]


def pieces(text: str, detector: SpanDetector = DETECTOR) -> tuple[list[str], list[str]]:
    """What is masked and what is suggested."""
    spans = detector.detect(text)
    masked = [text[span.start : span.end] for span in spans if span.masked]
    return masked, [text[span.start : span.end] for span in spans if span.suggested]


def test_what_hints_alone_is_masked() -> None:
    for text in ("Emily applied for a loan.", "The poor driver stopped.", "A grandmother knocked."):
        masked, offered = pieces(text)
        assert len(masked) == 1
        assert not offered


def test_beside_an_attribute_that_is_said_outright_a_hint_is_suggested() -> None:
    for text, masked, offered in (
        ("Emily, a Muslim, applied.", ["Muslim"], ["Emily"]),
        ("The poor Mexican driver stopped.", ["Mexican"], ["poor"]),
        ("A freckled German knocked.", ["German"], ["freckled"]),
        ("The devout driver from Mexico prayed.", ["Mexico"], ["devout"]),
    ):
        assert pieces(text) == (masked, offered)


def test_the_strongest_kind_of_hint_is_masked_and_others_suggested_beside_what_is_said_outright() -> None:
    assert pieces("Emily said she was late.") == (["Emily", "she"], [])
    assert pieces("The poor driver said she was late.") == (["poor", "she"], [])
    assert pieces("The woman was called Emily.") == (["woman", "Emily"], [])
    assert pieces("The poor woman was late.") == (["woman"], ["poor"])
    assert pieces("The poor driver met Emily.") == (["poor"], ["Emily"])
    assert pieces("The cousin met Emily.") == (["Emily"], ["cousin"])
    for word in ("wife", "husband", "widow", "son", "mother", "mother-in-law", "grandfathers", "single mom", "nieces"):
        assert pieces(f"The Muslim and the {word} of the engineer left.") == (["Muslim", word], [])
    for word in ("cousin", "spouse", "parents"):
        assert pieces(f"The Muslim and the {word} of the engineer left.") == (["Muslim"], [word])
    assert pieces("Emily met Brandon.") == (["Emily", "Brandon"], [])
    assert pieces("Emily met Brandon and Jasmine.") == ([], ["Emily", "Brandon", "Jasmine"])
    assert pieces("Emily told Brandon that she was late.") == (["she"], ["Emily", "Brandon"])
    assert pieces("Emily left. Emily said she was late.") == (["Emily", "Emily", "she"], [])


def test_hints_are_looked_at_one_by_one_only_with_the_protected_families() -> None:
    text = "Emily has freckles."
    assert pieces(text, DETECTOR.adapted(PROTECTED)) == pieces(text) == (["Emily"], ["freckles"])
    assert pieces(text, DETECTOR.adapted(["appearance"])) == (["freckles"], ["Emily"])
    assert pieces(text, DETECTOR.adapted(FAMILIES)) == (["Emily", "freckles"], [])
    assert pieces(text, DETECTOR.adapted(())) == ([], ["Emily", "freckles"])
    assert "beside" in DETECTOR.version
    assert "beside" not in DETECTOR.adapted(["appearance"]).version


def test_every_kind_of_hint_is_one_that_the_lexicons_have_and_listed_words_are_no_unlisted_ones() -> None:
    shipped = Lexicons.load()
    assert {record.detail for record in shipped.entries} >= HINT_DETAILS
    detector = SpanDetector()
    found = [(span.category, span.source) for span in detector.detect("A Mother knows best.")]
    assert found == [("gender", "lexicon")]
    spans = detector.detect("The manager told him she's late")
    assert [(span.detail, span.source) for span in spans] == [("pronouns", "lexicon")] * 2
