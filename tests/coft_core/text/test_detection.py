"""What the detector marks, suggests and leaves alone, where its spans lie, and what a reviewer's choices change."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.text.detection import SpanDetector, default_detector
from coft_core.text.lexicon import LexiconEntry, Lexicons
from coft_core.text.matching import BAR, BAR_WITH_RULE, RULE_SCORE, LexiconMatcher
from coft_core.text.merging import HINT_DETAILS
from coft_core.text.user_list import UserList
from coft_core.types import FAMILIES, PROXY_FAMILIES, Span, UserTerm

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


def test_the_version_names_the_lexicons_content_and_the_pipeline() -> None:
    shipped = Lexicons.load()
    named = f"lexicon {shipped.version}+{shipped.digest}, no pipeline"
    assert DETECTOR.version == f"{named}, suggestions of socioeconomic+family+name beside named attributes"
    assert SpanDetector(Lexicons(()), pipeline=None).version != DETECTOR.version


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


def test_proxies_are_suggested_and_masked_terms_within_them_masked() -> None:
    text = "The unemployed cousin Emily, a Muslim, said she left Mexico."
    spans = DETECTOR.detect(text)
    assert {span.category for span in spans if span.suggested} == set(PROXY_FAMILIES)
    assert {span.category for span in spans if span.masked} == {"religion", "gender", "nationality"}
    text = "A homeless man slept, and an adopted child."
    assert pieces(text) == (["man", "child"], ["homeless", "adopted"])
    assert not pieces(text, DETECTOR.adapted(FAMILIES))[1]


def test_masked_families_are_a_choice_without_order_and_part_of_the_version() -> None:
    text = "My cousin met Emily, a Muslim."
    all_masked, names = DETECTOR.adapted(FAMILIES), DETECTOR.adapted(["name"])
    offered = [pieces(text, detector)[1] for detector in (DETECTOR, all_masked, names)]
    assert offered == [["cousin", "Emily"], [], ["cousin", "Muslim"]]
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
