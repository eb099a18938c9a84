"""Vanilla decoding: the factual branch alone decides."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coft_core.policies.base import Views
from coft_core.policies.baseline import BaselinePolicy


@dataclass(frozen=True)
class VanillaPolicy(BaselinePolicy):
    """Draw from the factual distribution; certify nothing."""

    name: ClassVar[str] = "vanilla"
    title: ClassVar[str] = "Vanilla"
    unclaimed: ClassVar[str] = "vanilla decoding"
    reads_rowwise: ClassVar[bool] = True
    takes_bounds: ClassVar[bool] = True
    fusion_weight = 0.0
    label = ""

    def views_at(self, logits: Tensor, log_tau: Tensor) -> Views:
        """The same at any position: there is no threshold."""
        return self.views(logits, 0)

    @property
    def form(self) -> Hashable:
        """The sampling controls."""
        return (type(self), self.sampling)
