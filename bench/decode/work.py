"""What is decoded: prompts of a given length with masked words, under policies with everything that an audit shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import coft_core as cc
from bench.decode.shapes import as_transformers_has_it
from coft_core.decode.plan import Plan
from coft_core.experiments.speed import FAMILIES, timed_prompt, with_thresholds
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy

LAM, TOP_P = 0.6, 0.9


@dataclass(frozen=True)
class Work:
    """Prompts that are continued together."""

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
    """Prompts of ``prompt`` tokens; shorter by what would cut a word in two."""
    text, spans = timed_prompt(model, prompt, words)
    return Work(model, as_transformers_has_it(model).module, text, spans, batch, tokens)


def coft(model: LanguageModel) -> Policy:
    """COFT with a threshold at every step."""
    return with_thresholds(cc.CoftPolicy(lam=LAM, top_p=TOP_P), model)


def factorized(model: LanguageModel, families: int) -> Policy:
    """COFT with a masked branch and a threshold for each of some families."""
    return with_thresholds(cc.FactorizedCoftPolicy(lam=LAM, top_p=TOP_P), model, FAMILIES[:families])


def vanilla() -> cc.VanillaPolicy:
    """The model as it is, without the watched masked branch."""
    return cc.VanillaPolicy(top_p=TOP_P, observe_masked=False)
