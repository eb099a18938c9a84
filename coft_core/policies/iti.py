"""Activation steering at inference: outputs of chosen attention heads are moved along fitted directions.

Li, Patel, Viegas, Pfister and Wattenberg, "Inference-Time Intervention: Eliciting Truthful Answers from a Language
Model", NeurIPS 2023, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from coft_core.assets import assets_path
from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.model.steering import Directions, SteeringHook
from coft_core.policies.base import parameter
from coft_core.policies.baseline import BaselinePolicy
from coft_core.text.masking import MaskedPrompt

STEERED = "steered"
SHIPPED = assets_path("steering", "demo.npz")
"""Directions of the embedded model."""


@dataclass(frozen=True)
class ItiPolicy(BaselinePolicy):
    """Decode with steered attention heads.

    To the output of each of the best heads, ``strength`` standard deviations along its direction are added (the
    paper's equation 2), at every position, so that a chain reads the same however much of it is cached. The defaults
    were measured for the embedded model (``assets/steering/README.md``); other models need directions of their own.
    """

    directions: str = parameter("", "file", "Directions", "A fitted file; none is the embedded model's.", optional=True)
    heads: int = parameter(3, "whole", "Heads", "How many heads are moved.", low=1, high=4096)
    strength: float = parameter(
        3.0, "number", "Strength", "Standard deviations along each direction.", low=0.0, high=50.0, step=0.5,
        strength=True,
    )  # fmt: skip

    name: ClassVar[str] = "iti"
    title: ClassVar[str] = "Activation steering"
    drawn_from: ClassVar[str] = STEERED

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The prompt, read with steered heads."""
        fitted = Directions.load(Path(self.directions) if self.directions else SHIPPED)
        fitted.require(model)
        hook = SteeringHook(fitted.best(self.heads), self.strength)
        return (BranchSpec(STEERED, prompt.factual_ids, hooks=(hook,)),)
