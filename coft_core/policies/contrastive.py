"""Contrastive decoding: prefer what the model finds likelier than an amateur does, among plausible tokens.

Li et al., "Contrastive Decoding: Open-ended Text Generation as Optimization", ACL 2023, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import FACTUAL, MASKED, Past, parameter
from coft_core.policies.baseline import BaselinePolicy, Decision
from coft_core.policies.fusion import log_probabilities
from coft_core.text.masking import MaskedPrompt

AMATEUR = "amateur"
SMALLEST = 1e-30
"""Stands for a plausibility of 0, whose logarithm there is none of."""


@dataclass(frozen=True)
class ContrastivePolicy(BaselinePolicy):
    """Move away from an amateur, within the tokens that the expert finds plausible.

    The paper scores a token by ``log p_expert - log p_amateur`` and searches with a beam. Here the scores are logits
    that are drawn from, ``expert_weight * log p_expert + guidance * (log p_expert - log p_amateur)``. Tokens under
    ``plausibility`` times the expert's likeliest are left out. The authors' rule is ``against="amateur"`` with
    ``expert_weight=0``, ``guidance=1`` and ``plausibility=0.1``.

    Against the masked branch, which the paper does not know, the expert is the masked reading and the amateur the
    factual one, to move away from what the attribute adds.
    """

    against: str = parameter(
        "masked", "choice", "Contrast with", "The masked reading, or a smaller model.", choices=("masked", "amateur")
    )
    amateur: str | None = parameter(None, "model", "Amateur model", "A smaller model, same tokenizer.", optional=True)
    guidance: float = parameter(
        0.5, "number", "Guidance", "How far the contrast moves the logits.", low=0.0, high=10.0, step=0.1, strength=True
    )
    plausibility: float = parameter(
        0.1, "number", "Plausibility", "Least share of the likeliest token's probability.", low=0.0, high=1.0
    )
    amateur_temperature: float = parameter(1.0, "number", "Amateur's temperature", "Above 0.", low=0.01, high=10.0)
    expert_weight: float = parameter(
        1.0, "number", "Expert's weight", "Of its own log-probability; 0 is the authors' score.", low=0.0, high=1.0,
        later=True,
    )  # fmt: skip

    name: ClassVar[str] = "contrastive"
    title: ClassVar[str] = "Contrastive decoding"

    def __post_init__(self) -> None:
        """Validate; an amateur must be named to be used."""
        super().__post_init__()
        if self.against == "amateur" and not self.amateur:
            raise InvalidInputError("Amateur model is missing; give the id or the folder of a model.")

    @property
    def models(self) -> dict[str, str]:
        """The amateur, where it is used."""
        return {AMATEUR: str(self.amateur)} if self.against == AMATEUR else {}

    @property
    def needs_masked(self) -> bool:
        """Whether the masked reading is the expert."""
        return self.against == MASKED

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The amateur on the prompt."""
        return (BranchSpec(AMATEUR, prompt.factual_ids, AMATEUR),) if self.against == AMATEUR else ()

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Contrast the two and cut what is implausible."""
        expert, amateur = (MASKED, FACTUAL) if self.against == MASKED else (FACTUAL, AMATEUR)
        log_p = log_probabilities(logits[expert], self.temperature)  # (G, V)
        other = log_probabilities(logits[amateur], self.temperature * self.amateur_temperature)  # (G, V)
        score = self.expert_weight * log_p + self.guidance * (log_p - other)  # (G, V)
        implausible = log_p < log_p.amax(-1, keepdim=True) + math.log(max(self.plausibility, SMALLEST))
        return Decision(score.masked_fill(implausible, float("-inf")).log_softmax(-1))
