"""The embedded scorer as a model and a file: what it computes, and what it refuses to read."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

from coft_core.errors import ModelLoadError
from coft_core.scorers.embedded import FEATURES, KINDS, EmbeddedScorer, WordLists, load_embedded, windows_of
from tests.coft_core.scorers import slow

TERMS = {("fool",): "insult", ("you",): "address", ("not",): "negation", ("nurse",): "group"}


def small_scorer() -> EmbeddedScorer:
    weights = np.random.default_rng(1).normal(0, 0.3, FEATURES).astype(np.float16).astype(np.float32)
    lists = WordLists.of({kind: [term for term, own in TERMS.items() if own == kind] for kind in KINDS})
    return EmbeddedScorer("embedded", "none", lists, weights, -0.75)


def slow_score(scorer: EmbeddedScorer, sentences: list[str]) -> float:
    logits = [
        math.fsum(float(scorer.weights[column]) for column in slow.columns(window, TERMS)) + scorer.bias
        for sentence in sentences
        for window in windows_of(sentence)
    ]
    return 1 / (1 + math.exp(-max(logits)))


def test_the_score_is_the_logistic_of_the_most_toxic_sentence():
    scorer = small_scorer()
    sentences = ["You are a fool.", "The nurse went home!", "No fool, you said?", "word " * 95]
    texts = [" ".join(sentences[:count]) for count in range(1, 5)]
    expected = [slow_score(scorer, sentences[:count]) for count in range(1, 5)]
    assert scorer.score(texts) == pytest.approx(expected, abs=1e-9)
    assert expected == sorted(expected)


def test_a_text_has_one_score_whatever_is_scored_with_it():
    scorer = small_scorer()
    texts = [f"The nurse came home. She was{ending}" for ending in ("", " a fool", " late.", " late. And", "\n\n")]
    together = scorer.score(texts)
    assert together == pytest.approx([scorer.score([text])[0] for text in texts], abs=1e-12)
    assert scorer.score([]) == []
    assert scorer.score([""]) == pytest.approx([1 / (1 + math.exp(0.75))])


def test_a_file_gives_back_the_scorer_and_not_its_listed_words(tmp_path: Path):
    scorer, path = small_scorer(), tmp_path / "made" / "scorer.npz"
    found = scorer.save(path)
    assert (found.weights == scorer.weights).all()
    assert found.bias == scorer.bias
    assert found.score(["You fool", "The nurse"]) == scorer.score(["You fool", "The nurse"])
    assert found.version == hashlib.sha256(path.read_bytes()).hexdigest()
    assert scorer.to_bytes() == path.read_bytes()
    path = tmp_path / "scorer.npz"
    small_scorer().save(path)
    with np.load(path, allow_pickle=False) as file:
        content = b"".join(file[name].tobytes() for name in file.files)
        header = json.loads(str(file["header"]))
    for encoding in ("utf-8", "utf-32-le"):
        assert "fool".encode(encoding) not in content
    assert set(header) == {"format", "bias", "kinds"}


@pytest.mark.parametrize("broken", ["missing", "text", "empty", "cut", "without weights", "other format", "other size"])
def test_a_file_that_is_no_scorer_is_refused_in_one_sentence(tmp_path: Path, broken: str):
    path, whole = tmp_path / "scorer.npz", small_scorer().to_bytes()
    header = json.dumps({"format": 1 if broken == "other format" else 2, "bias": 0.0, "kinds": KINDS})
    lists = {"list_hashes": np.zeros(1, np.uint64), "list_kinds": np.zeros(1, np.uint8)}
    if broken in ("text", "empty", "cut"):
        path.write_bytes({"text": b"no scorer", "empty": b"", "cut": whole[: len(whole) // 2]}[broken])
    elif broken == "without weights":
        np.savez(path, header=np.array(header), **lists)
    elif broken != "missing":
        size = FEATURES if broken == "other format" else 3
        np.savez(path, header=np.array(header), weights=np.zeros(size, np.float16), **lists)
    with pytest.raises(ModelLoadError, match=r"scorer\.npz") as told:
        load_embedded(path)
    assert str(told.value).endswith(".")
