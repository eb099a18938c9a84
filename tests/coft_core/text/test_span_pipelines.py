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


def test_a_trained_pipeline_adds_people_places_and_groups_by_the_rules_of_the_lexicons(
    with_pipeline: SpanDetector,
) -> None:
    text = "Zorblax Quux left Acme for Gotham City."
    spans = [replace(span, score=None) for span in with_pipeline.detect(text)]
    assert spans == [
        Span(0, 12, "name", "pipeline", "PERSON", suggested=True),
        Span(27, 38, "nationality", "pipeline", "GPE"),
    ]
    assert found("Klingons prayed with Sunni Muslims.", with_pipeline) == [
        ("Klingons", "nationality"),
        ("Sunni Muslims", "religion"),
    ]
    assert found("Mary Zorblax left.", with_pipeline) == [("Mary Zorblax", "name")]
    assert found("near the Zorblax's house", with_pipeline) == [("Zorblax", "name")]
    assert found("They ate French fries.", with_pipeline) == []
    assert re.search(r", en_few_entities 3\.2\.1\+[0-9a-f]{64}, suggestions of ", with_pipeline.version)


def test_a_text_too_long_for_the_pipeline_is_refused(with_pipeline: SpanDetector) -> None:
    with pytest.raises(InvalidInputError, match="1000000"):
        with_pipeline.detect("a " * 500_001)


def test_auto_is_the_pipeline_that_comes_with_the_program() -> None:
    assert SpanDetector(Lexicons(())).version == SpanDetector(Lexicons(()), pipeline="embedded").version


def test_a_pipeline_that_is_missing_damaged_or_without_an_entity_recogniser_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}", encoding="utf-8")
    spacy.blank("en").to_disk(tmp_path / "blank")
    for name, said in (
        ("en_nowhere", r"'en_nowhere' cannot be loaded: .*\.$"),
        (str(tmp_path), "cannot be loaded"),
        (str(tmp_path / "blank"), "no named entities"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            SpanDetector(Lexicons(()), pipeline=name)


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
