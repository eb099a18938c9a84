"""What the detector marks, what it leaves alone, and where exactly its spans lie."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import spacy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.masking.lexicon import Lexicons
from coft_core.masking.spans import SpanDetector, default_detector, detect_spans
from coft_core.masking.user_list import UserList, UserTerm
from coft_core.types import FAMILIES, PROXY_FAMILIES, Span

DETECTOR = SpanDetector(pipeline=None)


def found(text: str, detector: SpanDetector = DETECTOR) -> list[tuple[str, str]]:
    """The marked texts with their categories."""
    return [(text[span.start : span.end], span.category) for span in detector.detect(text)]


def words(text: str) -> list[str]:
    return [word for word, _ in found(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The nurse finished rounds and then he prepared the reports", [("he", "gender")]),
        ("Police stopped a Black driver for a broken taillight.", [("Black", "race")]),
        ("Police stopped a Middle Eastern driver.", [("Middle Eastern", "race")]),
        ("An elderly Muslim waited.", [("elderly", "age"), ("Muslim", "religion")]),
        ("A wheelchair user from Mexico.", [("wheelchair user", "disability"), ("Mexico", "nationality")]),
        ("The unemployed lesbian.", [("unemployed", "socioeconomic"), ("lesbian", "orientation")]),
        ("My grandmother met Emily.", [("grandmother", "family"), ("Emily", "name")]),
    ],
)
def test_every_family_is_found_with_its_category(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "black coffee",
        "We keep a black box in the lab.",
        "The car is black.",
        "Miss the bus and you walk.",
        "Do not miss the bus. MISS THE BUS.",
        "Draw a straight line and go straight ahead.",
        "A white paper on a white wall with white noise.",
        "Old code lives in the old house.",
        "A blind spot and a blind date.",
        "It fell on deaf ears.",
        "The button is disabled.",
        "Work of poor quality on rich soil.",
        "It was there, and they saw their work.",
        "Will you mark the date?",
        "Mark the date. Hope is lost. Grace is a virtue.",
        "There is hope, faith and grace, and a rose will mark it.",
        "In May and in April we meet.",
        "We ate turkey on fine china and polish the table.",
        "Polish the table.",
        "Tell us about it. JOIN US NOW.",
        "The nurse, the engineer and the doctor met.",
        "Music of the sixties cost 34 dollars.",
        "A 10-year-old car. The bridge is 72 years old.",
        "Foreign policy and the African elephant.",
        "Every single day.",
    ],
)
def test_false_friends_are_left_alone(text: str) -> None:
    assert words(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a black man and a white woman", ["black", "man", "white", "woman"]),
        ("black and white women", ["black", "white", "women"]),
        ("an old man, a young boy", ["old", "man", "young", "boy"]),
        ("a poor woman, a rich man", ["poor", "woman", "rich", "man"]),
        ("a straight man", ["straight", "man"]),
        ("an old, tired teacher", ["old"]),
        ("poor young mothers", ["poor", "young", "mothers"]),
        ("black Americans' votes", ["black Americans"]),
        ("the blind and the elderly need help", ["blind", "elderly"]),
        ("She was blind. I'm deaf.", ["She", "blind", "deaf"]),
        ("Is he black or Hispanic?", ["he", "black", "Hispanic"]),
        ("The driver of that car was Black.", ["Black"]),
        ("Julie was disowned for being straight.", ["Julie", "straight"]),
        ("I am gay.", ["gay"]),
        ("She is an alcoholic.", ["She", "alcoholic"]),
        ("Miss Smith left.", ["Miss"]),
        ("Will Smith met Grace, and Mark said so.", ["Will", "Grace", "Mark"]),
        ("May Kowalski saw Aunt June.", ["May", "Aunt", "June"]),
        ("A Polish cook in Turkey, not the US.", ["Polish", "Turkey", "US"]),
        ("Indian food", ["Indian"]),
    ],
)
def test_ambiguous_words_are_found_where_they_describe_a_person(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_name_shared_with_a_country_is_told_apart_by_its_context() -> None:
    assert found("Jordan flew to Jordan.") == [("Jordan", "name"), ("Jordan", "nationality")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Two Muslims and three Latinas", ["Muslims", "Latinas"]),
        ("Father's car, my grandmothers' house, the nurse's cat", ["Father", "grandmothers"]),
        ("the woman\u2019s sons-in-law", ["woman", "sons-in-law"]),
        ("older people and the poorest families", ["older", "poorest"]),
        ("people of color", ["people of color"]),
        ("MARY AND LaToya", ["MARY", "LaToya"]),
        ("a japanese woman", ["japanese", "woman"]),
        ("Add a pole. A Pole with ADD.", ["Pole", "ADD"]),
    ],
)
def test_inflections_possessives_and_letter_case_are_followed(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize("joint", [" ", "-", "  ", "\n", "\u00a0", "\u2010", "\u2011", "\u2013"])
def test_multiword_terms_match_whatever_joins_their_words(joint: str) -> None:
    text = f"an African{joint}American voter"
    assert found(text) == [(f"African{joint}American", "race")]


def test_parts_of_one_family_joined_by_a_hyphen_are_one_span_and_of_two_families_two() -> None:
    assert found("an Irish-Italian cook") == [("Irish-Italian", "nationality")]
    assert found("a Jewish-American cook") == [("Jewish", "religion"), ("American", "nationality")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 65-year-old clerk", ["65-year-old"]),
        ("a twenty-one-year-old clerk", ["twenty-one-year-old"]),
        ("someone 72 years old", ["72 years old"]),
        ("people aged 30, at the age of 7", ["aged 30", "age of 7"]),
        ("in her early sixties", ["her", "early sixties"]),
        ("men in their 30s", ["men", "30s"]),
        ("45yo, 72 y/o", ["45yo", "72 y/o"]),
        ("He is 34. She turned 40.", ["He", "34", "She", "40"]),
    ],
)
def test_ages_are_found_in_figures_and_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_span_says_what_matched() -> None:
    (span,) = DETECTOR.detect("so she left")
    assert (span.start, span.end, span.category, span.source, span.detail) == (3, 6, "gender", "lexicon", "pronouns")
    assert span.score == 1.0


@pytest.mark.parametrize("text", ["", " ", "\n\n\t", "\u200b", "\ufeff", "-", "\ud800"])
def test_text_without_words_has_no_spans(text: str) -> None:
    assert DETECTOR.detect(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f52c the woman",
        "e\u0301 \u00e9 \ufb01 woman",
        "\ud83d lone woman",
        "\r\n\u2028\u00a0\u3000woman",
        "\u202e\u05d0\u05d1 woman",
        "wo\u200bman",
        "\uff57\uff4f\uff4d\uff41\uff4e",
    ],
)
def test_offsets_count_characters_as_typed(text: str) -> None:
    (span,) = DETECTOR.detect(text)
    visible = re.sub("\u200b", "", text[span.start : span.end])
    assert (visible, span.end) in (("woman", len(text)), ("\uff57\uff4f\uff4d\uff41\uff4e", len(text)))


FRAGMENTS = st.sampled_from(
    [
        "she",
        "Black",
        " driver",
        "African-American",
        "65-year-old",
        "the blind",
        "Mary's",
        "'s",
        "-",
        " ",
        "\n\n",
    ]
)


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_a_term_in_its_own_paragraph_is_found_after_any_text(prefix: str) -> None:
    text = f"{prefix}\n\nThe grandmother slept."
    start = len(text) - len("grandmother slept.")
    last = DETECTOR.detect(text)[-1]
    assert (last.start, last.end, last.category, last.suggested) == (start, start + 11, "family", True)


def test_the_default_detector_is_built_once_and_used() -> None:
    assert default_detector() is default_detector()
    assert detect_spans("so she left") == default_detector().detect("so she left")
    assert detect_spans("so she left", SpanDetector(Lexicons(()), pipeline=None)) == []


def test_the_version_names_the_lexicons_content_and_the_pipeline() -> None:
    shipped = Lexicons.load()
    named = f"lexicon {shipped.version}+{shipped.digest[:12]}, no pipeline"
    assert DETECTOR.version == f"{named}, suggestions of socioeconomic+family+name"
    assert SpanDetector(Lexicons(()), pipeline=None).version != DETECTOR.version


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved pipeline that names a few entities, standing in for a trained one."""
    nlp = spacy.blank("en", meta={"name": "few_entities", "version": "3.2.1"})
    nlp.add_pipe("entity_ruler").add_patterns(
        [
            {"label": "PERSON", "pattern": "Zorblax Quux"},
            {"label": "PERSON", "pattern": "Mary Zorblax"},
            {"label": "PERSON", "pattern": "the Zorblax's"},
            {"label": "NORP", "pattern": "Klingons"},
            {"label": "NORP", "pattern": "Sunni Muslims"},
            {"label": "NORP", "pattern": "Muslim"},
            {"label": "NORP", "pattern": "French"},
            {"label": "GPE", "pattern": "Gotham City"},
            {"label": "ORG", "pattern": "Acme"},
        ]
    )
    path = tmp_path_factory.mktemp("pipeline") / "few"
    nlp.to_disk(path)
    return path


@pytest.fixture(scope="module")
def with_pipeline(trained: Path) -> SpanDetector:
    return SpanDetector(pipeline=str(trained))


def test_a_trained_pipeline_adds_people_and_places_with_its_labels(with_pipeline: SpanDetector) -> None:
    text = "Zorblax Quux left Acme for Gotham City."
    spans = [replace(span, score=None) for span in with_pipeline.detect(text)]
    assert spans == [
        Span(0, 12, "name", "pipeline", "PERSON", suggested=True),
        Span(27, 38, "nationality", "pipeline", "GPE"),
    ]


def test_groups_take_their_family_from_the_lexicons_or_are_nationalities(with_pipeline: SpanDetector) -> None:
    assert found("Klingons prayed with Sunni Muslims.", with_pipeline) == [
        ("Klingons", "nationality"),
        ("Sunni Muslims", "religion"),
    ]


def test_an_entity_widens_the_lexicons_span_of_its_family(with_pipeline: SpanDetector) -> None:
    assert found("Mary Zorblax left.", with_pipeline) == [("Mary Zorblax", "name")]


def test_an_entity_is_trimmed_of_article_and_possessive(with_pipeline: SpanDetector) -> None:
    assert found("near the Zorblax's house", with_pipeline) == [("Zorblax", "name")]


def test_false_friends_shield_their_words_from_the_pipeline_too(with_pipeline: SpanDetector) -> None:
    assert found("They ate French fries.", with_pipeline) == []


def test_the_version_names_the_trained_pipeline(with_pipeline: SpanDetector) -> None:
    assert re.search(r", en_few_entities 3\.2\.1\+[0-9a-f]{12}, suggestions of ", with_pipeline.version)


def test_a_text_too_long_for_the_pipeline_is_refused(trained: Path) -> None:
    detector = SpanDetector(pipeline=str(trained))
    with pytest.raises(InvalidInputError, match="takes at most 1000000"):
        detector.detect("a " * 500_001)


def test_auto_is_the_pipeline_that_comes_with_the_program() -> None:
    assert SpanDetector(Lexicons(())).version == SpanDetector(Lexicons(()), pipeline="embedded").version


def test_a_missing_pipeline_is_named_in_one_sentence() -> None:
    with pytest.raises(InvalidInputError, match=r"^The spaCy pipeline 'en_nowhere' cannot be loaded: .*\.$"):
        SpanDetector(Lexicons(()), pipeline="en_nowhere")


def test_a_damaged_pipeline_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="cannot be loaded"):
        SpanDetector(Lexicons(()), pipeline=str(tmp_path))


def test_a_pipeline_without_an_entity_recogniser_is_refused(tmp_path: Path) -> None:
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(InvalidInputError, match="finds no named entities"):
        SpanDetector(Lexicons(()), pipeline=str(tmp_path / "blank"))


def suggested(text: str, detector: SpanDetector = DETECTOR) -> list[str]:
    return [text[span.start : span.end] for span in detector.detect(text) if span.suggested]


def test_proxies_are_suggested_and_every_other_family_is_masked() -> None:
    text = "The unemployed grandmother Emily, a Muslim, said she left Mexico."
    spans = DETECTOR.detect(text)
    assert {span.category for span in spans if span.suggested} == set(PROXY_FAMILIES)
    assert {span.category for span in spans if span.masked} == {"religion", "gender", "nationality"}


@pytest.mark.parametrize(
    ("text", "masked", "offered"),
    [
        ("A homeless man slept.", ["man"], ["homeless"]),
        ("The ex-boyfriend called.", ["boyfriend"], ["ex"]),
        ("His kid sister left.", ["His", "kid"], ["sister"]),
    ],
)
def test_a_masked_term_within_a_suggested_one_is_masked(text: str, masked: list[str], offered: list[str]) -> None:
    spans = DETECTOR.detect(text)
    assert [text[span.start : span.end] for span in spans if span.masked] == masked
    assert [text[span.start : span.end] for span in spans if span.suggested] == offered
    assert not suggested(text, DETECTOR.adapted(FAMILIES))


def test_the_masked_families_are_a_choice_and_part_of_the_version() -> None:
    text = "My grandmother met Emily, a Muslim."
    all_masked, names = DETECTOR.adapted(FAMILIES), DETECTOR.adapted(["name"])
    assert suggested(text) == ["grandmother", "Emily"]
    assert suggested(text, all_masked) == []
    assert suggested(text, names) == ["grandmother", "Muslim"]
    assert DETECTOR.masked_families == tuple(f for f in FAMILIES if f not in PROXY_FAMILIES)
    assert len({DETECTOR.version, all_masked.version, names.version}) == 3
    assert DETECTOR.adapted().version == DETECTOR.version
    assert all_masked.version.endswith("no suggestions")


def test_the_order_of_masked_families_does_not_matter() -> None:
    assert DETECTOR.adapted(["race", "age"]).version == DETECTOR.adapted(["age", "race", "age"]).version


def test_an_unknown_family_to_mask_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"no attribute family 'colour'.*gender, race"):
        DETECTOR.adapted(["colour"])


def test_a_masked_entity_takes_its_characters_from_a_suggestion(tmp_path: Path) -> None:
    nlp = spacy.blank("en", meta={"name": "wide", "version": "1.0"})
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "GPE", "pattern": "Emily Springs"}])
    nlp.to_disk(tmp_path)
    detector = SpanDetector(pipeline=str(tmp_path))
    (span,) = detector.detect("Emily Springs slept.")
    assert (span.start, span.end, span.category, span.masked) == (0, 13, "nationality", True)
    names = detector.adapted(["name"]).detect("Emily Springs slept.")
    assert [(s.start, s.end, s.category, s.masked) for s in names] == [
        (0, 5, "name", True),
        (6, 13, "nationality", False),
    ]


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
    assert found(text, detector) == [("Middle", "age"), ("Eastern", "race")]


def test_a_user_lists_name_and_content_are_part_of_the_version() -> None:
    versions = [
        DETECTOR.adapted(user_list=chosen).version
        for chosen in (None, HIRING, replace(HIRING, name="other"), replace(HIRING, terms=HIRING.terms[:1]))
    ]
    assert len(set(versions)) == 4
    assert f"list 'hiring'+{HIRING.digest[:12]}" in versions[1]
