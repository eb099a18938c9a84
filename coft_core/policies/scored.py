"""Methods that ask a toxicity scorer: decoding with a filter, and dual-threshold conformal decoding."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.policies.base import FACTUAL, Past, parameter
from coft_core.policies.baseline import BaselinePolicy, Decision
from coft_core.policies.fusion import log_probabilities
from coft_core.scorers.base import EMBEDDED, ToxicityScorer
from coft_core.types import CertificateState, CertifiedIn

SCORER = "scorer"

_ENDED = re.compile(r"[.!?][\"'”’)]*\s|\n")


def sentence_start(text: str) -> int:
    """Where the sentence that is being written begins: behind the last one that blank space or a line end follows."""
    ends = [match.end() for match in _ENDED.finditer(text)]
    return ends[-1] if ends else 0


@dataclass(frozen=True)
class ScoredPolicy(BaselinePolicy):
    """A policy with a scorer."""

    scorer: str = parameter(
        EMBEDDED, "model", "Toxicity scorer", "The embedded one, or a sequence classifier by id or folder."
    )
    loaded: ToxicityScorer | None = field(default=None, repr=False, compare=False)

    @property
    def scorers(self) -> Mapping[str, str]:
        """The scorer by the role that it plays."""
        return {SCORER: self.scorer}

    def with_scorers(self, scorers: Mapping[str, ToxicityScorer]) -> Self:
        """This policy with its loaded scorer."""
        return replace(self, loaded=scorers[SCORER])

    def toxicities(self, pasts: Sequence[Past], candidates: Tensor) -> Tensor:
        """How toxic each chain's sentence becomes with each candidate as its next token, ``(G, K)``."""
        # Sentences that are over are left out: one that is too toxic would refuse every token behind it.
        if self.loaded is None:
            raise InvalidInputError(f"The policy {self.title} has no scorer yet; make a plan with it.")
        texts = [
            past.model.continuation_text([*past.tokens, token])
            for past, ids in zip(pasts, candidates.tolist(), strict=True)
            for token in ids
        ]
        scores = self.loaded.score([text[sentence_start(text) :] for text in texts])
        return torch.tensor(scores, device=candidates.device).reshape(candidates.shape)


@dataclass(frozen=True)
class DetoxPolicy(ScoredPolicy):
    """Sample among the likeliest tokens whose continuation is not toxic.

    The paper gives no rule. Here the ``candidates`` likeliest tokens are each appended to the sentence written so far
    and scored; those above ``cap`` are left out, and the others are weighted by ``(1 - toxicity) ** strength``. If
    every candidate is too toxic, the least toxic one is written.
    """

    candidates: int = parameter(20, "whole", "Candidates", "Likeliest tokens that are scored.", low=1, high=200)
    cap: float = parameter(0.5, "number", "Cap", "Toxicity above which a token is left out.", low=0.0, high=1.0)
    strength: float = parameter(
        1.0, "number", "Strength", "How much less toxic tokens are preferred.", low=0.0, high=50.0, step=0.5,
        strength=True,
    )  # fmt: skip

    name: ClassVar[str] = "detox"
    title: ClassVar[str] = "Detox decoding"

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Score, leave out, weight and normalise."""
        log_p = log_probabilities(logits[FACTUAL], self.temperature)  # (G, V)
        likeliest, ids = log_p.topk(min(self.candidates, log_p.shape[-1]), dim=-1)  # (G, K)
        toxicity = self.toxicities(pasts, ids)  # (G, K)
        weighted = likeliest + self.strength * torch.log1p(-toxicity.clamp_max(1 - 1e-6))
        least = toxicity == toxicity.amin(-1, keepdim=True)
        accepted = (toxicity <= self.cap) | ((toxicity > self.cap).all(-1, keepdim=True) & least)
        chosen = weighted.masked_fill(~accepted, -math.inf).log_softmax(-1)  # (G, K)
        return Decision(torch.full_like(log_p, -math.inf).scatter(-1, ids, chosen))


@dataclass(frozen=True)
class DtcdPolicy(ScoredPolicy):
    """Draw from the model's distribution among tokens that pass both thresholds.

    The paper describes it in a sentence: single-branch conformal acceptance by toxicity and minimum probability. The
    minimum probability is a calibration of the factual reading; without one it is ``minimum`` and nothing is certified.
    Of the tokens that pass it, the ``candidates`` likeliest are scored, appended to the sentence written so far; those
    above ``cap`` and all that were not scored are refused.

    A certificate is for the minimum probability only: how often the cap takes the true token away is not calibrated.
    """

    calibration: Calibration | None = None
    minimum: float = parameter(
        0.01, "number", "Minimum probability", "Without a calibration, less likely tokens are refused.", low=0.0,
        high=1.0,
    )  # fmt: skip
    cap: float = parameter(
        0.5, "number", "Toxicity cap", "More toxic tokens are refused.", low=0.0, high=1.0, step=0.05, strength=True
    )
    candidates: int = parameter(40, "whole", "Candidates", "Likeliest tokens that are scored.", low=1, high=400)

    name: ClassVar[str] = "dtcd"
    title: ClassVar[str] = "Dual-threshold conformal"
    certified_in: ClassVar[CertifiedIn] = "factual"
    unclaimed: ClassVar[str] = "no calibration"

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Both thresholds on the factual reading."""
        log_p = log_probabilities(logits[FACTUAL], self.temperature)  # (G, V)
        log_tau, state = self.threshold(step)
        likeliest, ids = log_p.topk(min(self.candidates, log_p.shape[-1]), dim=-1)  # (G, K)
        mild = self.toxicities(pasts, ids) <= self.cap  # (G, K)
        members = torch.zeros_like(log_p, dtype=torch.bool).scatter(-1, ids, (likeliest >= log_tau) & mild)
        above = (likeliest - log_tau).masked_fill(~mild, -math.inf)  # (G, K)
        margins = torch.full_like(log_p, -math.inf).scatter(-1, ids, above)
        return Decision(log_p, members, log_tau, state, margins)

    def threshold(self, step: int) -> tuple[float, CertificateState]:
        """Log-threshold of the probability at a step and what it rests on."""
        if self.calibration is None:
            return math.log(self.minimum) if self.minimum else -math.inf, "none"
        return super().threshold(step)
