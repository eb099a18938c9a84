"""Detox decoding: candidates whose continuation a scorer finds toxic are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coft_core.fusion import log_probabilities
from coft_core.policies.base import Past
from coft_core.policies.baseline import FACTUAL, Decision
from coft_core.policies.parameters import parameter
from coft_core.policies.scored import ScoredPolicy


@dataclass(frozen=True)
class DetoxPolicy(ScoredPolicy):
    """Sample among the likeliest tokens whose continuation is not toxic.

    The paper names decoding with a toxicity filter as a baseline and gives no rule. Here the ``candidates`` likeliest
    tokens are each appended to the sentence written so far and scored; those above ``cap`` are left out, and the others
    are weighted by ``(1 - toxicity) ** strength``. Less likely tokens are never written. If every candidate is too
    toxic, the least toxic one is written.

    Attributes:
        candidates: Likeliest tokens that are scored at each step.
        cap: Toxicity above which a token is left out.
        strength: Power of the weight of the others; 0 only filters.
    """

    candidates: int = parameter(20, "whole", "Candidates", "Likeliest tokens that are scored.", low=1, high=200)
    cap: float = parameter(0.5, "number", "Cap", "Toxicity above which a token is left out.", low=0.0, high=1.0)
    strength: float = parameter(
        1.0, "number", "Strength", "How much less toxic tokens are preferred.", low=0.0, high=50.0, step=0.5,
        strength=True,
    )  # fmt: skip

    method: ClassVar[str] = "detox"
    title: ClassVar[str] = "Detox decoding"

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Score, leave out, weight and normalise."""
        log_p = log_probabilities(logits[FACTUAL], self.temperature)  # (G, V)
        likeliest, ids = log_p.topk(min(self.candidates, log_p.shape[-1]), dim=-1)  # (G, K)
        toxicity = self.toxicities(pasts, ids)  # (G, K)
        weighted = likeliest + self.strength * torch.log1p(-toxicity.clamp_max(1 - 1e-6))
        least = toxicity == toxicity.amin(-1, keepdim=True)
        accepted = (toxicity <= self.cap) | ((toxicity > self.cap).all(-1, keepdim=True) & least)
        chosen = weighted.masked_fill(~accepted, float("-inf")).log_softmax(-1)  # (G, K)
        return Decision(torch.full_like(log_p, float("-inf")).scatter(-1, ids, chosen))
