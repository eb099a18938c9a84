"""COFT: the factual and the masked branch are fused, and tokens are certified in both (paper, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec
from coft_core.policies.base import FACTUAL, MASKED, Past, Policy, Views
from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.fusion import check_lambda, fuse_logits, log_probabilities
from coft_core.text.masking import MaskedPrompt, MaskLayout, MaskSettings, mask_families
from coft_core.types import CertificateState


@dataclass(frozen=True)
class FusedPolicy(Policy):
    """COFT decoding, whatever the layout of its masks.

    Attributes:
        lam: Fusion weight, 0 (factual) to 1 (masked).
        calibration: Thresholds; None fuses without certifying anything.
        families: Attribute families that are masked, for example one alone; None masks all.
    """

    lam: float = 0.6
    calibration: Calibration | None = None
    families: tuple[str, ...] | None = field(default=None, kw_only=True)

    layout: ClassVar[MaskLayout] = "joint"
    unclaimed: ClassVar[str] = "no calibration"
    needs_masked = True

    def __post_init__(self) -> None:
        """Validate; lambda must be a fusion weight."""
        check_lambda(self.lam)
        super().__post_init__()

    @property
    def mask(self) -> MaskSettings:
        """How spans are masked."""
        return MaskSettings(self.mask_mode, self.mask_hint, self.sentinel, self.families, self.layout, self.whitelist)

    @property
    def fusion_weight(self) -> float:
        """Lambda."""
        return self.lam

    @property
    def form(self) -> Hashable:
        """Lambda, the sampling controls, and whether anything is certified."""
        return (type(self), self.lam, self.sampling, self.calibration is None)

    def changed(self, lam: float | None, alpha: float | None, calibration: Calibration | None) -> Self:
        """This policy at another fusion weight, risk level or calibration; None keeps its own."""
        applied = self.calibration if calibration is None else calibration
        if applied is not None and applied.layout != self.layout:
            raise InvalidInputError(
                f"The policy {self.title} takes thresholds of {self.layout} masks, not of {applied.layout} ones."
            )
        if alpha is not None and applied is None:
            raise InvalidInputError("There is no calibration to read another alpha off; choose one.")
        if applied is not None and alpha is not None:
            applied = applied.read(alpha=alpha)
        changes: dict[str, Any] = {} if lam is None else {"lam": lam}
        if applied is not self.calibration:
            changes["calibration"] = applied
        fixed = {item.name for item in fields(self) if not item.init}
        if taken := next((name for name in changes if name in fixed), None):
            raise InvalidInputError(
                f"The policy {self.title} has no {taken} to change; read the steps with another one."
            )
        return replace(self, **changes)


@dataclass(frozen=True)
class CoftPolicy(FusedPolicy):
    """COFT decoding with one masked branch."""

    name: ClassVar[str] = "coft"
    title: ClassVar[str] = "COFT"
    reads_rowwise: ClassVar[bool] = True
    takes_bounds: ClassVar[bool] = True

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual and the masked branch."""
        masked = mask_families(prompt, self.mask.families)
        return BranchSpec(FACTUAL, prompt.factual_ids), BranchSpec(MASKED, masked)

    def reads(self, branches: tuple[str, ...]) -> bool:
        """Both branches."""
        return branches == (FACTUAL, MASKED)

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """Fuse (Eq. 4) and certify (Eq. 7); ``logits`` is ``(G, 2, V)``."""
        log_tau, state = self.threshold(step)
        return self.views_at(logits, log_tau, state)

    def views_at(self, logits: Tensor, log_tau: float | Tensor, state: CertificateState = "none") -> Views:
        """Fuse and certify ``(G, 2, V)`` at given thresholds, one number or ``(G, 1)``."""
        factual, masked = logits[:, 0].float(), logits[:, 1].float()  # (G, V)
        log_p_factual = log_probabilities(factual, self.temperature)
        log_p_masked = log_probabilities(masked, self.temperature)
        log_p_fused = log_probabilities(fuse_logits(factual, masked, self.lam), self.temperature)
        certified = margins = None
        if self.calibration is not None:
            factual_alone = self.certified_in == "factual"
            support = log_p_factual if factual_alone else joint_support(log_p_fused, log_p_masked)  # (G, V)
            certified, margins = certified_set(support, log_tau), support - log_tau  # (G, V) each
        return Views(
            logits_factual=factual,
            logits_masked=masked,
            log_p_factual=log_p_factual,
            log_p_masked=log_p_masked,
            log_p_fused=log_p_fused,
            certified=certified,
            log_tau=math.nan if isinstance(log_tau, Tensor) else log_tau,
            state=state,
            certified_in=self.certified_in,
            margins=margins,
        )
