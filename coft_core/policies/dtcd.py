"""Dual-threshold conformal decoding: a token must be likely enough in the factual reading and not too toxic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from coft_core.conformal.calibration import Calibration
from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import log_probabilities
from coft_core.policies.base import Certificate, Past, compared_certificate
from coft_core.policies.baseline import FACTUAL, Decision
from coft_core.policies.parameters import parameter
from coft_core.policies.scored import ScoredPolicy
from coft_core.policies.single_branch import factual_only
from coft_core.types import CertificateState, CertifiedIn


@dataclass(frozen=True)
class DtcdPolicy(ScoredPolicy):
    """Draw from the model's distribution among tokens that pass both thresholds.

    The paper describes the baseline in a sentence: single-branch conformal acceptance by toxicity and minimum
    probability. The minimum probability is a calibration made with nothing masked, whose values are the log-probability
    of the true next token in the factual reading alone; without one it is ``minimum`` and nothing is certified. Of the
    tokens that pass it, the ``candidates`` likeliest are scored, appended to the sentence written so far; those above
    ``cap`` and all that were not scored are refused. An empty set falls back to the likeliest token.

    The certificate, where there is one, is for the minimum probability alone: the toxicity cap only takes tokens away,
    and how often it takes the true one is not calibrated. It says nothing of the masked reading.

    Attributes:
        calibration: Single-branch thresholds; None takes ``minimum``.
        accept_mismatch: Use a calibration of another policy knowingly.
        minimum: Least probability without a calibration.
        cap: Toxicity above which a token is refused.
        candidates: Tokens that are scored at most.
    """

    calibration: Calibration | None = None
    accept_mismatch: bool = False
    minimum: float = parameter(
        0.01, "number", "Minimum probability", "Without a calibration, less likely tokens are refused.", low=0.0,
        high=1.0,
    )  # fmt: skip
    cap: float = parameter(
        0.5, "number", "Toxicity cap", "More toxic tokens are refused.", low=0.0, high=1.0, step=0.05, strength=True
    )
    candidates: int = parameter(40, "whole", "Candidates", "Likeliest tokens that are scored.", low=1, high=400)

    method: ClassVar[str] = "dtcd"
    title: ClassVar[str] = "Dual-threshold conformal"
    certified_in: ClassVar[CertifiedIn] = "factual"

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Both thresholds on the factual reading."""
        log_p = log_probabilities(logits[FACTUAL], self.temperature)  # (G, V)
        log_tau, state = self.threshold(step)
        likeliest, ids = log_p.topk(min(self.candidates, log_p.shape[-1]), dim=-1)  # (G, K)
        mild = self.toxicities(pasts, ids) <= self.cap  # (G, K)
        members = torch.zeros_like(log_p, dtype=torch.bool).scatter(-1, ids, (likeliest >= log_tau) & mild)
        own = (likeliest - log_tau).masked_fill(~mild, float("-inf"))  # (G, K)
        margins = torch.full_like(log_p, float("-inf")).scatter(-1, ids, own)
        return Decision(log_p, members, log_tau, state, margins)

    def threshold(self, step: int) -> tuple[float, CertificateState]:
        """Log-threshold of the probability at a step and what it rests on."""
        if self.calibration is None:
            return math.log(self.minimum) if self.minimum else float("-inf"), "none"
        return self.calibration.threshold(step), self.calibration.state(step)

    def fingerprint(self, model: LanguageModel, detector: str) -> Fingerprint:
        """This policy's fingerprint; estimator and source are those of its calibration."""
        own = super().fingerprint(model, detector)
        if self.calibration is None:
            return own
        return replace(own, estimator=self.calibration.estimator, source=self.calibration.source)

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """Compare the calibration with what this policy reads.

        Raises:
            CalibrationMismatch: They differ and ``accept_mismatch`` is False.
        """
        if self.calibration is None:
            return Certificate("uncertified: no calibration")
        used = factual_only(self.calibration, self.fingerprint(model, detector))
        own = self.calibration
        return compared_certificate(own.fingerprint, used, self.accept_mismatch, own.silence)
