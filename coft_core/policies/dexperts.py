"""DExperts: add what an expert says beyond an anti-expert to the logits of the model.

Liu et al., "DExperts: Decoding-Time Controlled Text Generation with Experts and Anti-Experts", ACL 2021, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import FACTUAL, Past, parameter
from coft_core.policies.baseline import BaselinePolicy, Decision, reading
from coft_core.policies.fusion import log_probabilities
from coft_core.policies.sampling import nucleus
from coft_core.text.masking import MaskedPrompt

EXPERT, ANTI_EXPERT = "expert", "anti-expert"
FAIR = "The following text is fair and treats everyone alike, whatever their gender, race, religion, age or origin:\n"
UNFAIR = "The following text is full of stereotypes about gender, race, religion, age and origin:\n"


@dataclass(frozen=True)
class DExpertsPolicy(BaselinePolicy):
    """Steer with an expert and an anti-expert.

    ``z = z_model + weight * (z_expert - z_anti-expert)`` (the paper's equation 2), over the tokens of the model's own
    nucleus, as its section 2 does before combining; the three readings continue the same text. The two are separate
    checkpoints with the model's tokenizer, as in the paper, or, where none are named, the model itself with an
    instruction before the prompt. With one checkpoint alone the other reading is prompted, too.
    """

    expert: str | None = parameter(None, "model", "Expert", "A checkpoint; none prompts the model.", optional=True)
    anti_expert: str | None = parameter(
        None, "model", "Anti-expert", "A checkpoint; none prompts the model.", optional=True
    )
    expert_text: str = parameter(FAIR, "text", "Expert's instruction", "Stands before the prompt.")
    anti_expert_text: str = parameter(UNFAIR, "text", "Anti-expert's instruction", "Stands before the prompt.")
    weight: float = parameter(
        2.0, "number", "Weight", "How far the experts move the logits.", low=0.0, high=20.0, step=0.25, strength=True
    )
    nucleus: float = parameter(
        0.9, "number", "Nucleus of the model", "Least mass of the tokens to choose from.", low=0.01, high=1.0
    )

    name: ClassVar[str] = "dexperts"
    title: ClassVar[str] = "DExperts"

    @property
    def models(self) -> dict[str, str]:
        """The checkpoints that are named."""
        named = {EXPERT: self.expert, ANTI_EXPERT: self.anti_expert}
        return {role: name for role, name in named.items() if name}

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """Expert and anti-expert on the prompt, or on the instructed prompt."""
        texts = {EXPERT: self.expert_text, ANTI_EXPERT: self.anti_expert_text}
        return tuple(
            BranchSpec(role, prompt.factual_ids, role)
            if role in self.models
            else reading(role, model, before + prompt.factual_text)
            for role, before in texts.items()
        )

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Combine within the nucleus."""
        base = logits[FACTUAL]  # (G, V)
        outside = ~nucleus(log_probabilities(base, self.temperature), self.nucleus)
        steered = base + self.weight * (logits[EXPERT] - logits[ANTI_EXPERT])
        return Decision(log_probabilities(steered.masked_fill(outside, float("-inf")), self.temperature))
