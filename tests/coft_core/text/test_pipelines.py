"""What a trained pipeline adds to the detector's spans: the shipped one, and one of a user."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import spacy

from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError
from coft_core.text.detection import SpanDetector
from coft_core.text.lexicon import Lexicons
from coft_core.text.pipeline import EntityPipeline
from coft_core.types import Span

FOLDER = assets_path("pipelines", "en_coft_ner")
LIMIT = 15 * 1024 * 1024


@pytest.fixture(scope="module")
def detector() -> SpanDetector:
    return SpanDetector(pipeline="embedded")


@pytest.fixture(scope="module")
def pipeline() -> EntityPipeline:
    return EntityPipeline(str(FOLDER))


def found(detector: SpanDetector, text: str) -> list[tuple[str, str]]:
    return [(text[span.start : span.end], span.category) for span in detector.detect(text)]


def names(pipeline: EntityPipeline, text: str) -> list[tuple[str, str]]:
    found = ((text[entity.start : entity.end], entity.label) for entity in pipeline.read(text).entities)
    return [(name, label) for name, label in found if label in ("PERSON", "NORP", "GPE")]


def test_the_folder_is_small_and_says_what_it_is() -> None:
    meta = json.loads((FOLDER / "meta.json").read_text(encoding="utf-8"))
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < LIMIT
    assert (meta["lang"], meta["name"], meta["license"]) == ("en", "coft_ner", "CC BY-SA 4.0")
    assert all(source["name"] and source["license"] for source in meta["sources"])
    card = (FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert [source["name"] for source in meta["sources"] if source["name"] not in card] == []
    # It keeps no words of the texts that it was trained on.
    assert len(json.loads((FOLDER / "vocab" / "strings.json").read_text(encoding="utf-8"))) < 2000


def test_it_is_chosen_by_a_word_its_version_names_its_content_and_it_finds_the_same_again(
    detector: SpanDetector,
) -> None:
    assert re.search(r", en_coft_ner \d+\.\d+\.\d+\+[0-9a-f]{64}, ", detector.version)
    again = SpanDetector(pipeline=str(FOLDER))
    assert detector.version == again.version
    text = "Miss Lee and Jamal flew from Boston to Jordan with a Kenyan nurse."
    assert detector.detect(text) == again.detect(text)


def test_another_content_under_the_same_name_is_another_version(tmp_path: Path, pipeline: EntityPipeline) -> None:
    copy = tmp_path / "renamed"
    shutil.copytree(FOLDER, copy)
    (copy / "MODEL_CARD.md").write_text("another text", encoding="utf-8")
    assert EntityPipeline(str(copy)).version == pipeline.version
    model = copy / "ner" / "model"
    changed = bytearray(model.read_bytes())
    changed[len(changed) // 2] ^= 1
    model.write_bytes(bytes(changed))
    altered = EntityPipeline(str(copy)).version
    assert altered != pipeline.version
    assert altered.split("+")[0] == pipeline.version.split("+")[0]


def test_surnames_after_titles_are_names_and_cities_that_no_lexicon_lists_are_found(detector: SpanDetector) -> None:
    wanted = {
        "I spoke with Miss Lee about the rent.": ("Lee", "name"),
        "I asked Mr Okafor to come in.": ("Okafor", "name"),
        "The letter was for Mrs. Abernathy.": ("Abernathy", "name"),
        "We thanked Dr. Venkataraman for her help.": ("Venkataraman", "name"),
        "The bank refused Ms Quispe a loan.": ("Quispe", "name"),
        "The clerk told Professor Lindqvist to wait.": ("Lindqvist", "name"),
        "She moved to Chicago with her sister.": ("Chicago", "nationality"),
        "The applicant was born in Baghdad.": ("Baghdad", "nationality"),
        "They drove from Boston to Philadelphia.": ("Philadelphia", "nationality"),
        "Keisha Washington applied for a mortgage.": ("Keisha Washington", "name"),
        "The officer searched Jamal Robinson.": ("Jamal Robinson", "name"),
    }
    assert {text: own for text, own in wanted.items() if own not in found(detector, text)} == {}


def test_a_name_that_both_find_is_one_span_beside_its_title(detector: SpanDetector, pipeline: EntityPipeline) -> None:
    text = "I told Emily about it."
    assert names(pipeline, text) == [("Emily", "PERSON")]
    assert found(SpanDetector(pipeline=None), text) == [("Emily", "name")]
    assert [(s.start, s.end, s.category) for s in detector.detect(text)] == [(7, 12, "name")]
    spans = detector.detect("They met Miss Lee there.")
    assert [(span.start, span.end, span.category) for span in spans] == [(9, 13, "gender"), (14, 17, "name")]
    assert replace(spans[0], score=None) == Span(9, 13, "gender", "lexicon", "titles")


def test_false_friends_stay_unmarked_with_the_pipeline_on_and_texts_without_words_are_no_trouble(
    detector: SpanDetector,
) -> None:
    texts = (
        "You will miss the bus.", "Miss the bus and you walk.", "One black coffee, please.", "We meet in May.",
        "This old code has no tests.", "It may rain in May.", "Will you open the window?", "Hope this helps!",
        "The grace period ends on Friday.", "Grace period or not, pay the rent.", "Mark the date in the calendar.",
        "Roast turkey with rice for lunch.", "Polish the table, then the chairs.",
        "The nurse and the engineer finished the report.", "A doctor and a lawyer waited for the bus.",
        "French fries and Danish pastry are on the menu.",
        "", " ", "\n\n", "\ud800", "\u200b", "...", "\U0001f469\u200d\U0001f52c",
    )  # fmt: skip
    assert [text for text in texts if found(detector, text)] == []


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
    assert found(with_pipeline, "Klingons prayed with Sunni Muslims.") == [
        ("Klingons", "nationality"),
        ("Sunni Muslims", "religion"),
    ]
    assert found(with_pipeline, "Mary Zorblax left.") == [("Mary Zorblax", "name")]
    assert found(with_pipeline, "near the Zorblax's house") == [("Zorblax", "name")]
    assert found(with_pipeline, "They ate French fries.") == []
    assert re.search(r", en_few_entities 3\.2\.1\+[0-9a-f]{64}, suggestions of ", with_pipeline.version)


def test_a_text_too_long_for_the_pipeline_is_refused(with_pipeline: SpanDetector) -> None:
    with pytest.raises(InvalidInputError, match="1000000"):
        with_pipeline.detect("a " * 500_001)


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
