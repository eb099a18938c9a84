"""Calibrations as pages show them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from app.services.calibration.store import AnyCalibration
from app.services.views import (
    BinView,
    CalibrationSummary,
    CalibrationView,
    Certifiable,
    CoverageView,
    FamilyThresholds,
    GroupSummary,
)
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain_coverage import ChainCoverage
from coft_core.conformal.coverage import CoverageReport, CoverageRow
from coft_core.conformal.factorized import FactorizedCalibration
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.stepwise import Bin, steps_label
from coft_core.fingerprint import Fingerprint, certified_in
from db.records import CalibrationRecord


@dataclass(frozen=True, slots=True)
class Shown:
    """A calibration as it is read, with what is shown of it.

    Attributes:
        whole: The calibration as read, of all families.
        part: The calibration whose bins are shown: the whole, a group's or a family's.
        family: With factorized masks, the family of ``part``.
        groups: How much is known of each group.
        smallest_alpha: Smallest risk levels that the contexts support.
        log_values: Log support by bin label.
    """

    whole: AnyCalibration
    part: Calibration
    family: str | None
    groups: tuple[GroupSummary, ...]
    smallest_alpha: Certifiable
    log_values: dict[str, tuple[float, ...]]


def summary_of(record: CalibrationRecord) -> CalibrationSummary:
    """A run in a list; its coverage is that at its own alpha."""
    coverage = record.coverage or {}
    return CalibrationSummary(
        id=record.id,
        name=record.name,
        model=record.model,
        estimator=record.estimator,
        source=record.source,
        lam=record.lam,
        alpha=record.alpha,
        contexts=record.context_count,
        coverage=coverage.get("coverage"),
        coverage_low=coverage.get("low"),
        coverage_high=coverage.get("high"),
        created_at=record.created_at,
        embedded=record.embedded,
        mask_layout=record.mask_layout,
        certified_in=certified_in(Fingerprint.from_dict(record.fingerprint)),
    )


def calibration_view(record: CalibrationRecord, shown: Shown) -> CalibrationView:
    """A run read at the calibration's present settings."""
    whole, part = shown.whole, shown.part
    calibrated = [b for b in part.bins if b.state == "calibrated"]
    last = max(calibrated, key=lambda b: b.index, default=None)
    return CalibrationView(
        summary=summary_of(record),
        alpha=whole.alpha,
        bins=merged_bins(part),
        coverage=coverage_rows(whole.coverage),
        tokens=len(part.values),
        calibrated_up_to=None if last is None else _end(last, part),
        fingerprint=tuple((name, str(value)) for name, value in whole.fingerprint.to_dict().items()),
        fingerprint_digest=whole.fingerprint.digest,
        log_values=shown.log_values,
        reading=whole.reading,
        smallest_alpha=shown.smallest_alpha,
        sequence=whole.sequence() if isinstance(whole, Calibration) else None,
        notes=whole.notes,
        groups=shown.groups,
        group=whole.group,
        families=() if isinstance(whole, Calibration) else _families(whole),
        family=shown.family,
        effective_contexts=part.effective_contexts,
        iterations=() if part.chains is None else part.chains.iterations,
        has_chains=len(whole.chosen) > 0,
        sequence_coverage=chain_rows(whole.sequence_coverage()) if isinstance(whole, Calibration) else (),
        coverage_by_step=tuple(_coverage_view(row) for row in whole.coverage.steps),
    )


def merged_bins(calibration: Calibration) -> tuple[BinView, ...]:
    """Bins in order; neighbours without data of their own that borrow from the same bin stand in one row."""

    def key(entry: Bin) -> tuple[object, ...]:
        empty = entry.contexts == 0
        return (entry.state, entry.inherited_from) if empty else (entry.index,)

    return tuple(_bin_view(list(group), calibration) for _, group in groupby(calibration.bins, key))


def coverage_rows(report: CoverageReport) -> tuple[CoverageView, ...]:
    """The overall row, and one row per bin that has verification data."""
    return tuple(_coverage_view(row) for row in (report.overall, *(row for row in report.bins if row.contexts)))


def chain_rows(report: ChainCoverage) -> tuple[CoverageView, ...]:
    """Coverage of whole chains: the overall row, then one a length; empty where nothing was measured."""
    measured = [row for row in (report.overall, *report.lengths) if row.contexts]
    return tuple(_coverage_view(row) for row in measured)


def log_values(calibration: Calibration) -> dict[str, tuple[float, ...]]:
    """Log support of the true tokens by bin label, in the readings that the thresholds certify in."""
    values = calibration.values
    index = calibration.positions.bins_of(values.steps)
    return {
        entry.label: tuple(values.values[index == entry.index].tolist()) for entry in calibration.bins if entry.contexts
    }


def _bin_view(group: list[Bin], calibration: Calibration) -> BinView:
    first, last = group[0], group[-1]
    lender = None if first.inherited_from is None else calibration.bins[first.inherited_from].label
    return BinView(
        label=steps_label(first.first_step, last.last_step),
        first_step=first.first_step,
        last_step=last.last_step,
        state=first.state,
        tau=math.exp(first.log_tau),
        contexts=first.contexts,
        rank=first.rank,
        coverage_low=first.coverage_low,
        coverage_high=first.coverage_high,
        inherited_from=lender,
        needed=minimum_contexts(calibration.shift.level(calibration.exact_alpha)),
        evenness=next((found for found in calibration.evenness if found.label == first.label), None),
    )


def _coverage_view(row: CoverageRow) -> CoverageView:
    agrees = None if row.verdict in ("not measured", "too few") else row.agrees
    return CoverageView(row.label, row.contexts, row.kept, row.coverage, row.low, row.high, agrees)


def _end(entry: Bin, calibration: Calibration) -> int:
    """Last step of a bin, 1-based; the open last bin ends where positions do."""
    return calibration.max_position if entry.last_step is None else entry.last_step + 1


def _families(whole: FactorizedCalibration) -> tuple[FamilyThresholds, ...]:
    return tuple(
        FamilyThresholds(name, part.alpha, part.context_count, part.bins[0].tau, part.bins[0].state)
        for name, part in whole.parts
    )
