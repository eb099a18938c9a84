"""COFT with a joint mask: fuse the factual and the masked branch, certify in both (paper Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from coft_core.certify import certified_set, joint_support
from coft_core.conformal.calibration import Calibration
from coft_core.engine.branches import BranchSpec
from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import check_lambda, fuse_logits, log_probabilities
from coft_core.masking.masker import DEFAULT_HINT, MaskedPrompt, MaskMode
from coft_core.masking.partial import mask_families
from coft_core.masking.settings import MaskSettings
from coft_core.policies.base import Certificate, Views, compared_certificate
from coft_core.policies.fingerprint import policy_fingerprint
from coft_core.sampling import Sampling
from coft_core.types import CertificateState

NO_CALIBRATION = "uncertified: no calibration"


@dataclass(frozen=True)
class CoftPolicy:
    """COFT decoding.

    Attributes:
        lam: Fusion weight, 0 (factual) to 1 (masked).
        calibration: Thresholds by step; None fuses without certifying anything.
        temperature: Sampling temperature, the same in every branch.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        sentinel: Sentinel text; None takes the tokenizer's own.
        mask_mode: ``"hard"`` or ``"soft"``.
        mask_hint: Hint of the soft mask.
        accept_mismatch: Use a calibration of another policy knowingly; the run is then marked
            ``"uncertified: policy mismatch"`` and no token counts as certified.
        families: Attribute families that are masked, for example one alone; None masks all of them jointly.
        whitelist: Terms that are never masked.

    Raises:
        InvalidInputError: A parameter is outside its range.
    """

    lam: float = 0.6
    calibration: Calibration | None = None
    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    sentinel: str | None = None
    mask_mode: MaskMode = "hard"
    mask_hint: str = DEFAULT_HINT
    accept_mismatch: bool = False
    families: tuple[str, ...] | None = None
    whitelist: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate by building what the parameters are for."""
        check_lambda(self.lam)
        _ = self.sampling, self.mask

    @property
    def name(self) -> str:
        """Short name of the policy."""
        return "coft"

    @property
    def sampling(self) -> Sampling:
        """The sampling controls."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    @property
    def mask(self) -> MaskSettings:
        """How spans are masked."""
        return MaskSettings(
            self.mask_mode, self.mask_hint, self.sentinel, families=self.families, whitelist=self.whitelist
        )

    def keeping(self, terms: Iterable[str]) -> Self:
        """This policy with more terms that are never masked; they are part of its fingerprint."""
        return replace(self, whitelist=self.mask.keeping(terms).whitelist)

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual and the masked branch."""
        masked = mask_families(prompt, self.mask.families)
        return BranchSpec("factual", prompt.factual_ids), BranchSpec("masked", masked)

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = ()) -> Views:
        """Fuse (Eq. 4) and certify (Eq. 7); ``logits`` is ``(G, 2, V)``."""
        factual, masked = logits[:, 0].float(), logits[:, 1].float()  # (G, V)
        log_p_masked = log_probabilities(masked, self.temperature)
        log_p_fused = log_probabilities(fuse_logits(factual, masked, self.lam), self.temperature)
        log_tau, state = self.threshold(step)
        certified = None
        if self.calibration is not None:
            certified = certified_set(joint_support(log_p_fused, log_p_masked), log_tau)  # (G, V)
        return Views(
            logits_factual=factual,
            logits_masked=masked,
            log_p_factual=log_probabilities(factual, self.temperature),
            log_p_masked=log_p_masked,
            log_p_fused=log_p_fused,
            certified=certified,
            log_tau=log_tau,
            state=state,
        )

    def threshold(self, step: int) -> tuple[float, CertificateState]:
        """Log-threshold at a step and what it rests on."""
        if self.calibration is None:
            return float("-inf"), "none"
        return self.calibration.threshold(step), self.calibration.state(step)

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

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """Compare the calibration's fingerprint with this policy's.

        Raises:
            CalibrationMismatch: They differ and ``accept_mismatch`` is False.
        """
        if self.calibration is None:
            return Certificate(NO_CALIBRATION)
        own = self.fingerprint(model, detector)
        return compared_certificate(self.calibration.fingerprint, own, self.accept_mismatch)
