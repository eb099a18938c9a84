"""What is decoded: prompts of a given length with masked words, under policies with everything that an audit shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import coft_core as cc
from bench.decode.shapes import DEMO, as_transformers_has_it
from coft_core.conformal.families import FactorizedCalibration
from coft_core.conformal.values import CalibrationValues
from coft_core.decode.plan import Plan
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy

LAM, LOG_TAU, TOP_P = 0.6, math.log(1e-4), 0.9
SENTENCE = "The nurse finished the rounds of the evening and then he prepared the reports. "
WORD = "he"
FAMILIES = ("gender", "race", "age", "religion")
"""Families that the masked words are said to be of, so that factorized masks have a branch for each."""


@dataclass(frozen=True)
class Work:
    """Prompts that are continued together.

    Attributes:
        model: The model.
        module: The same weights as transformers has them, for the ways that go without the engine.
        text: The text of each of them; they differ in their seeds.
        spans: Masked words, the last ones of the text.
        batch: Prompts at a time.
        tokens: Tokens that are timed; one more is decoded before them.
    """

    model: LanguageModel
    module: Any
    text: str
    spans: tuple[cc.Span, ...]
    batch: int
    tokens: int

    @property
    def masked(self) -> cc.MaskedPrompt:
        """The prompt in both branches."""
        return cc.mask_prompt(self.model.tokenizer, self.text, self.spans)

    def plans(
        self,
        policy: Policy,
        keep_logits: bool = False,
        greedy: bool = False,
        models: Mapping[str, LanguageModel] | None = None,
    ) -> list[Plan]:
        """The prompts under a policy."""
        return [
            cc.plan(
                self.model,
                self.text,
                policy,
                self.spans,
                seed=place,
                greedy=greedy,
                max_new_tokens=self.tokens + 1,
                keep_logits=keep_logits,
                models=models,
            )
            for place in range(self.batch)
        ]


def work_of(model: LanguageModel, prompt: int, batch: int, tokens: int, words: int = 1) -> Work:
    """Prompts of ``prompt`` tokens; the embedded model's are shorter by what would cut a word in two.

    Args:
        model: The model.
        prompt: Tokens of each prompt.
        batch: Prompts at a time.
        tokens: Tokens that are timed.
        words: Masked words, each of another family.
    """
    text = SENTENCE * (prompt // 8 + 1)
    if model.name == DEMO:
        ends = [end for _, end in model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]]
        text = text[: ends[prompt - 1]].rsplit(" ", 1)[0]
    else:
        text = text[:prompt]
    starts = [place + 1 for place in range(len(text)) if text.startswith(f" {WORD} ", place)]
    if len(starts) < words:
        # A text that is too short for the words has single letters masked in their place.
        spans = tuple(cc.Span(len(text) - 2 * i - 2, len(text) - 2 * i - 1, FAMILIES[i]) for i in range(words))
    else:
        spans = tuple(cc.Span(start, start + len(WORD), FAMILIES[i]) for i, start in enumerate(starts[-words:]))
    return Work(model, as_transformers_has_it(model).module, text, spans, batch, tokens)


def coft(model: LanguageModel) -> cc.CoftPolicy:
    """COFT with a threshold at every step."""
    plain = cc.CoftPolicy(lam=LAM, top_p=TOP_P)
    return replace(plain, calibration=_calibration(model, plain), accept_mismatch=True)


def factorized(model: LanguageModel, families: int) -> cc.FactorizedCoftPolicy:
    """COFT with a masked branch and a threshold for each of some families."""
    plain = cc.FactorizedCoftPolicy(lam=LAM, top_p=TOP_P)
    parts = tuple((family, _calibration(model, plain)) for family in FAMILIES[:families])
    return replace(plain, calibration=FactorizedCalibration(0.1 * families, parts), accept_mismatch=True)


def vanilla() -> cc.VanillaPolicy:
    """The model as it is, without the watched masked branch."""
    return cc.VanillaPolicy(top_p=TOP_P, observe_masked=False)


def _calibration(model: LanguageModel, policy: cc.CoftPolicy | cc.FactorizedCoftPolicy) -> cc.Calibration:
    """Values that give :data:`LOG_TAU` wherever they are read."""
    own = replace(policy.fingerprint(model, "none"), estimator="hierarchical", source="reference")
    count = 99
    values = CalibrationValues(np.full(count, LOG_TAU), np.zeros(count, dtype=int), np.arange(count, dtype=np.int32))
    return cc.Calibration(own, 0.1, values)
