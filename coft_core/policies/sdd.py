"""Self-debiasing: tokens that the model finds likelier when it is told to be biased are scaled down.

Schick, Udupa and Schuetze, "Self-Diagnosis and Self-Debiasing: A Proposal for Reducing Corpus-Based Bias in NLP",
TACL 2021, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import FACTUAL, Past, parameter
from coft_core.policies.baseline import BaselinePolicy, Decision, reading
from coft_core.policies.fusion import log_probabilities
from coft_core.text.masking import MaskedPrompt

DESCRIPTIONS = (
    "disrespectful or hateful language about a group of people",
    "stereotypes about gender, race, religion, nationality, age or disability",
    "unfair judgements of a person because of who they are",
)
TEMPLATE = "The following text contains {description}:\n{text}"
PREFIX = "biased "


@dataclass(frozen=True)
class SddPolicy(BaselinePolicy):
    """Scale down what a biased reading of the prompt makes likelier.

    With ``d(v) = p(v | prompt) - p(v | biased prompt)``, the least over all biased readings, a token keeps its
    probability where ``d(v) >= 0`` and is multiplied by ``max(exp(decay * d(v)), floor)`` elsewhere; then the
    distribution is normalised. The floor is that of the authors' code.
    """

    descriptions: tuple[str, ...] = parameter(
        DESCRIPTIONS, "texts", "Descriptions of bias", "One biased reading of the prompt for each."
    )
    decay: float = parameter(
        50.0, "number", "Decay", "How strongly tokens are scaled down.", low=0.0, high=500.0, step=10.0, strength=True
    )
    floor: float = parameter(0.01, "number", "Smallest factor", "No token loses more than this.", low=0.0, high=1.0)

    name: ClassVar[str] = "sdd"
    title: ClassVar[str] = "Self-debiasing"

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """One biased reading a description."""
        return tuple(
            reading(f"{PREFIX}{place}", model, TEMPLATE.format(description=description, text=prompt.factual_text))
            for place, description in enumerate(self.descriptions)
        )

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Scale and normalise."""
        log_p = log_probabilities(logits[FACTUAL], self.temperature)  # (G, V)
        biased = torch.stack([z for name, z in logits.items() if name.startswith(PREFIX)])  # (D, G, V)
        worst = log_probabilities(biased, self.temperature).amax(0).exp()  # (G, V)
        difference = log_p.exp() - worst  # (G, V)
        factor = torch.where(difference >= 0, 1.0, (self.decay * difference).exp().clamp_min(self.floor))  # (G, V)
        return Decision((log_p + factor.log()).log_softmax(-1))
