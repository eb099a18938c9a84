"""Stored calibrations: kept with all their values, loaded at most once while they are in use."""

from __future__ import annotations

import builtins
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from app.services.errors import ServiceError
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.factorized import FactorizedCalibration, load_calibration
from coft_core.digests import same_digests
from db.records import BinRecord, CalibrationFields, CalibrationRecord
from db.repositories import CalibrationsRepository

AnyCalibration = Calibration | FactorizedCalibration

LOADED = 32
"""Calibrations held at once; the one unused for longest goes first."""


class CalibrationStore:
    """Keeps calibrations; what is stored under an id never changes."""

    def __init__(self, runs: CalibrationsRepository) -> None:
        """Work on the store of runs."""
        self._runs = runs
        self._loaded: OrderedDict[int, AnyCalibration] = OrderedDict()
        self._lock = Lock()

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
            self._loaded.move_to_end(calibration_id)
            while len(self._loaded) > LOADED:
                self._loaded.popitem(last=False)
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


def parts_of(calibration: AnyCalibration) -> tuple[Calibration, ...]:
    """The calibrations that one is made of: itself, or one for each family."""
    if isinstance(calibration, Calibration):
        return (calibration,)
    return tuple(part for _, part in calibration.parts)


def groups_of(calibration: AnyCalibration) -> tuple[str, ...]:
    """Names of the groups that a calibration was made by; empty if it was not."""
    return parts_of(calibration)[0].context_groups.names


def renamed(calibration: AnyCalibration, name: str) -> AnyCalibration:
    """The same calibration under another name."""
    if isinstance(calibration, Calibration):
        return replace(calibration, name=name)
    return replace(calibration, parts=tuple((family, replace(part, name=name)) for family, part in calibration.parts))


def _fields(calibration: AnyCalibration) -> CalibrationFields:
    parts, fingerprint, measured = parts_of(calibration), calibration.fingerprint, calibration.coverage
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
        bin_width=parts[0].bin_width,
        max_position=parts[0].max_position,
        fingerprint_digest=fingerprint.digest,
        fingerprint=dict(fingerprint.to_dict()),
        context_count=calibration.context_count,
        token_count=sum(len(part.values) for part in parts),
        coverage=coverage,
        mask_layout="joint" if isinstance(calibration, Calibration) else "factorized",
    )


def _bins(calibration: AnyCalibration) -> builtins.list[BinRecord]:
    """The position bins; those of factorized masks stand with their families, in the stored values alone."""
    return list(_bin_records(calibration)) if isinstance(calibration, Calibration) else []


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
