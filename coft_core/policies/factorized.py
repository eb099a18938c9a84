"""COFT with factorized masks: a masked branch and a certificate for every attribute family (App. "Beyond tokens")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import torch
from torch import Tensor

from coft_core.certify import certified_set, joint_support
from coft_core.conformal.factorized import FactorizedCalibration
from coft_core.engine.branches import BranchSpec
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import check_lambda, fuse_logits, log_probabilities
from coft_core.masking.masker import DEFAULT_HINT, MaskedPrompt, MaskMode
from coft_core.masking.partial import mask_families, masked_families
from coft_core.masking.settings import MaskSettings
from coft_core.policies.base import Certificate, FamilyView, Views, compared_certificate
from coft_core.policies.coft import NO_CALIBRATION
from coft_core.policies.fingerprint import policy_fingerprint
from coft_core.sampling import Sampling
from coft_core.types import CertificateState

PREFIX = "masked:"
"""Begins the name of a family's branch."""

_WORST_FIRST: tuple[CertificateState, ...] = ("none", "uninformative", "inherited", "calibrated")


@dataclass(frozen=True)
class FactorizedCoftPolicy:
    """COFT decoding with one masked branch per attribute family that the prompt names.

    A family's branch masks that family alone. The factual branch is fused with the mean of the masked branches' logits,
    and a token is certified iff it is in every family's certified set. Families without a masked token in the prompt
    have no branch and no say.

    Attributes:
        lam: Fusion weight, 0 (factual) to 1 (masked).
        calibration: Thresholds by family and step; None fuses without certifying anything.
        temperature: Sampling temperature, the same in every branch.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        sentinel: Sentinel text; None takes the tokenizer's own.
        mask_mode: ``"hard"`` or ``"soft"``.
        mask_hint: Hint of the soft mask.
        accept_mismatch: Use a calibration of another policy knowingly, see :class:`CoftPolicy`.
        families: Families that are masked; None takes all.
        whitelist: Terms that are never masked.

    Raises:
        InvalidInputError: A parameter is outside its range.
    """

    lam: float = 0.6
    calibration: FactorizedCalibration | None = None
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
        return "coft-factorized"

    @property
    def sampling(self) -> Sampling:
        """The sampling controls."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    @property
    def mask(self) -> MaskSettings:
        """How spans are masked."""
        return MaskSettings(self.mask_mode, self.mask_hint, self.sentinel, self.families, "factorized", self.whitelist)

    def keeping(self, terms: Iterable[str]) -> Self:
        """This policy with more terms that are never masked; they are part of its fingerprint."""
        return replace(self, whitelist=self.mask.keeping(terms).whitelist)

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual branch and one for each family that the prompt has masked."""
        families = masked_families(prompt, self.mask.families)
        masked = (BranchSpec(f"{PREFIX}{name}", mask_families(prompt, (name,))) for name in families)
        return BranchSpec("factual", prompt.factual_ids), *masked

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = ()) -> Views:
        """Fuse with the mean of the masked logits and intersect the families' certificates.

        Args:
            logits: ``(G, B, V)``.
            step: Step index, 0-based.
            branches: Names of the branches, from :meth:`branches`.

        Raises:
            InvalidInputError: There is no name for every branch.
        """
        if len(branches) != logits.shape[1]:
            raise InvalidInputError(f"There are {logits.shape[1]} branches and {len(branches)} names; name each one.")
        factual = logits[:, 0].float()  # (G, V)
        masked = logits[:, 1:].float()  # (G, F, V)
        mean = masked.mean(1) if masked.shape[1] else factual  # (G, V)
        log_p_fused = log_probabilities(fuse_logits(factual, mean, self.lam), self.temperature)
        families = tuple(
            self._family(name.removeprefix(PREFIX), masked[:, index], log_p_fused, step)
            for index, name in enumerate(branches[1:])
        )
        log_tau, state = self._combined(families)
        return Views(
            logits_factual=factual,
            logits_masked=mean,
            log_p_factual=log_probabilities(factual, self.temperature),
            log_p_masked=log_probabilities(mean, self.temperature),
            log_p_fused=log_p_fused,
            certified=self._intersection(families, log_p_fused),
            log_tau=log_tau,
            state=state,
            families=families,
        )

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

    def _family(self, family: str, masked: Tensor, log_p_fused: Tensor, step: int) -> FamilyView:
        log_p = log_probabilities(masked, self.temperature)  # (G, V)
        if self.calibration is None:
            return FamilyView(family, log_p, None, float("-inf"), "none")
        log_tau, state = self.calibration.threshold(family, step)
        return FamilyView(family, log_p, certified_set(joint_support(log_p_fused, log_p), log_tau), log_tau, state)

    def _intersection(self, families: tuple[FamilyView, ...], log_p_fused: Tensor) -> Tensor | None:
        if self.calibration is None:
            return None
        sets = [view.certified for view in families if view.certified is not None]
        return reduce(torch.logical_and, sets, torch.ones_like(log_p_fused, dtype=torch.bool))  # (G, V)

    def _combined(self, families: tuple[FamilyView, ...]) -> tuple[float, CertificateState]:
        """The smallest threshold and the weakest state; without families nothing is refused."""
        if self.calibration is None:
            return float("-inf"), "none"
        if not families:
            return float("-inf"), "uninformative"
        state = min((view.state for view in families), key=_WORST_FIRST.index)
        return min(view.log_tau for view in families), state
