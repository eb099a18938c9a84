"""Vanilla decoding: the factual branch alone decides."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coft_core.policies.base import FACTUAL, Past, Views
from coft_core.policies.baseline import BaselinePolicy, Decision
from coft_core.policies.fusion import log_probabilities


@dataclass(frozen=True)
class VanillaPolicy(BaselinePolicy):
    """Draw from the factual distribution; certify nothing.

    Its parameters are those of :class:`BaselinePolicy`.
    """

    method: ClassVar[str] = "vanilla"
    title: ClassVar[str] = "Vanilla"
    reads_rowwise: ClassVar[bool] = True

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """The factual distribution."""
        return Decision(log_probabilities(logits[FACTUAL], self.temperature))

    def views_at(self, logits: Tensor, log_tau: Tensor) -> Views:
        """The same at any position: there is no threshold."""
        return self.views(logits, 0)

    @property
    def form(self) -> Hashable:
        """The sampling controls."""
        return (type(self), self.sampling)

    @property
    def fusion_weight(self) -> float:
        """The factual branch alone."""
        return 0.0

    @property
    def unclaimed(self) -> str:
        """It certifies nothing."""
        return "vanilla decoding"

    @property
    def label(self) -> str:
        """Empty: what is told of a policy without a method of its own is what its fingerprint says anyhow."""
        return ""
