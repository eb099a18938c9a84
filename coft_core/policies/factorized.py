"""COFT with factorized masks: a masked branch and a certificate for every attribute family (App. "Beyond tokens")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec
from coft_core.policies.base import FACTUAL, FamilyView, Past, Views
from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.coft import FusedPolicy
from coft_core.policies.fusion import fuse_logits, log_probabilities
from coft_core.text.masking import MaskedPrompt, MaskLayout, mask_families, masked_families
from coft_core.types import CertificateState

PREFIX = "masked:"
"""Begins the name of a family's branch."""

_WORST_FIRST: tuple[CertificateState, ...] = ("none", "uninformative", "inherited", "calibrated")


@dataclass(frozen=True)
class FactorizedCoftPolicy(FusedPolicy):
    """COFT decoding with one masked branch per attribute family that the prompt names.

    The factual branch is fused with the mean of the masked branches' logits, and a token is certified iff it is in
    every family's certified set. Families without a masked token in the prompt have no branch and no say.
    """

    name: ClassVar[str] = "coft-factorized"
    title: ClassVar[str] = "COFT, factorized"

    layout: ClassVar[MaskLayout] = "factorized"

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual branch and one for each family that the prompt has masked."""
        families = masked_families(prompt, self.mask.families)
        masked = (BranchSpec(f"{PREFIX}{name}", mask_families(prompt, (name,))) for name in families)
        return BranchSpec(FACTUAL, prompt.factual_ids), *masked

    def reads(self, branches: tuple[str, ...]) -> bool:
        """Any families' branches."""
        return all(name.startswith(PREFIX) for name in branches[1:])

    def thresholds(self, step: int, branches: tuple[str, ...]) -> tuple[tuple[float, CertificateState], ...]:
        """The families' thresholds, in the order of their branches."""
        if self.calibration is None:
            return ()
        return tuple(self.calibration.bound(step, name.removeprefix(PREFIX)) for name in branches[1:])

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """Fuse with the mean of the masked logits and intersect the families' certificates."""
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
        certified = margins = None
        log_tau: float = -math.inf
        state: CertificateState = "none"
        if self.calibration is not None:
            sets = [view.certified for view in families if view.certified is not None]
            certified = reduce(torch.logical_and, sets, torch.ones_like(log_p_fused, dtype=torch.bool))  # (G, V)
            # Of several thresholds the one that is nearest to refusing a token.
            above = [joint_support(log_p_fused, view.log_p) - view.log_tau for view in families]
            margins = reduce(torch.fmin, above, torch.full_like(log_p_fused, math.inf))  # (G, V)
            state = "uninformative"
            if families:
                log_tau = min(view.log_tau for view in families)
                state = _WORST_FIRST[min([_WORST_FIRST.index(view.state) for view in families])]
        return Views(
            logits_factual=factual,
            logits_masked=mean,
            log_p_factual=log_probabilities(factual, self.temperature),
            log_p_masked=log_probabilities(mean, self.temperature),
            log_p_fused=log_p_fused,
            certified=certified,
            log_tau=log_tau,
            state=state,
            families=families,
            margins=margins,
        )

    def _family(self, family: str, masked: Tensor, log_p_fused: Tensor, step: int) -> FamilyView:
        log_p = log_probabilities(masked, self.temperature)  # (G, V)
        if self.calibration is None:
            return FamilyView(family, log_p, None, -math.inf, "none")
        log_tau, state = self.calibration.bound(step, family)
        return FamilyView(family, log_p, certified_set(joint_support(log_p_fused, log_p), log_tau), log_tau, state)
