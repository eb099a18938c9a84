"""COFT with a joint mask: fuse the factual and the masked branch, certify in both (paper Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coft_core.certify import certified_set, joint_support
from coft_core.conformal.calibration import Calibration
from coft_core.engine.branches import BranchSpec
from coft_core.fusion import fuse_logits, log_probabilities
from coft_core.masking.masker import MaskedPrompt
from coft_core.masking.partial import mask_families
from coft_core.policies.base import Past, Views
from coft_core.policies.fused import FusedPolicy
from coft_core.types import CertificateState


@dataclass(frozen=True)
class CoftPolicy(FusedPolicy[Calibration]):
    """COFT decoding with one masked branch.

    Its parameters are those of :class:`FusedPolicy`.
    """

    title: ClassVar[str] = "COFT"

    @property
    def name(self) -> str:
        """Short name of the policy."""
        return "coft"

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual and the masked branch."""
        masked = mask_families(prompt, self.mask.families)
        return BranchSpec("factual", prompt.factual_ids), BranchSpec("masked", masked)

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """Fuse (Eq. 4) and certify (Eq. 7); ``logits`` is ``(G, 2, V)``."""
        return self.views_at(logits, *self.threshold(step))

    def views_at(self, logits: Tensor, log_tau: float | Tensor, state: CertificateState) -> Views:
        """Fuse and certify at given thresholds.

        Args:
            logits: ``(G, 2, V)``.
            log_tau: Log-threshold, a number or one a row, ``(G, 1)``; not looked at without a calibration.
            state: What it rests on.

        Returns:
            The views; their ``log_tau`` is NaN where rows have their own.
        """
        factual, masked = logits[:, 0].float(), logits[:, 1].float()  # (G, V)
        log_p_masked = log_probabilities(masked, self.temperature)
        log_p_fused = log_probabilities(fuse_logits(factual, masked, self.lam), self.temperature)
        certified = margins = None
        if self.calibration is not None:
            joint = joint_support(log_p_fused, log_p_masked)  # (G, V)
            certified, margins = certified_set(joint, log_tau), joint - log_tau  # (G, V) each
        return Views(
            logits_factual=factual,
            logits_masked=masked,
            log_p_factual=log_probabilities(factual, self.temperature),
            log_p_masked=log_p_masked,
            log_p_fused=log_p_fused,
            certified=certified,
            log_tau=math.nan if isinstance(log_tau, Tensor) else log_tau,
            state=state,
            margins=margins,
        )

    def threshold(self, step: int) -> tuple[float, CertificateState]:
        """Log-threshold at a step and what it rests on."""
        if self.calibration is None:
            return float("-inf"), "none"
        return self.calibration.threshold(step), self.calibration.state(step)
