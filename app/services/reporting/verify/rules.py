"""What the numbers of a method's steps must satisfy, as far as it can be said without the model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.services.errors import CoftError, ServiceError
from app.services.policy_choice import policy_of
from app.services.policy_words import info_of
from app.services.views import AuditSettings, Candidate
from app.services.views.policies import PolicyInfo
from coft_core.policies.dtcd import DtcdPolicy


@dataclass(frozen=True, slots=True)
class StepRules:
    """A method's rules.

    Attributes:
        info: The method.
    """

    info: PolicyInfo

    @property
    def mixes(self) -> bool:
        """Whether what it draws from is the geometric mixture of both readings (Eq. 4), lambda 0 included."""
        return self.info.kind in ("fusion", "reference")

    @property
    def refuses_more(self) -> bool:
        """Whether it also refuses tokens for reasons that no stored number tells, such as a toxicity."""
        return self.info.kind == "constraint"

    def support(self, row: Candidate) -> float:
        """The log-probability that the threshold is compared with: in both readings, or in the factual one alone."""
        return row.log_p_factual if self.info.certified_in == "factual" else row.log_joint


def rules_of(settings: AuditSettings) -> StepRules:
    """The rules of the settings' method."""
    return StepRules(info_of(settings.policy))


def uncalibrated_threshold(settings: AuditSettings) -> float:
    """The log-threshold that the settings' method applies where it reads no calibration; most methods apply none.

    Settings from which no policy can be built have none either; that they are damaged is a finding of its own.
    """
    try:
        policy = policy_of(settings, None)
    except (CoftError, ServiceError):
        return -math.inf
    return policy.threshold(0)[0] if isinstance(policy, DtcdPolicy) else -math.inf
