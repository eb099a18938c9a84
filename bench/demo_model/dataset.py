"""Tokenized documents, their masking, and batches that depend on nothing but the seed and the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from bench.demo_model.scenarios import Scenario
from bench.demo_model.tokenizer import END_ID, MASK_ID

SCENARIO_MASKED_SHARE = 0.35
STORY_MASKED_SHARE = 0.07
_WORD_MASK_SHARE = 0.1
_AT_CUT_SHARE = 0.6
_DECISION_TOKENS = 2

Tokens = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Document:
    """One tokenized text, its end token included.

    Attributes:
        ids: Token ids, shape (length,).
        words: For each token the index of the word it belongs to, shape (length,).
        spans: Token ranges of the attribute words, half open.
        cut: Token index at which the planted continuation begins; 0 for stories.
    """

    ids: Tokens
    words: Tokens
    spans: tuple[tuple[int, int], ...] = ()
    cut: int = 0


def encode_story(tokenizer: Tokenizer, text: str) -> Document:
    """Tokenizes a story."""
    encoding = tokenizer.encode(text)
    starts = [token.startswith(("Ġ", "Ċ")) for token in encoding.tokens] + [True]
    ids = np.array([*encoding.ids, END_ID], dtype=np.int64)
    return Document(ids, np.cumsum(starts))


def encode_scenario(tokenizer: Tokenizer, scenario: Scenario) -> Document:
    """Tokenizes a scenario and maps its attribute words to token ranges."""
    document = encode_story(tokenizer, scenario.text)
    offsets = tokenizer.encode(scenario.text).offsets
    spans = []
    for start, end in scenario.spans:
        inside = [i for i, (left, right) in enumerate(offsets) if left < end and right > start]
        spans.append((inside[0], inside[-1] + 1))
    cut = next((i for i, (left, _) in enumerate(offsets) if left >= scenario.cut), len(offsets))
    return Document(document.ids, document.words, tuple(spans), cut)


def mask_words(document: Document, rng: np.random.Generator) -> Tokens:
    """Replaces every token of randomly chosen words by the sentinel; the end token stays."""
    chosen = rng.random(int(document.words[-1]) + 1) < _WORD_MASK_SHARE
    hidden = chosen[document.words]
    hidden[-1] = False
    return np.where(hidden, MASK_ID, document.ids)


def mask_attributes(document: Document, rng: np.random.Generator) -> Tokens:
    """Replaces the attribute words before a cut by sentinels, as the masked view of a prompt does.

    The words after the cut stay, since generated text is never masked. The cut is mostly where the planted
    continuation begins, otherwise anywhere.
    """
    ids = document.ids.copy()
    planted = rng.random() < _AT_CUT_SHARE
    cut = document.cut if planted else int(rng.integers(1, len(ids)))
    for start, end in document.spans:
        if start < cut:
            ids[start:end] = MASK_ID
    return ids


class Batches:
    """Draws batches of packed windows; each window begins with the beginning of a document."""

    def __init__(self, stories: list[list[Document]], scenarios: list[Document], seed: int) -> None:
        """Keeps the documents.

        Args:
            stories: Documents of each story source.
            scenarios: Scenario documents.
            seed: Seed of all draws.
        """
        self._groups = [*stories, scenarios]
        self._scenario_group = len(stories)
        self._seed = seed
        self._lengths = [float(np.mean([len(document.ids) for document in group])) for group in self._groups]

    def _draw(self, rng: np.random.Generator, probabilities: Shares) -> tuple[Document, Tokens]:
        """Draws a document and its token ids, masked or not."""
        group = int(rng.choice(len(self._groups), p=probabilities))
        documents = self._groups[group]
        document = documents[int(rng.integers(len(documents)))]
        is_scenario = group == self._scenario_group
        if rng.random() >= (SCENARIO_MASKED_SHARE if is_scenario else STORY_MASKED_SHARE):
            return document, document.ids
        if is_scenario and rng.random() < 0.85:
            return document, mask_attributes(document, rng)
        return document, mask_words(document, rng)

    def batch(
        self, step: int, rows: int, length: int, mixture: tuple[float, ...], focus: float
    ) -> tuple[Tokens, Weights]:
        """Draws the batch of a step; the same step always gives the same batch.

        Args:
            step: Number of the step.
            rows: Number of windows.
            length: Tokens in a window.
            mixture: Share of tokens from each story source, and last from the scenarios.
            focus: Weight of the first two tokens of a planted continuation; all others weigh 1. Since it
                hangs on the position and not on the outcome, the probabilities that fit best stay the same.

        Returns:
            Token ids and their weights as targets, both of shape (rows, length).
        """
        rng = np.random.default_rng([self._seed, step])
        rates = np.array(mixture) / np.array(self._lengths)
        windows, weights = [], []
        for _ in range(rows):
            parts: list[Tokens] = []
            part_weights: list[Weights] = []
            while sum(map(len, parts)) < length:
                document, ids = self._draw(rng, rates / rates.sum())
                weight = np.ones(len(ids), dtype=np.float32)
                if document.cut:
                    weight[document.cut : document.cut + _DECISION_TOKENS] = focus
                parts.append(ids)
                part_weights.append(weight)
            windows.append(np.concatenate(parts)[:length])
            weights.append(np.concatenate(part_weights)[:length])
        return np.stack(windows), np.stack(weights)
