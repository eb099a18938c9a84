"""Calibration runs as the services give them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from app.services.views.policies import CertifiedIn
from coft_core.conformal.certifiable import Certifiable
from coft_core.conformal.evenness import BinEvenness
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.record import Iteration, Reading
from coft_core.conformal.sequence import SequenceThreshold
from coft_core.informative import silence


@dataclass(frozen=True, slots=True)
class BinView:
    """One position bin of a calibration, ready to be drawn.

    Attributes:
        label: ``"1–8"`` or ``"257 and later"``.
        first_step: 0-based.
        last_step: 0-based inclusive; None is open-ended.
        state: ``calibrated``, ``inherited`` or ``uninformative``.
        tau: Threshold as a probability; 0 certifies everything.
        contexts: Contexts with data in the bin.
        rank: ``k = floor(alpha (n + 1))``.
        coverage_low: Lower end of the 95 % range that realised coverage can take; None without rank.
        coverage_high: Upper end.
        inherited_from: Label of the lending bin.
        needed: Contexts needed for this alpha.
        evenness: Whether its steps differ from each other; None where they could not be compared.
    """

    label: str
    first_step: int
    last_step: int | None
    state: str
    tau: float
    contexts: int
    rank: int
    coverage_low: float | None
    coverage_high: float | None
    inherited_from: str | None
    needed: int
    evenness: BinEvenness | None = None

    @property
    def silence(self) -> str:
        """Why an uninformative bin says nothing; empty for another one."""
        if self.state != "uninformative":
            return ""
        return silence(math.log(self.tau) if self.tau > 0 else -math.inf)


@dataclass(frozen=True, slots=True)
class CoverageView:
    """Empirical coverage on the verification split; ``label`` is ``"All steps"``, a bin's label or a step."""

    label: str
    contexts: int
    kept: int
    coverage: float | None
    low: float | None
    high: float | None
    agrees: bool | None


@dataclass(frozen=True, slots=True)
class CalibrationSummary:
    """A calibration run in a list."""

    id: int
    name: str
    model: str
    estimator: str
    source: str
    lam: float
    alpha: float
    contexts: int
    coverage: float | None
    coverage_low: float | None
    coverage_high: float | None
    created_at: datetime
    embedded: bool
    mask_layout: str = "joint"
    certified_in: CertifiedIn = "both"


@dataclass(frozen=True, slots=True)
class FamilyThresholds:
    """One family's part of a calibration with factorized masks.

    Attributes:
        family: The attribute family.
        alpha: Its share of the risk level.
        contexts: Contexts in which it was masked.
        tau: Threshold of its first bin as a probability; 0 certifies everything.
        state: What that threshold rests on.
    """

    family: str
    alpha: float
    contexts: int
    tau: float
    state: str


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """A calibration run, read at one alpha.

    Attributes:
        summary: The run.
        alpha: Risk level of this reading.
        bins: Thresholds by position.
        coverage: Overall row first, then one row per bin that has verification data.
        tokens: Number of stored values.
        calibrated_up_to: Last step (1-based) with an own, informative threshold; None if there is none.
        fingerprint: Field and value, in order.
        fingerprint_digest: Short digest.
        log_values: Natural log support of the true tokens by bin label, for histograms.
        reading: How the thresholds are read off the values here.
        smallest_alpha: Smallest risk levels that the contexts support.
        sequence: Threshold for whole chains; None with factorized masks.
        sequence_coverage: Whole chains of the verification split that it keeps: all that it speaks of first, then by
            length; empty where nothing was measured.
        notes: Sentences that must be shown with the thresholds.
        groups: How much is known of each group; empty unless calibrated by group.
        group: The group whose thresholds these are; None is all contexts together.
        families: With factorized masks, each family's part; empty with one masked branch.
        family: With factorized masks, the family whose bins these are.
        effective_contexts: Effective number of contexts under shift weights; None without weights.
        iterations: Rounds of a rollout calibration, in order.
        coverage_by_step: One row per step that has verification data.
        has_chains: Whether it keeps chains of the policy itself, against which drift can be measured.
    """

    summary: CalibrationSummary
    alpha: float
    bins: tuple[BinView, ...]
    coverage: tuple[CoverageView, ...]
    tokens: int
    calibrated_up_to: int | None
    fingerprint: tuple[tuple[str, str], ...]
    fingerprint_digest: str
    log_values: dict[str, tuple[float, ...]]
    reading: Reading
    smallest_alpha: Certifiable
    sequence: SequenceThreshold | None
    notes: tuple[str, ...] = ()
    groups: tuple[GroupSummary, ...] = ()
    group: str | None = None
    families: tuple[FamilyThresholds, ...] = ()
    family: str | None = None
    effective_contexts: float | None = None
    iterations: tuple[Iteration, ...] = ()
    has_chains: bool = False
    sequence_coverage: tuple[CoverageView, ...] = ()
    coverage_by_step: tuple[CoverageView, ...] = ()
