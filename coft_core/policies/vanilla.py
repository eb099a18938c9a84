"""Vanilla decoding: the factual branch alone decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from coft_core.engine.branches import BranchSpec
from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import log_probabilities
from coft_core.masking.masker import DEFAULT_HINT, MaskedPrompt, MaskMode
from coft_core.masking.settings import MaskSettings
from coft_core.policies.base import Certificate, Views
from coft_core.policies.fingerprint import policy_fingerprint
from coft_core.sampling import Sampling


@dataclass(frozen=True)
class VanillaPolicy:
    """Draw from the factual distribution; certify nothing.

    Attributes:
        temperature: Sampling temperature.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        observe_masked: Run the masked branch beside, as a probe that decides nothing, so that an audit can show the
            attribute sensitivity of a vanilla chain. Without it the masked view repeats the factual one.
        sentinel: Sentinel text of the probe.
        mask_mode: ``"hard"`` or ``"soft"``.
        mask_hint: Hint of the soft mask.
        whitelist: Terms that the probe never masks.

    Raises:
        InvalidInputError: A parameter is outside its range.
    """

    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    observe_masked: bool = True
    sentinel: str | None = None
    mask_mode: MaskMode = "hard"
    mask_hint: str = DEFAULT_HINT
    whitelist: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate by building what the parameters are for."""
        _ = self.sampling, self.mask

    @property
    def name(self) -> str:
        """Short name of the policy."""
        return "vanilla"

    @property
    def sampling(self) -> Sampling:
        """The sampling controls."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    @property
    def mask(self) -> MaskSettings:
        """How the probe's spans are masked."""
        return MaskSettings(self.mask_mode, self.mask_hint, self.sentinel, whitelist=self.whitelist)

    def keeping(self, terms: Iterable[str]) -> Self:
        """This policy with more terms that its probe never masks; they are part of its fingerprint."""
        return replace(self, whitelist=self.mask.keeping(terms).whitelist)

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual branch, and the masked one if it is observed."""
        factual = BranchSpec("factual", prompt.factual_ids)
        return (factual, BranchSpec("masked", prompt.masked_ids)) if self.observe_masked else (factual,)

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = ()) -> Views:
        """The factual distribution; ``logits`` is ``(G, 1 or 2, V)``."""
        factual, masked = logits[:, 0].float(), logits[:, -1].float()  # (G, V)
        log_p_factual = log_probabilities(factual, self.temperature)
        return Views(
            logits_factual=factual,
            logits_masked=masked,
            log_p_factual=log_p_factual,
            log_p_masked=log_probabilities(masked, self.temperature),
            log_p_fused=log_p_factual,
            certified=None,
            log_tau=float("-inf"),
            state="none",
        )

    def fingerprint(self, model: LanguageModel, detector: str) -> Fingerprint:
        """This policy's fingerprint on a model: lambda 0, and no calibration."""
        return policy_fingerprint(
            model,
            lam=0.0,
            sampling=self.sampling,
            mask=self.mask,
            detector=detector,
            estimator="none",
            source="none",
        )

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """Always uncertified."""
        return Certificate("uncertified: vanilla decoding")
