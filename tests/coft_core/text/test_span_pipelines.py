"""What a trained pipeline adds to the detector's spans, and which pipelines are refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import spacy

from coft_core.errors import InvalidInputError
from coft_core.text.detection import SpanDetector
from coft_core.text.lexicon import Lexicons
from coft_core.types import Span


def found(text: str, detector: SpanDetector) -> list[tuple[str, str]]:
    """The marked texts with their categories."""
    return [(text[span.start : span.end], span.category) for span in detector.detect(text)]


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
    assert re.search(r", en_few_entities 3\.2\.1\+[0-9a-f]{64}, suggestions of ", with_pipeline.version)


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
