"""What the detector marks, what it leaves alone, and where exactly its spans lie."""

import re
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from coft_core.text.detection import SpanDetector, default_detector, detect_spans
from coft_core.text.lexicon import Lexicons
from coft_core.types import FAMILIES

DETECTOR = SpanDetector(pipeline=None)
JOINTS = (" ", "-", "  ", "\n", "\u00a0", "\u2010", "\u2011", "\u2013")


def found(text: str) -> list[tuple[str, str]]:
    """The marked texts with their categories."""
    return [(text[span.start : span.end], span.category) for span in DETECTOR.detect(text)]


def words(text: str) -> list[str]:
    return [word for word, _ in found(text)]


FAMILIES_OF = dict(
    [
        ("The nurse finished rounds and then he prepared the reports", [("he", "gender")]),
        ("Police stopped a Black driver for a broken taillight.", [("Black", "race")]),
        ("Police stopped a Middle Eastern driver.", [("Middle Eastern", "race")]),
        ("An elderly Muslim waited.", [("elderly", "age"), ("Muslim", "religion")]),
        ("A wheelchair user from Mexico.", [("wheelchair user", "disability"), ("Mexico", "nationality")]),
        ("The unemployed lesbian.", [("unemployed", "socioeconomic"), ("lesbian", "orientation")]),
        ("My grandmother and cousin met Emily.", [("grandmother", "gender"), ("cousin", "family"), ("Emily", "name")]),
        ("Jordan flew to Jordan.", [("Jordan", "name"), ("Jordan", "nationality")]),
        ("an Irish-Italian cook", [("Irish-Italian", "nationality")]),
        ("a Jewish-American cook", [("Jewish", "religion"), ("American", "nationality")]),
        *((f"an African{joint}American voter", [(f"African{joint}American", "race")]) for joint in JOINTS),
    ]
)


def test_every_family_is_found_with_its_category_and_parts_joined_by_a_hyphen_by_their_families() -> None:
    assert {text: found(text) for text in FAMILIES_OF} == FAMILIES_OF


FRIENDS = (
    "black coffee", "We keep a black box in the lab.", "The car is black.", "Miss the bus and you walk.",
    "Do not miss the bus. MISS THE BUS.", "Draw a straight line and go straight ahead.",
    "A white paper on a white wall with white noise.", "Old code lives in the old house.",
    "A blind spot and a blind date.", "It fell on deaf ears.", "The button is disabled.",
    "Work of poor quality on rich soil.", "It was there, and they saw their work.", "Will you mark the date?",
    "Mark the date. Hope is lost. Grace is a virtue.", "There is hope, faith and grace, and a rose will mark it.",
    "In May and in April we meet.", "We ate turkey on fine china and polish the table.", "Polish the table.",
    "Tell us about it. JOIN US NOW.", "The nurse, the engineer and the doctor met.",
    "Music of the sixties cost 34 dollars.", "A 10-year-old car. The bridge is 72 years old.",
    "Foreign policy and the African elephant.", "Every single day.", "The fat content of the milk was high.",
    "Rose bushes and rose petals.", "A team of 12 won, and 30, the sum, is even.",
    "", " ", "\n\n\t", "\u200b", "\ufeff", "-", "\ud800",
)  # fmt: skip


def test_false_friends_and_texts_without_words_are_left_alone() -> None:
    assert [text for text in FRIENDS if DETECTOR.detect(text)] == []


WORDS_OF = {
    "a black man and a white woman": ["black", "man", "white", "woman"],
    "black and white women": ["black", "white", "women"],
    "an old man, a young boy": ["old", "man", "young", "boy"],
    "a poor woman, a rich man": ["poor", "woman", "rich", "man"],
    "a straight man": ["straight", "man"],
    "an old, tired teacher": ["old"],
    "poor young mothers": ["poor", "young", "mothers"],
    "black Americans' votes": ["black Americans"],
    "the blind and the elderly need help": ["blind", "elderly"],
    "She was blind. I'm deaf.": ["She", "blind", "deaf"],
    "Is he black or Hispanic?": ["he", "black", "Hispanic"],
    "The driver of that car was Black.": ["Black"],
    "Julie was disowned for being straight.": ["Julie", "straight"],
    "I am gay.": ["gay"],
    "She is an alcoholic.": ["She", "alcoholic"],
    "Miss Smith left.": ["Miss"],
    "Will Smith met Grace, and Mark said so.": ["Will", "Grace", "Mark"],
    "May Kowalski saw Aunt June.": ["May", "Aunt", "June"],
    "A Polish cook in Turkey, not the US.": ["Polish", "Turkey", "US"],
    "Indian food": ["Indian"],
    "Ahmed, 72, left.": ["Ahmed", "72"],
    "The clerk Mary Smith (thirty-four) and a young man of 19 left.": ["Mary", "thirty-four", "young", "man", "19"],
    "A man of 12 days, a woman of two worlds.": ["man", "woman"],
    "Rose applied. Rose, who left, was late.": ["Rose", "Rose"],
    # Inflections, possessives and letter case.
    "Two Muslims and three Latinas": ["Muslims", "Latinas"],
    "Father's car, my grandmothers' house, the nurse's cat": ["Father", "grandmothers"],
    "the woman\u2019s sons-in-law": ["woman", "sons-in-law"],
    "older people and the poorest families": ["older", "poorest"],
    "people of color": ["people of color"],
    "MARY AND LaToya": ["MARY", "LaToya"],
    "a japanese woman": ["japanese", "woman"],
    "Add a pole. A Pole with ADD.": ["Pole", "ADD"],
    # Ages in figures and words.
    "a 65-year-old clerk": ["65-year-old"],
    "a twenty-one-year-old clerk": ["twenty-one-year-old"],
    "someone 72 years old": ["72 years old"],
    "people aged 30, at the age of 7": ["aged 30", "age of 7"],
    "in her early sixties": ["her", "early sixties"],
    "men in their 30s": ["men", "30s"],
    "45yo, 72 y/o": ["45yo", "72 y/o"],
    "He is 34. She turned 40.": ["He", "34", "She", "40"],
}


def test_ambiguous_words_inflections_and_ages_are_found_where_they_describe_a_person() -> None:
    assert {text: words(text) for text in WORDS_OF} == WORDS_OF


def test_a_span_says_what_matched() -> None:
    (span,) = DETECTOR.detect("so she left")
    assert (span.start, span.end, span.category, span.source, span.detail) == (3, 6, "gender", "lexicon", "pronouns")
    assert span.score == 1.0


def test_offsets_count_characters_as_typed() -> None:
    for text in (
        "\U0001f469\u200d\U0001f52c the woman",
        "e\u0301 \u00e9 \ufb01 woman",
        "\ud83d lone woman",
        "\r\n\u2028\u00a0\u3000woman",
        "\u202e\u05d0\u05d1 woman",
        "wo\u200bman",
        "\uff57\uff4f\uff4d\uff41\uff4e",
    ):
        (span,) = DETECTOR.detect(text)
        visible = re.sub("\u200b", "", text[span.start : span.end])
        assert (visible, span.end) in (("woman", len(text)), ("\uff57\uff4f\uff4d\uff41\uff4e", len(text)))


FRAGMENTS = st.sampled_from(
    ["she", "Black", " driver", "African-American", "65-year-old", "the blind", "Mary's", "'s", "-", " ", "\n\n"]
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=6) | FRAGMENTS, max_size=25).map("".join))
@example("he-\u0301she")
@example("\x00he\x00")
def test_spans_of_any_text_are_sorted_disjoint_inside_and_of_a_family(text: str) -> None:
    spans = DETECTOR.detect(text)
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert all(span.category in FAMILIES and span.source == "lexicon" for span in spans)
    assert all(text[span.start : span.end].strip() == text[span.start : span.end] for span in spans)
    assert DETECTOR.detect(text) == spans
    own_paragraph = f"{text}\n\nThe grandmother slept."
    start = len(text) + len("\n\nThe ")
    last = DETECTOR.detect(own_paragraph)[-1]
    assert (last.start, last.end, last.category) == (start, start + 11, "gender")


def test_the_default_detector_is_built_once_and_used() -> None:
    assert default_detector() is default_detector()
    assert detect_spans("so she left") == default_detector().detect("so she left")
    assert detect_spans("so she left", SpanDetector(Lexicons(()), pipeline=None)) == []


def test_the_version_names_the_lexicons_content_and_the_pipeline() -> None:
    shipped = Lexicons.load()
    named = f"lexicon {shipped.version}+{shipped.digest}, no pipeline"
    assert DETECTOR.version == f"{named}, suggestions of socioeconomic+family+name beside named attributes"
    assert SpanDetector(Lexicons(()), pipeline=None).version != DETECTOR.version
