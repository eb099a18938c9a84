"""Vanilla decoding: the factual branch alone decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Certificate, Past
from coft_core.policies.baseline import FACTUAL, BaselinePolicy, Decision
from coft_core.policies.fusion import log_probabilities


@dataclass(frozen=True)
class VanillaPolicy(BaselinePolicy):
    """Draw from the factual distribution; certify nothing.

    Its parameters are those of :class:`BaselinePolicy`.
    """

    method: ClassVar[str] = "vanilla"
    title: ClassVar[str] = "Vanilla"

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """The factual distribution."""
        return Decision(log_probabilities(logits[FACTUAL], self.temperature))

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """Always uncertified."""
        return Certificate("uncertified: vanilla decoding")

    @property
    def label(self) -> str:
        """Empty: what is told of a policy without a method of its own is what its fingerprint says anyhow."""
        return ""
