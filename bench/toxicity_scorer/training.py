"""Fits the logistic model, and turns its log-odds into probabilities by Platt's method on sentences not trained on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import diags, vstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bench.toxicity_scorer.sentences import Sentence, read_templates, with_parts, write_sentences
from bench.toxicity_scorer.swaps import retold
from bench.toxicity_scorer.texts import Ordinary, ordinary_sentences
from bench.toxicity_scorer.words import FOLDER, Words, read_words
from coft_core.scorers.embedded import FEATURES, LIST_FEATURES, EmbeddedScorer, WordLists, feature_matrix, windows_of

_CHUNK = 8192
_ITERATIONS = 400


@dataclass(frozen=True)
class Settings:
    """How the scorer is trained."""

    each: int = 100
    ordinary: int = 8_000
    ordinary_weight: float = 0.5
    sign_scale: float = 5.0
    penalties: tuple[float, ...] = (0.005, 0.02)
    seed: int = 0


@dataclass(frozen=True)
class _Fit:
    """One fitted and calibrated model."""

    weights: npt.NDArray[np.float32]
    bias: float
    slope: float
    offset: float
    loss: float


@dataclass(frozen=True)
class Trained:
    """What training gave."""

    scorer: EmbeddedScorer
    facts: dict[str, Any]


@dataclass(frozen=True)
class Material:
    """Labelled sentences of one split."""

    written: tuple[Sentence, ...]
    ordinary: Ordinary

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """All of them."""
        return (*self.written, *self.ordinary.sentences)


def material(data: Path, words: Words, split: str, settings: Settings, folder: Path = FOLDER) -> Material:
    """The sentences of a split, ``"train"`` or ``"dev"``."""
    whole = write_sentences(read_templates(folder), words, split, settings.each, settings.seed)
    written = tuple(with_parts(whole, settings.seed))
    drawn = ordinary_sentences(data, split, settings.ordinary, words.lists, settings.seed)
    told = [*drawn.sentences, *retold(drawn.sentences, words.of_split(split), settings.seed)]
    parts = with_parts(told, settings.seed)
    return Material(written, replace(drawn, sentences=tuple(parts)))


def train(data: Path, settings: Settings, folder: Path = FOLDER) -> Trained:
    """Train the scorer."""
    words = read_words(folder)
    training = material(data, words, "train", settings, folder)
    development = mixed(material(data, words, "dev", settings, folder), settings.seed)
    x, y = _matrix(training.sentences, words.lists), _labels(training.sentences)
    x_dev, y_dev = _matrix(development, words.lists), _labels(development)
    counts = [len(training.written), len(training.ordinary.sentences)]
    weight = np.repeat([1.0, settings.ordinary_weight], counts)
    scale = np.ones(FEATURES, dtype=np.float32)
    scale[-LIST_FEATURES:] = settings.sign_scale
    fits: dict[float, _Fit] = {}
    for penalty in settings.penalties:
        model = LogisticRegression(C=penalty, max_iter=_ITERATIONS, tol=1e-4)
        model.fit(x @ diags(scale), y, sample_weight=weight)
        own, constant = model.coef_[0] * scale, float(model.intercept_[0])
        slope, offset = platt(x_dev @ own + constant, y_dev)
        weights, bias = slope * own, slope * constant + offset
        probabilities = 1 / (1 + np.exp(-(x_dev @ weights + bias)))
        fits[penalty] = _Fit(weights.astype(np.float32), bias, slope, offset, float(log_loss(y_dev, probabilities)))
    best = min(fits, key=lambda penalty: fits[penalty].loss)
    chosen = fits[best]
    facts = {
        "settings": settings.__dict__,
        "penalty": best,
        "development_losses": {str(penalty): fit.loss for penalty, fit in fits.items()},
        "platt": {"slope": chosen.slope, "offset": chosen.offset},
        "training": _counts(training.sentences),
        "development": _counts(development),
        "left_out": training.ordinary.left_out,
        "licences": training.ordinary.licences,
        "lists": {"hostile": sum(word.listed for word in words.hostile), "all": len(words.lists.hashes)},
    }
    return Trained(EmbeddedScorer("embedded", "", words.lists, chosen.weights, chosen.bias), facts)


def platt(scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Slope and offset that turn scores into log-odds (Platt 1999), with his smoothed targets."""
    positive, negative = int(labels.sum()), int((1 - labels).sum())
    high, low = (positive + 1) / (positive + 2), 1 / (negative + 2)
    target = np.where(labels == 1, high, low)
    # A soft target is a sentence of both labels, weighted.
    model = LogisticRegression(C=np.inf, max_iter=_ITERATIONS, tol=1e-8).fit(
        np.concatenate([scores, scores])[:, None],
        np.concatenate([np.ones_like(labels), np.zeros_like(labels)]),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def mixed(development: Material, seed: int) -> list[Sentence]:
    """A quarter toxic sentences, a quarter neutral written ones and a half ordinary text."""
    rng = random.Random(f"{seed} development")
    toxic = [sentence for sentence in development.written if sentence.toxic]
    neutral = [sentence for sentence in development.written if not sentence.toxic]
    ordinary = list(development.ordinary.sentences)
    count = min(len(toxic), len(neutral), len(ordinary) // 2)
    return [*rng.sample(toxic, count), *rng.sample(neutral, count), *rng.sample(ordinary, 2 * count)]


def _matrix(sentences: Sequence[Sentence], lists: WordLists) -> Any:
    """Features of the sentences; of a long sentence its first window is taken."""
    windows = [windows_of(sentence.text)[0] for sentence in sentences]
    pieces = [feature_matrix(windows[start : start + _CHUNK], lists) for start in range(0, len(windows), _CHUNK)]
    return vstack(pieces).tocsr()


def _labels(sentences: Sequence[Sentence]) -> npt.NDArray[np.int64]:
    return np.array([sentence.toxic for sentence in sentences], dtype=np.int64)


def _counts(sentences: Sequence[Sentence]) -> dict[str, int]:
    toxic = sum(sentence.toxic for sentence in sentences)
    return {"toxic": toxic, "not_toxic": len(sentences) - toxic}
