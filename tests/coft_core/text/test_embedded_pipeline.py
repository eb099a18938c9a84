"""The shipped pipeline: it loads by itself, finds people where only the context tells, and leaves words alone."""

import json
import re
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from coft_core.assets import assets_path
from coft_core.text.detection import SpanDetector
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


def test_the_vocabulary_keeps_no_words_of_the_training_texts() -> None:
    strings = json.loads((FOLDER / "vocab" / "strings.json").read_text(encoding="utf-8"))
    assert len(strings) < 2000


def test_it_is_chosen_by_a_word_and_its_version_names_its_content(detector: SpanDetector) -> None:
    assert re.search(r", en_coft_ner \d+\.\d+\.\d+\+[0-9a-f]{64}, ", detector.version)
    assert detector.version == SpanDetector(pipeline=str(FOLDER)).version


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


def test_it_loads_and_reads_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert names(EntityPipeline(str(FOLDER)), "I told Mr Okafor about it.") == [("Okafor", "PERSON")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("I spoke with Miss Lee about the rent.", "Lee"),
        ("I asked Mr Okafor to come in.", "Okafor"),
        ("The letter was for Mrs. Abernathy.", "Abernathy"),
        ("We thanked Dr. Venkataraman for her help.", "Venkataraman"),
        ("The bank refused Ms Quispe a loan.", "Quispe"),
        ("The clerk told Professor Lindqvist to wait.", "Lindqvist"),
    ],
)
def test_a_surname_after_a_title_is_a_name(detector: SpanDetector, text: str, name: str) -> None:
    assert (name, "name") in found(detector, text)


@pytest.mark.parametrize(
    "text",
    [
        "Keisha Washington applied for a mortgage.",
        "The landlord turned down Oluwaseun Adebayo again.",
        "Emily Walsh asked for a raise.",
        "The officer searched Jamal Robinson.",
    ],
)
def test_a_first_name_and_a_surname_are_one_span(detector: SpanDetector, text: str) -> None:
    marked = [item for item, category in found(detector, text) if category == "name"]
    assert len(marked) == 1
    assert re.fullmatch(r"[A-Z]\w+ [A-Z]\w+", marked[0])


def test_a_name_that_both_find_is_one_span(detector: SpanDetector, pipeline: EntityPipeline) -> None:
    text = "I told Emily about it."
    assert names(pipeline, text) == [("Emily", "PERSON")]
    assert found(SpanDetector(pipeline=None), text) == [("Emily", "name")]
    assert [(s.start, s.end, s.category) for s in detector.detect(text)] == [(7, 12, "name")]


def test_a_title_stays_gender_beside_the_name(detector: SpanDetector) -> None:
    spans = detector.detect("They met Miss Lee there.")
    assert [(span.start, span.end, span.category) for span in spans] == [(9, 13, "gender"), (14, 17, "name")]
    assert replace(spans[0], score=None) == Span(9, 13, "gender", "lexicon", "titles")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("She moved to Chicago with her sister.", "Chicago"),
        ("The applicant was born in Baghdad.", "Baghdad"),
        ("They drove from Boston to Philadelphia.", "Philadelphia"),
    ],
)
def test_cities_that_no_lexicon_lists_are_found(detector: SpanDetector, text: str, place: str) -> None:
    assert (place, "nationality") in found(detector, text)


@pytest.mark.parametrize(
    "text",
    [
        "You will miss the bus.",
        "Miss the bus and you walk.",
        "One black coffee, please.",
        "This old code has no tests.",
        "We meet in May.",
        "It may rain in May.",
        "Will you open the window?",
        "The grace period ends on Friday.",
        "Grace period or not, pay the rent.",
        "Mark the date in the calendar.",
        "Roast turkey with rice for lunch.",
        "Polish the table, then the chairs.",
        "Hope this helps!",
        "The nurse and the engineer finished the report.",
        "A doctor and a lawyer waited for the bus.",
        "French fries and Danish pastry are on the menu.",
    ],
)
def test_false_friends_stay_unmarked_with_the_pipeline_on(detector: SpanDetector, text: str) -> None:
    assert found(detector, text) == []


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\ud800", "\u200b", "...", "\U0001f469\u200d\U0001f52c"])
def test_texts_without_words_are_no_trouble(detector: SpanDetector, text: str) -> None:
    assert detector.detect(text) == []


def test_the_same_text_gives_the_same_spans(detector: SpanDetector) -> None:
    text = "Miss Lee and Jamal flew from Boston to Jordan with a Kenyan nurse."
    assert detector.detect(text) == SpanDetector(pipeline="embedded").detect(text)
