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


def test_it_loads_and_reads_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert names(EntityPipeline(str(FOLDER)), "I told Mr Okafor about it.") == [("Okafor", "PERSON")]


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
    }
    assert {text: own for text, own in wanted.items() if own not in found(detector, text)} == {}


def test_a_first_name_and_a_surname_are_one_span(detector: SpanDetector) -> None:
    for text, name in (
        ("Keisha Washington applied for a mortgage.", "Keisha Washington"),
        ("The landlord turned down Oluwaseun Adebayo again.", "Oluwaseun Adebayo"),
        ("Emily Walsh asked for a raise.", "Emily Walsh"),
        ("The officer searched Jamal Robinson.", "Jamal Robinson"),
    ):
        assert [item for item, category in found(detector, text) if category == "name"] == [name]


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
