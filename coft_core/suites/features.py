"""Texts as vectors, for figures that compare many texts with many others: the mean of a model's last hidden states."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from coft_core.errors import InvalidInputError
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import DEMO, load_model
from coft_core.suites.base import Outcome, Written
from coft_core.suites.mauve import FEATURES, HUMAN_FEATURES, features_at

DIGITS = 6
"""Significant digits that are kept: far more than figures need, and less than depends on the machine's sums."""

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Featuriser:
    """Makes vectors of texts."""

    model: LanguageModel
    _known: dict[str, Vector] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The model's name, as it was asked for."""
        return self.model.name

    @property
    def version(self) -> str:
        """Digest of all that its vectors depend on besides the text, for the keys of what is kept."""
        parts = (self.model.weights_digest, self.model.tokenizer_digest, self.model.dtype_name, str(DIGITS))
        return hashlib.sha256("|".join(parts).encode()).hexdigest()

    def vectors(self, texts: Sequence[str]) -> list[Vector | None]:
        """A vector for each text, without the space around it; None for an empty one.

        Texts are read one by one, so that no vector depends on what else is read. Of a text that is longer than the
        model's context, the beginning is read.
        """
        stripped = [text.strip() for text in texts]
        for text in dict.fromkeys(stripped):
            if text and text not in self._known:
                self._known[text] = self._read(text)
        return [self._known.get(text) for text in stripped]

    @torch.inference_mode()
    def _read(self, text: str) -> Vector:
        ids = self.model.tokenizer.encode(text)[: self.model.context_length]
        row = torch.tensor([ids], device=self.model.device)  # (1, L)
        states = self.model.module(input_ids=row, use_cache=False, output_hidden_states=True).hidden_states[-1]
        mean = states[0].double().mean(0)  # (H,)
        return tuple(float(f"{value:.{DIGITS}g}") for value in mean.tolist())


def load_featuriser(source: str = DEMO, device: str = "auto") -> Featuriser:
    """Load a featuriser."""
    model = load_model(source, device)
    if model.engine is not None:
        raise InvalidInputError(
            f"Features are read inside a model, and {model.engine.title} does not show them; name one in safetensors."
        )
    return Featuriser(model)


def with_features(outcomes: Sequence[Outcome], featuriser: Featuriser) -> list[Outcome]:
    """Outcomes with the vectors of what was written and of the human texts in their facts, one an ask."""
    return [
        replace(outcome, vectors={**outcome.vectors, **_of(outcome, featuriser)}) if _writes(outcome) else outcome
        for outcome in outcomes
    ]


def _writes(outcome: Outcome) -> bool:
    return "reference" in outcome.facts and any(isinstance(answer, Written) for answer in outcome.answers)


def _of(outcome: Outcome, featuriser: Featuriser) -> Mapping[str, tuple[Vector | None, ...]]:
    written = [answer.text if isinstance(answer, Written) else "" for answer in outcome.answers]
    cuts: dict[int, list[str]] = {}
    for answer in outcome.answers:
        if isinstance(answer, Written):
            for count, end in answer.cuts:
                cuts.setdefault(count, []).append(answer.text[:end])
    human = [str(outcome.facts["reference"]) if isinstance(answer, Written) else "" for answer in outcome.answers]
    return {
        FEATURES: tuple(featuriser.vectors(written)),
        HUMAN_FEATURES: tuple(featuriser.vectors(human)),
        **{features_at(count): tuple(featuriser.vectors(texts)) for count, texts in cuts.items()},
    }
