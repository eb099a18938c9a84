"""What all COFT policies have in common: their controls, their fingerprint, and whether a calibration fits them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Self, TypeVar

from torch import Tensor

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.families import FactorizedCalibration
from coft_core.fingerprint import Fingerprint
from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Certificate, Past, Views, compared_certificate, policy_fingerprint
from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.fusion import check_lambda, fuse_logits, log_probabilities
from coft_core.text.masking import DEFAULT_HINT, MaskedPrompt, MaskLayout, MaskMode, MaskSettings, mask_families
from coft_core.types import CertificateState, CertifiedIn, Sampling

NO_CALIBRATION = "uncertified: no calibration"

Thresholds = TypeVar("Thresholds", bound=Calibration | FactorizedCalibration)
"""The kind of calibration that a policy takes."""


@dataclass(frozen=True)
class FusedPolicy(ABC, Generic[Thresholds]):
    """Controls of COFT decoding, whatever the layout of its masks.

    Attributes:
        lam: Fusion weight, 0 (factual) to 1 (masked).
        calibration: Thresholds; None fuses without certifying anything.
        temperature: Sampling temperature, the same in every branch.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        sentinel: Sentinel text; None takes the tokenizer's own.
        mask_mode: ``"hard"`` or ``"soft"``.
        mask_hint: Hint of the soft mask.
        accept_mismatch: Use a calibration of another policy knowingly; the run is then marked
            ``"uncertified: policy mismatch"`` and no token counts as certified.
        families: Attribute families that are masked, for example one alone; None masks all.
        whitelist: Terms that are never masked.

    Raises:
        InvalidInputError: A parameter is outside its range.
    """

    lam: float = 0.6
    calibration: Thresholds | None = None
    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    sentinel: str | None = None
    mask_mode: MaskMode = "hard"
    mask_hint: str = DEFAULT_HINT
    accept_mismatch: bool = False
    families: tuple[str, ...] | None = None
    whitelist: tuple[str, ...] = ()

    layout: ClassVar[MaskLayout] = "joint"
    title: ClassVar[str]
    """Its name on pages and in sentences."""

    certified_in: ClassVar[CertifiedIn] = "both"
    """The readings by which it certifies."""

    def __post_init__(self) -> None:
        """Validate by building what the parameters are for."""
        check_lambda(self.lam)
        _ = self.sampling, self.mask

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name of the policy."""

    @abstractmethod
    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """Branches that the policy needs for a prompt, factual first."""

    @abstractmethod
    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """Fuse and certify; ``logits`` is ``(G, B, V)``, branches in the order of :meth:`branches`."""

    @property
    def sampling(self) -> Sampling:
        """The sampling controls."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    @property
    def needs_masked(self) -> bool:
        """Fusing and certifying read the masked branch."""
        return True

    @property
    def mask(self) -> MaskSettings:
        """How spans are masked."""
        return MaskSettings(self.mask_mode, self.mask_hint, self.sentinel, self.families, self.layout, self.whitelist)

    def keeping(self, terms: Iterable[str]) -> Self:
        """This policy with more terms that are never masked; they are part of its fingerprint."""
        return replace(self, whitelist=self.mask.keeping(terms).whitelist)

    def fingerprint(self, model: LanguageModel, detector: str) -> Fingerprint:
        """This policy's fingerprint on a model; estimator and source are those of its calibration."""
        return policy_fingerprint(
            model,
            lam=self.lam,
            sampling=self.sampling,
            mask=self.mask,
            detector=detector,
            estimator=self.calibration.estimator if self.calibration else "none",
            source=self.calibration.source if self.calibration else "none",
        )

    def required(self, own: Fingerprint) -> Fingerprint:
        """What a calibration's fingerprint must be to serve this policy.

        Args:
            own: The policy's fingerprint, with the estimator and the source of its calibration.
        """
        return own

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """Compare the calibration's fingerprint with this policy's.

        Raises:
            CalibrationMismatch: They differ and ``accept_mismatch`` is False.
        """
        if self.calibration is None:
            return Certificate(NO_CALIBRATION)
        used = self.required(self.fingerprint(model, detector))
        own = self.calibration
        return compared_certificate(own.fingerprint, used, self.accept_mismatch, own.silence)


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
