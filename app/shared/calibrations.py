"""Stored calibrations: kept with all their values, loaded at most once while they are in use."""

from __future__ import annotations

import builtins
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

from cachetools import LRUCache

from app.shared.audits import BinView, CalibrationSummary, CalibrationView, CoverageView, FamilyThresholds
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from coft_core.assets import assets_path
from coft_core.conformal.bins import Bin, steps_label
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.certifiable import Certifiable
from coft_core.conformal.coverage import CoverageReport, CoverageRow
from coft_core.conformal.drift import WINDOW, DriftReport, LeftOut, chain_summary, drift_report
from coft_core.conformal.families import AnyCalibration, load_calibration
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.sequence import ChainCoverage
from coft_core.fingerprint import Fingerprint, certified_in, same_digests
from coft_core.types import Certificate
from db.calibrations import BinRecord, CalibrationFields, CalibrationRecord, CalibrationsRepository
from db.chains import SessionBeginning
from db.sessions import SessionsRepository

LOADED = 32
"""Calibrations held at once; the one unused for longest goes first."""


EMBEDDED_CALIBRATION = ("models", "demo", "calibration.zip")


class CalibrationStore:
    """Keeps calibrations; what is stored under an id never changes."""

    def __init__(self, runs: CalibrationsRepository) -> None:
        """Work on the store of runs."""
        self._runs = runs
        self._loaded: LRUCache[int, AnyCalibration] = LRUCache(LOADED)
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> CalibrationStore:
        """The calibrations, with the one that comes with the program."""
        store = cls(services[CalibrationsRepository])
        store.install_embedded(assets_path(*EMBEDDED_CALIBRATION))
        return store

    def add(
        self,
        calibration: AnyCalibration,
        prompt_set_id: int | None = None,
        job_id: int | None = None,
        embedded: bool = False,
    ) -> CalibrationRecord:
        """Store a finished calibration."""
        fields = replace(_fields(calibration), prompt_set_id=prompt_set_id, job_id=job_id, embedded=embedded)
        return self._runs.add(fields, _bins(calibration), calibration.to_bytes())

    def get(self, calibration_id: int) -> CalibrationRecord:
        """What is known of a calibration without its values.

        Raises:
            NotFoundError: There is none with this id.
        """
        return self._runs.get(calibration_id)

    def list(self, model: str | None = None) -> builtins.list[CalibrationRecord]:
        """All calibrations, newest first; with a model, its own only."""
        return self._runs.list(model)

    def load(self, calibration_id: int) -> AnyCalibration:
        """The calibration itself, values included.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._lock:
            if calibration_id not in self._loaded:
                self._loaded[calibration_id] = load_calibration(self._runs.values(calibration_id))
            return self._loaded[calibration_id]

    def delete(self, calibration_id: int) -> None:
        """Delete a calibration.

        Raises:
            ServiceError: It comes with the program.
            NotFoundError: There is none with this id.
        """
        if self._runs.get(calibration_id).embedded:
            raise ServiceError("The embedded calibration comes with the program and cannot be deleted.")
        self._runs.delete(calibration_id)
        with self._lock:
            self._loaded.pop(calibration_id, None)

    def install_embedded(self, path: Path) -> CalibrationRecord | None:
        """Store the calibration that comes with the embedded model, once per version of it.

        A version is a policy, a name and thresholds: another one, such as that of other position bins, is stored beside
        the older ones, on which audits may rest.
        """
        if not path.is_file():
            return None
        calibration = Calibration.load(path)
        for record in self._runs.list(embedded=True):
            same = same_digests(record.fingerprint_digest, calibration.fingerprint.digest)
            if same and record.name == calibration.name and record.bins == tuple(_bins(calibration)):
                return record
        return self.add(calibration, embedded=True)


def _fields(calibration: AnyCalibration) -> CalibrationFields:
    fingerprint, measured = calibration.fingerprint, calibration.coverage
    coverage: dict[str, Any] = {
        "coverage": measured.coverage,
        "low": measured.low,
        "high": measured.high,
        "contexts": measured.contexts,
    }
    return CalibrationFields(
        name=calibration.name,
        model=fingerprint.model,
        model_revision=fingerprint.revision,
        alpha=calibration.alpha,
        lam=fingerprint.lam,
        estimator=calibration.estimator,
        source=calibration.source,
        bin_width=calibration.positions.width,
        max_position=calibration.positions.maximum,
        fingerprint_digest=fingerprint.digest,
        fingerprint=dict(fingerprint.to_dict()),
        context_count=calibration.context_count,
        token_count=sum(len(part.values) for _, part in calibration.parts),
        coverage=coverage,
        mask_layout=calibration.layout,
    )


def _bins(calibration: AnyCalibration) -> builtins.list[BinRecord]:
    """The position bins; those of factorized masks stand with their families, in the stored values alone."""
    return list(_bin_records(calibration)) if calibration.layout == "joint" else []


def _bin_records(calibration: Calibration) -> Iterator[BinRecord]:
    for entry in calibration.bins:
        yield BinRecord(
            position=entry.index,
            first_step=entry.first_step,
            last_step=entry.last_step,
            log_tau=entry.log_tau,
            state=entry.state,
            contexts=entry.contexts,
            rank=entry.rank,
            low=_finite(entry.coverage_low),
            high=_finite(entry.coverage_high),
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def drift_since(calibration: AnyCalibration, calibration_id: int, sessions: SessionsRepository) -> DriftReport:
    """What the stored audits that used a calibration say against it."""
    # Without chains there is nothing to compare audits with, however many there are.
    audits = sessions.beginnings(calibration_id, WINDOW) if len(calibration.chosen) else ()
    return drift_of(calibration, audits)


def drift_of(calibration: AnyCalibration, audits: Sequence[SessionBeginning]) -> DriftReport:
    """Compare audits with the chains that the calibrated policy wrote itself.

    Audits count that are like those chains: certified by this very calibration, drawn and not greedy, with the
    thresholds of all contexts together at the risk level of the chains. A prompt that was audited several times counts
    once, with its first audit, since audits of one prompt depend on each other.

    Args:
        calibration: The calibration as it is stored.
        audits: How its audits began, oldest first.
    """
    chains = calibration.chains
    reading = calibration
    if chains is not None and not calibration.as_rolled_out:
        reading = calibration.read(alpha=chains.reading.alpha)
    counted, left_out = _counted(audits, reading.alpha)
    report = drift_report(reading, [_summary(audit) for audit in counted])
    told = [f"not counted: {count} {_audits(count)} {why}" for why, count in Counter(o.why for o in left_out).items()]
    return replace(report, reason="; ".join(part for part in (report.reason, *told) if part), left_out=left_out)


def _counted(audits: Sequence[SessionBeginning], alpha: float) -> tuple[list[SessionBeginning], tuple[LeftOut, ...]]:
    """The audits that count, oldest first, and the others with the first reason that holds."""
    counted: dict[str, SessionBeginning] = {}
    left_out = []
    for audit in sorted(audits, key=lambda own: own.session_id):
        why = _obstacle(audit, alpha)
        if not why and audit.prompt in counted:
            why = "of a prompt that was audited before"
        if why:
            left_out.append(LeftOut(audit.session_id, audit.prompt, why))
        else:
            counted[audit.prompt] = audit
    return list(counted.values()), tuple(left_out)


def _obstacle(audit: SessionBeginning, alpha: float) -> str:
    """Why an audit is not like the chains that the calibrated policy wrote; empty where it is."""
    if not Certificate.read(audit.certificate).certified:
        return "not certified by it"
    if audit.alpha != alpha:
        return f"at another alpha than {alpha:g}"
    if audit.group is not None:
        return "with thresholds of one group"
    if audit.greedy:
        return "greedy"
    # Only an audit that is long enough can stand for its prompt.
    if len(audit.steps) < WINDOW or any(step.forced for step in audit.steps[:WINDOW]):
        return f"shorter than {WINDOW} tokens or with a forced token there"
    return ""


def _summary(audit: SessionBeginning) -> float | None:
    """The one value of an audit; the core's ``audit_summary`` of its steps."""
    return chain_summary([min(step.log_p_fused, step.log_p_masked) for step in audit.steps])


def _audits(count: int) -> str:
    return "audit" if count == 1 else "audits"


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
        sequence=whole.sequence() if whole.layout == "joint" else None,
        notes=whole.notes,
        groups=shown.groups,
        group=whole.group,
        families=tuple(_family_thresholds(name, part) for name, part in whole.parts if name is not None),
        family=shown.family,
        effective_contexts=part.effective_contexts,
        iterations=() if part.chains is None else part.chains.iterations,
        has_chains=len(whole.chosen) > 0,
        sequence_coverage=chain_rows(whole.sequence_coverage()) if whole.layout == "joint" else (),
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


def _family_thresholds(family: str, part: Calibration) -> FamilyThresholds:
    return FamilyThresholds(family, part.alpha, part.context_count, part.bins[0].tau, part.bins[0].state)
