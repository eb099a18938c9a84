"""What the contract test runs each method with: every registered one must be listed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.steering_directions.fitting import LabelledPair, fit_directions
from coft_core.model.fake import tiny_model
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.policies.registry import method


@dataclass(frozen=True)
class VowelScorer:
    """Finds texts the more toxic the more vowels they have."""

    name: str = "embedded"
    version: str = "1"

    def score(self, texts: Sequence[str]) -> list[float]:
        """Share of vowels."""
        return [sum(letter in "aeiou" for letter in text.lower()) / max(len(text), 1) for text in texts]


SCORERS = {"embedded": VowelScorer()}


@dataclass(frozen=True)
class Case:
    """A method with parameters that exercise it on a tiny model."""

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    models: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, Callable[[LanguageModel, Path], None]] = field(default_factory=dict)

    def written(self, model: LanguageModel, folder: Path) -> Case:
        """This case with its files written for a model."""
        paths = {name: folder / f"{self.name}-{name}" for name in self.files}
        for name, path in paths.items():
            self.files[name](model, path)
        return replace(self, parameters={**self.parameters, **{name: str(path) for name, path in paths.items()}})

    def policy(self, **controls: object) -> Policy:
        """The policy."""
        return method(self.name).build(self.parameters, **controls)

    def loaded(self) -> dict[str, LanguageModel]:
        """Its further models."""
        return {role: further_model(self.models[role]) for role in self.policy().models}


@functools.cache
def further_model(seed: int) -> LanguageModel:
    """One tiny model for each seed: no test changes it."""
    return tiny_model(seed=seed)


def directions(model: LanguageModel, path: Path) -> None:
    """Directions fitted on a few pairs of words."""
    pairs = [LabelledPair(f"a fair {word}", f"an unfair {word}") for word in "abcdefghijkl"]
    fit_directions(model, pairs).save(path)


CASES = (
    Case("vanilla"),
    Case("coft"),
    Case("coft-factorized"),
    Case("sdd"),
    Case("coft-single-branch"),
    Case("coft-no-fusion"),
    Case("coft-no-certification"),
    Case("dtcd", {"cap": 0.3}),
    Case("detox", {"cap": 0.2, "candidates": 30}),
    Case("safety_template"),
    Case("dexperts"),
    Case("dexperts", {"expert": "one", "anti_expert": "two"}, {"expert": 3, "anti-expert": 4}),
    Case("gedi"),
    Case("gedi", {"discriminator": "a tiny model"}, {"discriminator": 3}),
    Case("iti", {"heads": 3, "strength": 1.5}, files={"directions": directions}),
    Case("cda", {"checkpoint": "one"}, {"checkpoint": 3}),
    Case("adv_lm_head", {"checkpoint": "one"}, {"checkpoint": 4}),
    Case("cf_substitution"),
    Case("cafie"),
    Case("cafie", {"share": 0.6, "sharpness": 20.0, "pairs": ("she = he", "nurse = cook", "old = young"), "most": 3}),
    Case("cf_substitution", {"mean": "logits", "pairs": ("she = he", "nurse = cook", "old = young"), "weight": 2.0}),
    Case("neutral_rewrite"),
    Case(
        "neutral_rewrite",
        {"by": "model", "rewriter": "one", "longest": 9, "instruction": "{text} So:"},
        {"rewriter": 3},
    ),
    Case("contrastive"),
    Case("contrastive", {"against": "amateur", "amateur": "a tiny model"}, {"amateur": 3}),
)
