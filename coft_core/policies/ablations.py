"""COFT with a part taken away (COFT, section 5, ablations)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from coft_core.policies.coft import CoftPolicy
from coft_core.types import CertifiedIn


@dataclass(frozen=True)
class NoFusionPolicy(CoftPolicy):
    """Certify like COFT and draw from the factual distribution, which is COFT at lambda 0."""

    lam: float = field(default=0.0, init=False)

    name: ClassVar[str] = "coft-no-fusion"
    title: ClassVar[str] = "COFT without fusion"


@dataclass(frozen=True)
class NoCertificationPolicy(CoftPolicy):
    """Fuse like COFT and refuse no token: there is no calibration."""

    calibration: None = field(default=None, init=False)

    name: ClassVar[str] = "coft-no-certification"
    title: ClassVar[str] = "COFT without certification"


@dataclass(frozen=True)
class SingleBranchPolicy(CoftPolicy):
    """COFT whose certified set is ``{v: log p_factual(v) >= log tau}``, which cannot promise robustness to masking."""

    name: ClassVar[str] = "coft-single-branch"
    title: ClassVar[str] = "COFT, factual certificate"
    certified_in: ClassVar[CertifiedIn] = "factual"
    label = name
