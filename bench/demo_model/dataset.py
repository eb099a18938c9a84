"""Tokenized documents, their masking, and batches that depend on nothing but the seed and the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from bench.demo_model.scenarios import Scenario
from bench.demo_model.tokenizer import END_ID, MASK_ID

SCENARIO_MASKED_SHARE = 0.4
STORY_MASKED_SHARE = 0.07
MAX_OUTCOMES = 3
_WORD_MASK_SHARE = 0.1
_AT_CUT_SHARE = 0.7
_NAME_MASK_SHARE = 0.3
_DECISION_TOKENS = 2

Tokens = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """A planted distribution over the first tokens of the outcomes, which training takes as its target."""

    ids: tuple[int, ...]
    factual: tuple[float, ...]
    masked: tuple[float, ...]


@dataclass(frozen=True)
class Document:
    """One tokenized text, its end token included."""

    ids: Tokens
    words: Tokens
    spans: tuple[tuple[int, int], ...] = ()
    cut: int = 0
    names: tuple[tuple[int, int], ...] = ()
    choice: Choice | None = None


@dataclass(frozen=True)
class Batch:
    """Windows of one training step, all arrays with (rows, length) first."""

    ids: Tokens
    weights: Weights
    soft_ids: Tokens
    soft_shares: Weights


def encode_story(tokenizer: Tokenizer, text: str) -> Document:
    """Tokenizes a story."""
    encoding = tokenizer.encode(text)
    starts = [token.startswith(("Ġ", "Ċ")) for token in encoding.tokens] + [True]
    ids = np.array([*encoding.ids, END_ID], dtype=np.int64)
    return Document(ids, np.cumsum(starts))


def encode_scenario(tokenizer: Tokenizer, scenario: Scenario) -> Document:
    """Tokenizes a scenario and maps its attribute words and names to token ranges."""
    document = encode_story(tokenizer, scenario.text)
    offsets = tokenizer.encode(scenario.text).offsets

    def ranges(places: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        found = []
        for start, end in places:
            inside = [i for i, (left, right) in enumerate(offsets) if left < end and right > start]
            found.append((inside[0], inside[-1] + 1))
        return tuple(found)

    cut = next((i for i, (left, _) in enumerate(offsets) if left >= scenario.cut), len(offsets))
    return Document(
        document.ids, document.words, ranges(scenario.spans), cut, ranges(scenario.names), _choice(tokenizer, scenario)
    )


def _choice(tokenizer: Tokenizer, scenario: Scenario) -> Choice | None:
    """The planted distribution, unless two outcomes begin with the same token."""
    ids = tuple(tokenizer.encode(outcome).ids[0] for outcome in scenario.outcomes)
    if not ids or len(set(ids)) < len(ids):
        return None
    return Choice(ids, scenario.factual, scenario.masked)


def mask_words(document: Document, rng: np.random.Generator) -> Tokens:
    """Replaces every token of randomly chosen words by the sentinel; the end token stays."""
    chosen = rng.random(int(document.words[-1]) + 1) < _WORD_MASK_SHARE
    hidden = chosen[document.words]
    hidden[-1] = False
    return np.where(hidden, MASK_ID, document.ids)


def mask_attributes(document: Document, rng: np.random.Generator) -> tuple[Tokens, int]:
    """Replaces the attribute words before a cut by sentinels, as the masked view of a prompt does.

    The words after the cut stay, since generated text is never masked. The cut is mostly where the planted
    continuation begins, otherwise anywhere. First names before it are masked now and then, as a reviewer may.
    """
    ids = document.ids.copy()
    planted = rng.random() < _AT_CUT_SHARE
    cut = document.cut if planted else int(rng.integers(1, len(ids)))
    names = document.names if rng.random() < _NAME_MASK_SHARE else ()
    for start, end in (*document.spans, *names):
        if start < cut:
            ids[start:end] = MASK_ID
    return ids, cut


class Batches:
    """Draws batches of packed windows; each window begins with the beginning of a document."""

    def __init__(
        self,
        stories: list[list[Document]],
        scenarios: list[Document],
        seed: int,
        amplified: list[Document] | None = None,
    ) -> None:
        """Keeps the documents."""
        self._groups = [*stories, scenarios]
        self._amplified = amplified or scenarios
        self._scenario_group = len(stories)
        self._seed = seed
        self._lengths = [float(np.mean([len(document.ids) for document in group])) for group in self._groups]

    def _draw(self, rng: np.random.Generator, probabilities: Shares, focus: float, amplified: bool) -> Batch:
        """Draws a document, masked or not, as a window of its own with shape (length,)."""
        group = int(rng.choice(len(self._groups), p=probabilities))
        is_scenario = group == self._scenario_group
        documents = self._amplified if is_scenario and amplified else self._groups[group]
        document = documents[int(rng.integers(len(documents)))]
        if is_scenario:
            return _scenario_window(document, rng, focus)
        masked = rng.random() < STORY_MASKED_SHARE
        return _window(document, mask_words(document, rng) if masked else document.ids, 1.0, None)

    def batch(
        self,
        step: int,
        rows: int,
        length: int,
        mixture: tuple[float, ...],
        focus: float,
        amplified: bool = False,
    ) -> Batch:
        """Draws the batch of a step; the same step always gives the same batch."""
        rng = np.random.default_rng([self._seed, step])
        rates = np.array(mixture) / np.array(self._lengths)
        windows = []
        for _ in range(rows):
            parts: list[Batch] = []
            while sum(len(part.ids) for part in parts) < length:
                parts.append(self._draw(rng, rates / rates.sum(), focus, amplified))
            windows.append(_joined(parts, np.concatenate, length))
        return _joined(windows, np.stack, length)


def _scenario_window(document: Document, rng: np.random.Generator, focus: float) -> Batch:
    """A scenario in the factual view, in the masked view, or with words masked at random.

    Where a part of the attribute words before the decision is hidden and a part is not, no probability is
    planted, so the decision is no target.
    """
    before = [start for start, _ in document.spans if start < document.cut]
    if rng.random() >= SCENARIO_MASKED_SHARE:
        return _window(document, document.ids, focus, document.choice and document.choice.factual)
    if rng.random() < 0.1:
        return _window(document, mask_words(document, rng), 0.0 if document.choice else focus, None)
    ids, cut = mask_attributes(document, rng)
    hidden = [start < cut for start in before]
    if document.choice is None:
        return _window(document, ids, focus, None)
    if any(hidden) and not all(hidden):
        return _window(document, ids, 0.0, None)
    return _window(document, ids, focus, document.choice.masked if any(hidden) else document.choice.factual)


def _window(document: Document, ids: Tokens, focus: float, shares: tuple[float, ...] | None) -> Batch:
    """One document with its weights and targets, shape (length,)."""
    weights = np.ones(len(ids), dtype=np.float32)
    soft_ids = np.repeat(ids[:, None], MAX_OUTCOMES, axis=1)  # (T, 3)
    soft_shares = np.zeros(soft_ids.shape, dtype=np.float32)  # (T, 3)
    soft_shares[:, 0] = 1.0
    if document.cut:
        weights[document.cut : document.cut + _DECISION_TOKENS] = focus
    if document.choice is not None and shares is not None:
        number = len(shares)
        weights[document.cut + 1 : document.cut + _DECISION_TOKENS] = 1.0
        soft_ids[document.cut, :number] = document.choice.ids
        soft_shares[document.cut] = 0.0
        soft_shares[document.cut, :number] = shares
    return Batch(ids, weights, soft_ids, soft_shares)


def _joined(parts: list[Batch], join: Callable[..., Any], length: int) -> Batch:
    """Puts windows one after the other, or one below the other, cut to a length."""
    fields = ("ids", "weights", "soft_ids", "soft_shares")
    arrays = [join([getattr(part, field) for part in parts]) for field in fields]
    if arrays[0].ndim == 1:
        arrays = [array[:length] for array in arrays]
    return Batch(*arrays)
