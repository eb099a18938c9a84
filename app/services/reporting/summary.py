"""What a chain comes to: counts and extremes of its steps, computed alike when a report is written and verified."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from app.services.plain import chain_json
from app.services.reporting.schema import SummaryPart
from app.services.views.running import SENSITIVE
from coft_core.conformal.chain import ChainCertificate
from coft_core.types import Step


def has_threshold(step: Step) -> bool:
    """Whether a threshold that refuses something was applied."""
    return step.state != "none" and step.log_tau > -math.inf


def summary_of(branch: str, steps: Sequence[Step], chain: ChainCertificate | None) -> SummaryPart:
    """Counts and extremes of one chain.

    Args:
        branch: Path of the branch.
        steps: Its whole chain, from the first step.
        chain: What may be claimed of it as a whole.
    """
    strongest = max(steps, key=lambda step: abs(step.diagnostics.log_ratio), default=None)
    return SummaryPart(
        branch=branch,
        steps=len(steps),
        certified=sum(step.certified and step.state == "calibrated" for step in steps),
        inherited=sum(step.certified and step.state == "inherited" for step in steps),
        uninformative=sum(step.state == "uninformative" for step in steps),
        uncertified=sum(step.state in ("none", "mismatch") for step in steps),
        fallback=sum(step.fallback for step in steps),
        forced=sum(step.forced for step in steps),
        outside=sum(step.state in ("calibrated", "inherited") and not step.certified for step in steps),
        sensitive=sum(abs(step.diagnostics.log_ratio) >= SENSITIVE for step in steps),
        most_sensitive_step=None if strongest is None else strongest.index,
        largest_log_ratio=None if strongest is None else strongest.diagnostics.log_ratio,
        least_log_joint=min((step.log_support for step in steps if step.certified_in == "both"), default=None),
        least_log_factual=min((step.log_support for step in steps if step.certified_in == "factual"), default=None),
        mean_set_size=fmean(step.set_size for step in steps) if steps else None,
        mean_certified_mass=fmean(step.certified_mass for step in steps) if steps else None,
        mean_kl_fused_masked=fmean(step.diagnostics.kl_fused_masked for step in steps) if steps else None,
        chain=chain_json(chain),
        too_weak=sum(step.state == "uninformative" and step.log_tau > -math.inf for step in steps),
    )
