"""The ablations that take a part of COFT away: no fusion, or no certification.

COFT, section 5 (ablations). The third one, certification in one branch, is
:class:`coft_core.policies.single_branch.SingleBranchPolicy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from coft_core.policies.coft import CoftPolicy


@dataclass(frozen=True)
class NoFusionPolicy(CoftPolicy):
    """Certify like COFT and draw from the factual distribution: lambda is 0 and cannot be changed.

    The certified set stays joint, ``min(p_factual, p_masked) >= tau``, so that a calibration of COFT at lambda 0 fits.
    Its other parameters are those of :class:`coft_core.policies.fused.FusedPolicy`.
    """

    lam: float = field(default=0.0, init=False)

    title: ClassVar[str] = "COFT without fusion"

    @property
    def name(self) -> str:
        """Short name of the policy."""
        return "coft-no-fusion"


@dataclass(frozen=True)
class NoCertificationPolicy(CoftPolicy):
    """Fuse like COFT and refuse no token: there is no calibration.

    Its other parameters are those of :class:`coft_core.policies.fused.FusedPolicy`.
    """

    calibration: None = field(default=None, init=False)

    title: ClassVar[str] = "COFT without certification"

    @property
    def name(self) -> str:
        """Short name of the policy."""
        return "coft-no-certification"
