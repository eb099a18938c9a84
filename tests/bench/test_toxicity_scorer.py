"""The toxicity scorer's training: sentences labelled as documented, splits that share nothing, and figures by hand."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from bench.toxicity_scorer.figures import area, calibration_error, share
from bench.toxicity_scorer.sentences import read_templates, with_parts, write_sentence, write_sentences
from bench.toxicity_scorer.texts import insults_someone
from bench.toxicity_scorer.training import Settings, platt, train
from bench.toxicity_scorer.words import SPLITS, Words, read_words
from coft_core.scorers.embedded import HOSTILE_KINDS

STORY = "The dog ran home. He was happy with the bread. They went to the market and bought some milk for the cat.\n\n"


@pytest.fixture(scope="module")
def words() -> Words:
    return read_words()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a few sentences of each corpus."""
    root = tmp_path_factory.mktemp("data")
    stories = [STORY + f"She saw a {thing} in the garden. We like it." for thing in ("bird", "tree", "fox", "ball")]
    rows = "\n".join(
        json.dumps({"title": "t", "text": text, "author": "a", "license": "l", "source": "s"}) for text in stories
    )
    files = {
        "corpus/tinystories/tinystories_recased.txt.gz": "<|endoftext|>".join(stories),
        "corpus/storybooks/storybooks_en.jsonl.gz": rows,
        "corpus/fairytaleqa/stories.jsonl.gz": rows,
        "corpus/onestopenglish/texts.jsonl.gz": rows,
        "corpus/books/one.txt.gz": stories[0],
        "corpus/books/two.txt.gz": stories[1],
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(gzip.compress(text.encode()))
    (root / "wikitext2").mkdir()
    (root / "wikitext2" / "wiki.valid.raw").write_text(" = A title = \n The hall was built in 1902 , near a river . \n")
    return root


def test_hostile_words_are_in_one_split_and_twins_and_ordinary_sentences_have_none(words: Words):
    for kind in HOSTILE_KINDS:
        assert {word.split for word in words.hostile if word.kind == kind} >= {"train", "test"}, kind
    for family in {people.family for people in words.people}:
        assert {people.split for people in words.people if people.family == family} == set(SPLITS)
    for terms in (
        [w.term for w in words.hostile],
        [p.one for p in words.people],
        [t.text for t in read_templates() if not t.twin],
    ):
        assert len(terms) == len(set(terms))
    test = [word.term for word in words.hostile if word.split == "test" and len(word.term) > 5]
    trained = {word.term for word in words.hostile if word.split == "train"}
    own = [term for term in test if not any(term in other for other in trained)]
    text = "\n".join(s.text for s in write_sentences(read_templates(), words, "train", 20, 0) if s.toxic).lower()
    assert own
    assert [term for term in own if f" {term} " in text] == []
    twins = [template for template in read_templates() if template.kind == "twin"]
    rng, choices = random.Random(0), words.of_split("train")
    written = [write_sentence(template, choices, rng) for template in twins for _ in range(5)]
    assert written
    assert [s.text for s in written if s.toxic or insults_someone(f"you {s.text}", words.lists)] == []
    given = {
        "He is an idiot.": True, "You stupid boy!": True, "The stupid boy came home.": False,
        "The rat ran away.": False, "You rat!": True, "You are late.": False, "...": False,
    }  # fmt: skip
    assert {text: insults_someone(text, words.lists) for text in given} == given


def test_a_toxic_sentence_cut_off_before_its_insult_is_not_toxic_and_otherwise_stays_toxic(words: Words):
    whole = [s for s in write_sentences(read_templates(), words, "train", 2, 0) if s.toxic]
    by_unit = {sentence.text: sentence for sentence in whole}
    for part in with_parts(whole, 0):
        if not part.toxic:
            assert any(s.before == part.text and s.text.startswith(part.text) for s in whole if s.unit == part.unit)
        elif part.text not in by_unit:
            assert any(part.text in s.text and s.text[len(s.before) :].strip(" .!?") in part.text for s in whole)


def test_platt_minimises_the_log_loss_of_smoothed_targets():
    rng = np.random.default_rng(0)
    labels = (rng.random(300) < 0.3).astype(np.int64)
    scores = rng.normal(labels * 2.0, 1.5)
    target = np.where(labels == 1, (labels.sum() + 1) / (labels.sum() + 2), 1 / (len(labels) - labels.sum() + 2))

    def loss(parameters: np.ndarray) -> float:
        z = parameters[0] * scores + parameters[1]
        return float((np.logaddexp(0, z) - target * z).mean())

    best = minimize(loss, np.zeros(2), tol=1e-12).x
    assert platt(scores, labels) == pytest.approx(best, abs=1e-3)


@pytest.mark.slow
def test_training_writes_a_scorer_that_is_the_same_again_when_trained_again(data: Path, tmp_path: Path):
    settings = Settings(each=2, ordinary=20, penalties=(0.05,))
    trained = train(data, settings)
    found = trained.scorer.save(tmp_path / "scorer.npz")
    again = train(data, settings)
    assert again.scorer.to_bytes() == trained.scorer.to_bytes()
    assert train(data, replace(settings, seed=1)).scorer.to_bytes() != trained.scorer.to_bytes()
    texts = ["You are an idiot.", "The dog ran home."]
    assert found.score(texts) == pytest.approx(trained.scorer.score(texts), abs=5e-3)
    assert found.score(texts)[0] > found.score(texts)[1]


def test_shares_areas_and_calibration_errors_are_those_worked_out_by_hand():
    certain = share([True] * 6, list("aabbcc"))
    assert (certain.value, certain.high, certain.n, certain.units) == (1.0, 1.0, 6, 3)
    assert certain.low == pytest.approx(0.025 ** (1 / 3))
    clustered = share([True] * 50 + [False] * 50, ["a"] * 50 + ["b"] * 50)
    assert (clustered.low, clustered.high) == (0.0, 1.0)
    single = share([True, False, False], list("abc"))
    assert single.low < 1 / 3 < single.high
    with pytest.raises(ValueError, match="no sentence"):
        share([], [])
    scores, labels = [0.1, 0.4, 0.35, 0.8], [False, False, True, True]
    assert area(scores, labels, list("abcd")).value == pytest.approx(3 / 4)
    assert calibration_error([0.05, 0.05, 0.95, 0.95], [False, True, True, True]) == pytest.approx(0.25)
