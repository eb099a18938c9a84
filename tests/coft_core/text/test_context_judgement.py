"""Ambiguous words are judged in context, and every span says how sure its source is."""

import pytest

from coft_core.text.detection import SpanDetector, default_detector
from coft_core.text.lexicon import LexiconEntry, Lexicons
from coft_core.text.matching import BAR, BAR_WITH_RULE, RULE_SCORE, LexiconMatcher
from coft_core.text.pipeline import EntityPipeline


@pytest.fixture(scope="module")
def detector() -> SpanDetector:
    return default_detector()


def families(detector: SpanDetector, text: str, word: str) -> list[str]:
    start = text.index(word)
    return [s.category for s in detector.detect(text) if s.start < start + len(word) and start < s.end]


def test_a_word_that_describes_a_person_is_found_with_its_family(detector: SpanDetector) -> None:
    for text, word, family in (
        ("The guard stopped a Black driver.", "Black", "race"),
        ("The judge gave the white man a fine.", "white", "race"), ("I talked to Miss Lee about it.", "Miss", "gender"),
        ("An old man asked for the way.", "old", "age"), ("The young applicant was hired.", "young", "age"),
        ("The blind student read the page.", "blind", "disability"),
        ("She is deaf and works here.", "deaf", "disability"),
        ("A disabled worker was fired.", "disabled", "disability"),
        ("He is gay and lives next door.", "gay", "orientation"),
        ("Straight men answered the survey.", "Straight", "orientation"),
        ("A poor family lives here.", "poor", "socioeconomic"), ("Rich people pay less.", "Rich", "socioeconomic"),
        ("The fat boy was laughed at.", "fat", "appearance"), ("She is tall and thin.", "tall", "appearance"),
        ("An ugly woman opened the door.", "ugly", "appearance"), ("The obese patient waited.", "obese", "appearance"),
        ("An Indian nurse helped me.", "Indian", "nationality"), ("He said that she was late.", "she", "gender"),
        ("Rose was late.", "Rose", "name"), ("Rose applied for a loan.", "Rose", "name"),
    ):  # fmt: skip
        assert families(detector, text, word) == [family]


def test_the_same_word_about_a_thing_is_not_found(detector: SpanDetector) -> None:
    for text, word in (
        ("The walls are white.", "white"), ("Pull down the window blind.", "blind"),
        ("Her plea fell on deaf ears.", "deaf"), ("Comments are disabled on this page.", "disabled"),
        ("Go straight ahead.", "straight"), ("He gave a poor excuse.", "poor"), ("Cut the fat off the meat.", "fat"),
        ("The fat content was high.", "fat"), ("We took a short break.", "short"),
        ("Somebody broke the lamp.", "broke"), ("There was not a single chair left.", "single"),
    ):  # fmt: skip
        assert families(detector, text, word) == []


def test_spans_have_scores_and_only_ambiguous_terms_are_uncertain(detector: SpanDetector) -> None:
    text = "Miss Lee, a Black nurse from Chicago, told the old man that he was fat. Emily Walsh is deaf."
    spans = detector.detect(text)
    assert {span.source for span in spans} == {"lexicon", "pipeline"}
    assert all(span.score is not None and 0 < span.score <= 1 for span in spans)
    he, black = detector.detect("He met a black driver.")
    assert he.score == 1.0
    assert black.score is not None
    assert BAR_WITH_RULE <= black.score < 1.0


def test_without_a_pipeline_the_rules_decide_with_a_fixed_score() -> None:
    (span,) = SpanDetector(pipeline=None).detect("The police stopped a black driver.")
    assert (span.category, span.score) == ("race", RULE_SCORE)


@pytest.mark.parametrize(("text", "chance", "hit"), [
    ("a zorb driver", BAR_WITH_RULE, True), ("a zorb driver", BAR_WITH_RULE - 0.01, False),
    ("a zorb wall", BAR - 0.01, False), ("a zorb wall", BAR, True),
])  # fmt: skip
def test_a_rule_that_holds_lowers_the_bar(text: str, chance: float, hit: bool) -> None:
    rules = Lexicons.load().rules
    matcher = LexiconMatcher(Lexicons((LexiconEntry("zorb", "race", context=("person",)),), rules=rules))
    hits = matcher.match(text, lambda start, end: chance).hits
    assert [item.score for item in hits] == ([chance] if hit else [])


def test_unambiguous_terms_are_not_put_to_the_judge() -> None:
    matcher = LexiconMatcher(Lexicons((LexiconEntry("zorb", "race"),)))

    def refuse(start: int, end: int) -> float:
        raise AssertionError("asked about an unambiguous term")

    assert [hit.score for hit in matcher.match("a zorb wall", refuse).hits] == [1.0]


def test_a_group_that_no_lexicon_lists_is_found_with_a_score() -> None:
    detector = SpanDetector(Lexicons(()))
    text = "The Norweigan clerk spoke to her."
    (span,) = (s for s in detector.detect(text) if s.start == 4)
    assert (text[span.start : span.end], span.category, span.source) == ("Norweigan", "nationality", "pipeline")
    assert span.score is not None
    assert span.score > 0.5


def test_probabilities_are_between_0_and_1_and_0_where_there_is_no_word() -> None:
    pipeline = EntityPipeline.choose("embedded")
    assert pipeline is not None
    assert pipeline.judges
    reading = pipeline.read("A blind man. \n  ")
    assert reading.probability(2, 7) > 0.5 > reading.probability(0, 1)
    assert reading.probability(400, 410) == 0.0
