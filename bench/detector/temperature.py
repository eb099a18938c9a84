"""Makes the probabilities of the word classifier those of being right: temperature scaling (Guo et al. 2017).

The temperature divides the logits before the softmax; it is put into the weights, so that the pipeline needs no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from spacy.language import Language

from bench.detector.ambiguous import Sentence
from coft_core.text.pipeline import FAMILIES_PIPE

_LOWEST, _HIGHEST = 0.2, 10.0


def fit_temperature(nlp: Language, sentences: Sequence[Sentence]) -> float:
    """The temperature that makes hand-written sentences likeliest."""
    logs, truths = list[npt.NDArray[np.float64]](), list[bool]()
    component = cast("Any", nlp.get_pipe(FAMILIES_PIPE))
    for sentence in sentences:
        document = nlp(sentence.text)
        (chances,) = component.model.predict([document])
        word = next(token.i for token in document if token.idx <= sentence.start < token.idx + len(token))
        logs.append(np.log(np.maximum(np.asarray(chances[word], dtype=np.float64), 1e-12)))
        truths.append(sentence.sensitive)
    table, wanted = np.array(logs), np.array(truths)  # (N, L), (N,)

    def loss(temperature: float) -> float:
        scaled = np.exp(table / temperature)
        none = np.clip(scaled[:, 0] / scaled.sum(axis=1), 1e-9, 1 - 1e-9)
        return float(-np.log(np.where(wanted, 1 - none, none)).mean())

    return float(minimize_scalar(loss, bounds=(_LOWEST, _HIGHEST), method="bounded").x)


def set_temperature(nlp: Language, temperature: float) -> None:
    """Divide the classifier's logits by a temperature for good."""
    layer = cast("Any", nlp.get_pipe(FAMILIES_PIPE)).model.get_ref("output_layer")
    for name in ("W", "b"):
        layer.set_param(name, layer.get_param(name) / np.float32(temperature))
