"""Families are labelled as documented, sentences repeat from a seed, and a small training reproduces and calibrates."""

from pathlib import Path

import pytest

from bench.detector.ambiguous import measure_scores, read_sentences
from bench.detector.contextual import contextual_sentences, read_contexts
from bench.detector.crows import measure_pairs, read_markers
from bench.detector.export import export
from bench.detector.families import NONE, FamilyLabeller
from bench.detector.generated import Fillers
from bench.detector.labels import Labelled
from bench.detector.temperature import fit_temperature, set_temperature
from bench.detector.training import FAMILY_LABELS, Settings, build_pipeline, example, train
from coft_core.text.pipeline import EntityPipeline
from coft_core.types import FAMILIES, Span

FILLERS = Fillers(
    common=("Anna", "Omar"), rare=("Ngozi",), surnames=("Lee",), groups=("Kenyan",), places=("Chad",),
    words={"act": ("signed",), "thing": ("form",)}, templates=(), plain=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def labeller() -> FamilyLabeller:
    return FamilyLabeller(frozenset({"wall"}))


def labelled(labeller: FamilyLabeller, text: str, named: bool = True) -> tuple[list[tuple[str, str]], list[str]]:
    result = labeller.label(Labelled(text, (), (), "made", "train"), named=named)
    return [(text[a:b], label) for a, b, label in result.families], [text[a:b] for a, b in result.undecided]


def test_terms_names_and_entities_have_their_family_or_that_of_a_telling_neighbour(labeller: FamilyLabeller) -> None:
    assert labelled(labeller, "She saw a blind clerk.") == ([("She", "GENDER"), ("blind", "DISABILITY")], [])
    assert labelled(labeller, "A brown wall fell.") == ([("brown", NONE)], [])
    assert labelled(labeller, "A brown zorb fell.") == ([], ["brown"])
    assert labelled(labeller, "Then Zorblax left.", named=False) == ([], ["Zorblax"])
    assert labelled(labeller, "Then Zorblax left.") == ([], [])
    text = "Zorb Kim met Muslim nurses in Ulm."
    entities = ((0, 8, "PERSON"), (13, 19, "NORP"), (30, 33, "GPE"))
    result = labeller.label(Labelled(text, entities, (), "made", "train"))
    found = [(text[a:b], label) for a, b, label in result.families]
    assert found == [("Zorb", "NAME"), ("Kim", "NAME"), ("Muslim", "RELIGION"), ("Ulm", "NATIONALITY")]


def test_families_frames_sentences_and_markers_are_of_the_lexicons_and_well_formed() -> None:
    contexts = read_contexts()
    assert [word for word in contexts.own if word.lower() not in contexts.families] == []
    assert [label.lower() for label in FAMILY_LABELS] == [NONE.lower(), *FAMILIES]
    dev, test = read_sentences("dev"), read_sentences("test")
    assert len(dev) > 100 < len(test)
    assert {x.text for x in dev}.isdisjoint(x.text for x in test)
    assert all(x.text[x.start : x.end].isalpha() and "[" not in x.text for x in (*dev, *test))
    assert 0.4 < sum(x.sensitive for x in test) / len(test) < 0.6
    markers = read_markers()
    assert len(markers) == 9
    assert all(word == word.lower() for words in markers.values() for word in words)


@pytest.mark.slow
def test_a_small_training_reproduces_is_calibrated_and_loads_as_a_judge(
    labeller: FamilyLabeller, tmp_path: Path
) -> None:
    settings = Settings(width=16, depth=1, rows=200, hidden=8, epochs=2, minutes=5.0, dropout=0.0, batch_words=200)
    texts = contextual_sentences(FILLERS, labeller, 120, seed=1)
    folders = []
    for name in ("first", "second"):
        nlp = build_pipeline(settings, "tiny", "0.0.1")
        course = list(train(nlp, [example(nlp, text) for text in texts], settings, lambda _: 0.0))
        assert course[1]["families_loss"] < course[0]["families_loss"]
        set_temperature(nlp, fit_temperature(nlp, read_sentences("dev")[:10]))
        export(nlp, {"course": course[0]["loss"]}, tmp_path / name)
        folders.append(EntityPipeline(str(tmp_path / name)))
    text = "She met a blind clerk and drank black tea."
    first, second = (pipeline.read(text) for pipeline in folders)
    words = [(start, start + 3) for start in range(0, len(text), 3)]
    assert folders[0].judges
    assert [first.probability(*w) for w in words] == [second.probability(*w) for w in words]
    assert all(0.0 <= first.probability(*word) <= 1.0 for word in words)


def test_the_embedded_scores_are_close_to_frequencies() -> None:
    pipeline = EntityPipeline.choose("embedded")
    assert pipeline is not None
    measured = measure_scores(pipeline, read_sentences("test"))
    assert measured["brier"] < 0.15
    assert measured["calibration_error"] < 0.15


def test_explicit_markers_and_suggestions_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("sent_more,sent_less,bias_type\nShe paid him zorb,Anna paid him zorb,gender\n", encoding="utf-8")

    def detect(text: str) -> list[Span]:
        first = Span(0, text.index(" "), "name", "lexicon", suggested=text.startswith("Anna"))
        return [first, Span(text.index("him"), text.index("him") + 3, "gender", "lexicon")]

    measured = measure_pairs(path, detect, {"gender": frozenset({"she", "him"})})
    assert (measured["recall"]["gender"]["value"], measured["recall"]["gender"]["n"]) == (1.0, 2)
    assert measured["masked_recall"]["gender"]["value"] == 0.5
    assert (measured["explicit"]["gender"]["value"], measured["explicit"]["gender"]["n"]) == (1.0, 1)
    assert (measured["others"]["value"], measured["others"]["n"]) == (0.3333, 3)
    assert (measured["others_unmarked"]["value"], measured["others_unmarked"]["n"]) == (0.0, 2)
