"""The scorer that comes with the program: a logistic model over hashed words, pieces of words and lists of words."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from coft_core.assets import assets_path
from coft_core.errors import ModelLoadError
from coft_core.scorers.features import FEATURES, KINDS, WordLists, feature_matrix
from coft_core.scorers.reading import read

SHIPPED = assets_path("scorer", "embedded.npz")
FORMAT = 2


@dataclass(frozen=True, eq=False)
class EmbeddedScorer:
    """A logistic model that judges a text by its most toxic window.

    A window is a sentence, or a part of a long one (:mod:`coft_core.scorers.reading`). So a text's score never falls
    when it goes on, as long as its sentences stay as they are.

    Attributes:
        name: Its name.
        version: Digest of its file.
        lists: Groups, pronouns, negations and hostile words, as hashes.
        weights: Weight of each feature of :func:`coft_core.scorers.features.feature_matrix`, ``(FEATURES,)``.
        bias: Constant of the model.
    """

    name: str
    version: str
    lists: WordLists
    weights: npt.NDArray[np.float32]
    bias: float

    def score(self, texts: Sequence[str]) -> list[float]:
        """Probability that each text is toxic."""
        return [1.0 / (1.0 + float(np.exp(-logit))) for logit in self.logits(texts)]

    def logits(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Log-odds that each text is toxic: those of its most toxic window, ``(N,)``."""
        if not texts:
            return np.empty(0)
        windows = read(texts)
        own = feature_matrix(windows.words, self.lists) @ self.weights.astype(np.float64) + self.bias  # (windows,)
        flat = np.concatenate([own[list(places)] for places in windows.texts])
        starts = np.cumsum([0, *(len(places) for places in windows.texts[:-1])])
        highest: npt.NDArray[np.float64] = np.maximum.reduceat(flat, starts)
        return highest

    def to_bytes(self) -> bytes:
        """The scorer's file, in NumPy's compressed form; weights are rounded to 16 bits."""
        header = json.dumps({"format": FORMAT, "bias": self.bias, "kinds": KINDS})
        file = io.BytesIO()
        np.savez_compressed(
            file,
            header=np.array(header),
            weights=self.weights.astype(np.float16),
            list_hashes=self.lists.hashes,
            list_kinds=self.lists.kinds,
        )
        return file.getvalue()

    def save(self, path: Path) -> EmbeddedScorer:
        """Write the file and return what :func:`load_embedded` reads from it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.to_bytes())
        return load_embedded(path)


def load_embedded(path: Path = SHIPPED) -> EmbeddedScorer:
    """Read the scorer's file.

    Raises:
        ModelLoadError: It is missing, holds something else, or is of another version of the program.
    """
    try:
        content = path.read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header: dict[str, Any] = json.loads(str(file["header"]))
            lists = WordLists(file["list_hashes"].astype(np.uint64), file["list_kinds"].astype(np.uint8))
            weights = file["weights"].astype(np.float32)
        bias = float(header["bias"])
        told = (header["format"], tuple(header["kinds"]), weights.shape)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ModelLoadError(f"The embedded toxicity scorer at {path} cannot be read ({error}).") from error
    if told != (FORMAT, KINDS, (FEATURES,)):
        raise ModelLoadError(
            f"The embedded toxicity scorer at {path} is of format {told[0]} and this program reads format {FORMAT}; "
            "train it anew with python -m bench.toxicity_scorer."
        )
    return EmbeddedScorer("embedded", hashlib.sha256(content).hexdigest(), lists, weights, bias)
