"""Stored calibrations as pages and programs see them, read at any level without the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.shared.audits import (
    CalibrationView,
    FamilyThresholds,
    ReadingRequest,
)
from app.shared.calibrations import CalibrationStore
from app.shared.errors import ServiceError
from app.shared.project_cache import ProjectCache
from app.shared.thresholds import merged_bins, summary_of
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageReport, CoverageRow
from coft_core.conformal.part import JOINT, Part
from coft_core.conformal.sequence import ChainCoverage

KEPT = 128
"""Results that do not depend on alpha and are kept between readings."""


class CalibrationReadings:
    """Reads stored calibrations; what does not depend on alpha is worked out once."""

    def __init__(self, store: CalibrationStore) -> None:
        self._store = store
        # What is stored under a number never changes, and no number is given twice.
        self._kept: ProjectCache[tuple[object, ...], Any] = ProjectCache(KEPT)

    def view(self, calibration_id: int, asked: ReadingRequest | None = None) -> CalibrationView:
        """A calibration read as asked."""
        record, stored = self._store.get(calibration_id), self._store.load(calibration_id)
        wanted = asked or ReadingRequest()
        everyone = read(stored, wanted)
        whole = everyone if wanted.group is None else everyone.for_group(wanted.group)
        name, part = shown_part(whole, wanted.family)
        joint, family = name == JOINT, name or None
        reading = (calibration_id, replace(whole.reading, alpha=0.0), whole.group, name)
        return CalibrationView(
            summary=summary_of(record),
            alpha=whole.alpha,
            bins=merged_bins(part),
            coverage=coverage_rows(whole.coverage),
            tokens=len(part.values),
            fingerprint=tuple((name, str(value)) for name, value in whole.fingerprint.to_dict().items()),
            fingerprint_digest=whole.fingerprint.digest,
            log_values=self._kept.once(("log values", *reading), lambda: log_values(part)),
            reading=whole.reading,
            smallest_alpha=self._kept.once(("smallest alpha", *reading), whole.smallest_alpha),
            sequence=part.sequence() if joint else None,
            notes=whole.notes,
            groups=dict(everyone.parts)[name].groups,
            group=whole.group,
            families=tuple(_family_thresholds(name, part) for name, part in whole.parts if name != JOINT),
            family=family,
            effective_contexts=part.effective_contexts,
            iterations=() if part.chains is None else part.chains.iterations,
            has_chains=len(whole.chosen) > 0,
            sequence_coverage=chain_rows(part.sequence_coverage()) if joint else (),
            coverage_by_step=tuple(whole.coverage.steps),
        )


def read(stored: Calibration, asked: ReadingRequest) -> Calibration:
    """A calibration read as asked, all groups and families of it."""
    if asked == ReadingRequest(group=asked.group, family=asked.family):
        return stored
    settings: dict[str, Any] = {
        name: getattr(asked, name)
        for name in ("alpha", "estimator", "bin_width", "max_position", "draws", "rho", "bin_spacing")
    }
    return stored.read(by_family=None if asked.alpha_by_family is None else dict(asked.alpha_by_family), **settings)


def shown_part(calibration: Calibration, family: str | None) -> tuple[str, Part]:
    """The part whose bins are shown, the first if no family is asked for, and its name."""
    if family is None:
        return calibration.parts[0]
    if (part := calibration.part(family)) is None:
        known = ", ".join(calibration.families) or "none: it has one masked branch"
        raise ServiceError(f"The family “{family}” was not calibrated; the families are {known}.")
    return family, part


def coverage_rows(report: CoverageReport) -> tuple[CoverageRow, ...]:
    """The overall row, and one row per bin that has verification data."""
    return (report, *(row for row in report.bins if row.contexts))


def chain_rows(report: ChainCoverage) -> tuple[CoverageRow, ...]:
    """Coverage of whole chains: the overall row, then one a length; empty where nothing was measured."""
    return tuple(row for row in (report.overall, *report.lengths) if row.contexts)


def log_values(part: Part) -> dict[str, tuple[float, ...]]:
    """Log support of the true tokens by bin label, in the readings that the thresholds certify in."""
    values = part.values
    index = part.positions.bins_of(values.steps)
    return {entry.label: tuple(values.values[index == entry.index].tolist()) for entry in part.bins if entry.contexts}


def _family_thresholds(family: str, part: Part) -> FamilyThresholds:
    return FamilyThresholds(family, part.alpha, part.context_count, part.bins[0].tau, part.bins[0].state)
