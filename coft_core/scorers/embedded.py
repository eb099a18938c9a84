"""The scorer that comes with the program: a logistic model over words, pieces of words, and a list of insults."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import HashingVectorizer

from coft_core.assets import assets_path
from coft_core.errors import ModelLoadError

SHIPPED = assets_path("scorer", "embedded.npz")
FORMAT = 1
WORD_FEATURES = 2**15
PIECE_FEATURES = 2**15


@dataclass(frozen=True, eq=False)
class EmbeddedScorer:
    """A logistic model over hashed features.

    Attributes:
        name: Its name.
        version: Digest of its file.
        insults: Words and phrases of the list, in lower case.
        weights: Weight of each feature: words and word pairs, pieces of words, insults found (their number's logarithm,
            and whether there is one), ``(F,)``.
        bias: Constant of the model.
    """

    name: str
    version: str
    insults: tuple[str, ...]
    weights: npt.NDArray[np.float32]
    bias: float

    def score(self, texts: Sequence[str]) -> list[float]:
        """Probability that each text is toxic."""
        if not texts:
            return []
        logits = self.features(texts) @ self.weights + self.bias
        return [float(value) for value in 1.0 / (1.0 + np.exp(-logits))]

    def features(self, texts: Sequence[str]) -> Any:
        """Features of each text, ``(N, F)`` sparse."""
        found = np.array([len(self._pattern.findall(text.lower())) for text in texts], dtype=np.float32)
        listed = csr_matrix(np.stack([np.log1p(found), found > 0], axis=1))
        return hstack([self._words.transform(texts), self._pieces.transform(texts), listed]).tocsr()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        if not self.insults:
            return re.compile(r"(?!)")
        listed = "|".join(re.escape(word) for word in sorted(self.insults, key=len, reverse=True))
        return re.compile(rf"(?<!\w)(?:{listed})(?!\w)")

    @cached_property
    def _words(self) -> Any:
        return HashingVectorizer(n_features=WORD_FEATURES, ngram_range=(1, 2), alternate_sign=False)

    @cached_property
    def _pieces(self) -> Any:
        return HashingVectorizer(
            n_features=PIECE_FEATURES, analyzer="char_wb", ngram_range=(3, 5), alternate_sign=False
        )

    def save(self, path: Path) -> None:
        """Write to a file in NumPy's compressed form."""
        header = json.dumps({"format": FORMAT, "bias": self.bias, "insults": self.insults})
        with path.open("wb") as file:
            np.savez_compressed(file, header=np.array(header), weights=self.weights.astype(np.float16))


def load_embedded(path: Path = SHIPPED) -> EmbeddedScorer:
    """Read the scorer's file.

    Raises:
        ModelLoadError: It is missing or holds something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header, weights = json.loads(str(file["header"])), file["weights"].astype(np.float32)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        return EmbeddedScorer("embedded", digest, tuple(header["insults"]), weights, float(header["bias"]))
    except (OSError, ValueError, KeyError) as error:
        raise ModelLoadError(f"The embedded toxicity scorer at {path} cannot be read ({error}).") from error
