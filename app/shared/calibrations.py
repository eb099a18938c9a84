"""Stored calibrations: kept with all their values, loaded at most once while they are in use."""

from __future__ import annotations

import builtins
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from app.prompts.sets import shipped_prompts
from app.shared.errors import ServiceError
from app.shared.project_cache import ProjectCache
from app.shared.wiring import Services
from coft_core.assets import assets_path
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.drift import WINDOW, DriftReport, LeftOut, chain_summary, drift_report
from coft_core.fingerprint import same_digests
from coft_core.types import Certificate
from db.calibrations import BinRecord, CalibrationFields, CalibrationRecord, CalibrationsRepository
from db.chains import SessionBeginning
from db.scope import in_every_project

LOADED = 32
"""Calibrations held at once; the one unused for longest goes first."""


EMBEDDED_CALIBRATION = ("models", "demo", "calibration.zip")


class CalibrationStore:
    """Keeps calibrations; what is stored under an id never changes."""

    def __init__(self, runs: CalibrationsRepository) -> None:
        self._runs = runs
        self._loaded: ProjectCache[int, Calibration] = ProjectCache(LOADED)
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> CalibrationStore:
        """The calibrations, with the one that comes with the program."""
        store = cls(services[CalibrationsRepository])
        with in_every_project():
            store.install_embedded(assets_path(*EMBEDDED_CALIBRATION))
        return store

    def add(
        self,
        calibration: Calibration,
        prompt_set_id: int | None = None,
        job_id: int | None = None,
        embedded: bool = False,
    ) -> CalibrationRecord:
        """Store a finished calibration."""
        fields = replace(fields_of(calibration), prompt_set_id=prompt_set_id, job_id=job_id, embedded=embedded)
        return self._runs.add(fields, bins_of(calibration), calibration.to_bytes())

    def get(self, calibration_id: int) -> CalibrationRecord:
        """What is known of a calibration without its values."""
        return self._runs.get(calibration_id)

    def list(self, model: str | None = None) -> builtins.list[CalibrationRecord]:
        """All calibrations, newest first; with a model, its own only."""
        return self._runs.list(model)

    def load(self, calibration_id: int) -> Calibration:
        """The calibration itself, values included."""
        with self._lock:
            if calibration_id not in self._loaded:
                self._loaded[calibration_id] = Calibration.from_bytes(self._runs.values(calibration_id))
            return self._loaded[calibration_id]

    def delete(self, calibration_id: int) -> None:
        """Delete a calibration."""
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
            if same and record.name == calibration.name and record.bins == tuple(bins_of(calibration)):
                return record
        return self.add(calibration, embedded=True)


def fields_of(calibration: Calibration) -> CalibrationFields:
    """What the store lists of a calibration."""
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
        bin_width=calibration.positions.widths[-1],
        max_position=calibration.positions.maximum,
        fingerprint_digest=fingerprint.digest,
        fingerprint=dict(fingerprint.to_dict()),
        context_count=calibration.context_count,
        token_count=sum(len(part.values) for _, part in calibration.parts),
        coverage=coverage,
        mask_layout=calibration.layout,
    )


def bins_of(calibration: Calibration) -> builtins.list[BinRecord]:
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


def drift_of(calibration: Calibration, audits: Sequence[SessionBeginning]) -> DriftReport:
    """Compare audits with the chains that the calibrated policy wrote itself.

    Audits count that are like those chains: certified by this very calibration, drawn and not greedy, with the
    thresholds of all contexts together at the risk level of the chains. A prompt that was audited several times counts
    once, with its first audit, since audits of one prompt depend on each other. The program's own samples do not count:
    they were not drawn as the calibration's prompts were, and say nothing of the prompts in use.
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
    for audit in sorted(audits, key=lambda audit: audit.session_id):
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
    if audit.prompt in shipped_prompts():
        return "of the program’s own samples"
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
