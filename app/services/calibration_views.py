"""Calibrations as pages show them."""

from __future__ import annotations

import math
from itertools import groupby

from app.services.views import BinView, CalibrationSummary, CalibrationView, CoverageView
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageRow
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.stepwise import Bin
from db.records import CalibrationRecord


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
    )


def calibration_view(record: CalibrationRecord, calibration: Calibration) -> CalibrationView:
    """A run read at the calibration's present alpha."""
    calibrated = [b for b in calibration.bins if b.state == "calibrated"]
    last = max(calibrated, key=lambda b: b.index, default=None)
    return CalibrationView(
        summary=summary_of(record),
        alpha=calibration.alpha,
        bins=merged_bins(calibration),
        coverage=_coverage(calibration),
        tokens=len(calibration.values),
        calibrated_up_to=None if last is None else (last.last_step or calibration.max_position - 1) + 1,
        fingerprint=tuple((name, str(value)) for name, value in calibration.fingerprint.to_dict().items()),
        fingerprint_digest=calibration.fingerprint.digest,
        log_values=_log_values(calibration),
    )


def merged_bins(calibration: Calibration) -> tuple[BinView, ...]:
    """Bins in order; neighbours without data of their own that borrow from the same bin stand in one row."""

    def key(entry: Bin) -> tuple[object, ...]:
        empty = entry.contexts == 0
        return (entry.state, entry.inherited_from) if empty else (entry.index,)

    return tuple(_bin_view(list(group), calibration) for _, group in groupby(calibration.bins, key))


def _bin_view(group: list[Bin], calibration: Calibration) -> BinView:
    first, last = group[0], group[-1]
    lender = None if first.inherited_from is None else calibration.bins[first.inherited_from].label
    return BinView(
        label=_label(first.first_step, last.last_step),
        first_step=first.first_step,
        last_step=last.last_step,
        state=first.state,
        tau=math.exp(first.log_tau),
        contexts=first.contexts,
        rank=first.rank,
        coverage_low=first.coverage_low,
        coverage_high=first.coverage_high,
        inherited_from=lender,
        needed=minimum_contexts(calibration.alpha),
    )


def _label(first: int, last: int | None) -> str:
    return f"{first + 1} and later" if last is None else f"{first + 1}–{last + 1}"


def _coverage(calibration: Calibration) -> tuple[CoverageView, ...]:
    report = calibration.coverage
    return tuple(_coverage_view(row) for row in (report.overall, *(row for row in report.bins if row.contexts)))


def _coverage_view(row: CoverageRow) -> CoverageView:
    agrees = None if row.verdict in ("not measured", "too few") else row.agrees
    return CoverageView(row.label, row.contexts, row.kept, row.coverage, row.low, row.high, agrees)


def _log_values(calibration: Calibration) -> dict[str, tuple[float, ...]]:
    values = calibration.values
    index = calibration.positions.bins_of(values.steps)
    return {
        entry.label: tuple(float(v) for v in values.values[index == entry.index])
        for entry in calibration.bins
        if entry.contexts
    }
