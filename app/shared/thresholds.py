"""Calibrations as audits use them: read at a session's risk level, for its group, and drawn for its prompt."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from threading import Lock

from app.shared.audits import AuditSettings, CalibrationSummary, CertifiedIn
from app.shared.calibrations import CalibrationStore, drift_of
from app.shared.errors import ServiceError
from app.shared.project_cache import ProjectCache
from coft_core.conformal.bins import Bin, PositionBins
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.drift import WINDOW, DriftReport
from coft_core.conformal.part import Part
from coft_core.conformal.rule import Threshold
from coft_core.fingerprint import Fingerprint, certified_in
from db.calibrations import CalibrationRecord
from db.chains import SessionBeginning
from db.sessions import SessionsRepository

READINGS = 32
"""Readings kept at a time; one of a long calibration takes milliseconds, and a page asks for the same one again."""

_WORST_FIRST = ("uninformative", "inherited", "calibrated")


CALIBRATIONS_KEPT = 4
"""Calibrations of which is known how their audits began; of each some hundred bytes an audit."""

READ_SINGLY = 500
"""Audits that are asked for by their numbers at most; of more, all are read again."""


class Beginnings:
    """How the audits under a calibration began; a beginning that is whole never changes, and is read once."""

    def __init__(self, sessions: SessionsRepository) -> None:
        """Read nothing yet."""
        self._sessions = sessions
        self._whole: ProjectCache[int, dict[int, SessionBeginning]] = ProjectCache(CALIBRATIONS_KEPT)
        self._lock = Lock()

    def of(self, calibration_id: int) -> list[SessionBeginning]:
        """The first steps of each audit that has any, oldest audit first."""
        users = self._sessions.users(calibration_id)
        with self._lock:
            known = self._whole.get(calibration_id, {})
        unknown = [number for number in users if number not in known]
        if unknown:
            few = unknown if len(unknown) <= READ_SINGLY else None
            read = {begun.session_id: begun for begun in self._sessions.beginnings(calibration_id, WINDOW, few)}
        else:
            read = {}
        begun = {number: known.get(number) or read.get(number) for number in users}
        found = {number: beginning for number, beginning in begun.items() if beginning is not None}
        with self._lock:
            self._whole[calibration_id] = {
                number: beginning for number, beginning in found.items() if len(beginning.steps) >= WINDOW
            }
        return list(found.values())


class Thresholds:
    """Gives an audit the calibration that its settings name."""

    def __init__(self, store: CalibrationStore, sessions: SessionsRepository) -> None:
        self._store = store
        self.stored = store.load
        """Gives a calibration as it was made."""
        self._beginnings = Beginnings(sessions)
        self._readings: ProjectCache[tuple[int, float, str | None], Calibration] = ProjectCache(READINGS)

    def of(self, settings: AuditSettings) -> Calibration | None:
        """The calibration of the settings at their risk level and for their group; None if they name none."""
        if settings.calibration_id is None:
            if settings.group is not None:
                raise ServiceError(
                    f"The group “{settings.group}” has no thresholds without a calibration; choose a calibration by "
                    "group, or no group."
                )
            return None
        stored = self.stored(settings.calibration_id)
        key = (settings.calibration_id, settings.alpha, settings.group)
        return self._readings.once(key, lambda: reading_for(stored, settings))

    def summary(self, calibration_id: int | None) -> CalibrationSummary | None:
        """A calibration in a line; None if there is none, or if it has been deleted."""
        return next((summary_of(item) for item in self._store.list() if item.id == calibration_id), None)

    def drift(self, calibration_id: int) -> DriftReport:
        """What the audits that used a calibration say against it."""
        calibration = self.stored(calibration_id)
        # Without chains there is nothing to compare audits with, however many there are.
        return drift_of(calibration, self._beginnings.of(calibration_id) if len(calibration.chosen) else ())


def readings_of(calibration: Calibration) -> CertifiedIn:
    """The readings whose probabilities the thresholds bound: both, or the factual one alone."""
    return certified_in(calibration.fingerprint)


def own_notes(calibration: Calibration) -> tuple[str, ...]:
    """What must be said with an audit's thresholds; that rollouts settled is no reservation and stays out."""
    records = [part.chains for _, part in calibration.parts if part.chains is not None]
    fine = {record.sentence for record in records if record.settled or record.tolerance is None}
    return tuple(note for note in calibration.notes if note not in fine)


def bins_for(calibration: Calibration, families: tuple[str, ...]) -> tuple[Bin, ...]:
    """Thresholds by position as an audit's page draws them."""
    if calibration.layout == "joint":
        return merged_bins(calibration.joint)
    if not families:
        return ()
    parts = [calibration.part(family) for family in families]
    positions = calibration.positions
    return joined(_weakest(parts, positions, index) for index in range(positions.count))


def reading_for(stored: Calibration, settings: AuditSettings) -> Calibration:
    """A calibration at the risk level and for the group of some settings."""
    # Reading a factorized calibration at its own level again would replace levels that were given by hand.
    reading = stored if stored.alpha == settings.alpha else stored.read(alpha=settings.alpha)
    return reading if settings.group is None else reading.for_group(settings.group)


def _weakest(parts: list[Part | None], positions: PositionBins, index: int) -> Bin:
    """One bin over the families; a family that was never calibrated refuses nothing, so its threshold is 0."""
    first = positions.first_step(index)
    entries = [part.bin(first) for part in parts if part is not None]
    worst = min(entries, key=lambda entry: _WORST_FIRST.index(entry.state), default=None)
    needed = max((entry.needed for entry in entries), default=0)
    nothing = Threshold(state="uninformative", log_tau=-math.inf, contexts=0, values=0, rank=0, needed=needed)
    empty = Bin(index, first, positions.last_step(index), **nothing.rests_on)
    if worst is None or len(entries) < len(parts):
        return empty
    return replace(
        empty,
        state=worst.state,
        log_tau=min(entry.log_tau for entry in entries),
        contexts=min(entry.contexts for entry in entries),
        rank=worst.rank,
        inherited_from=worst.inherited_from,
    )


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


def merged_bins(part: Part) -> tuple[Bin, ...]:
    """Bins in order; neighbours without data of their own that borrow from the same bin stand in one row."""
    evenness = {entry.label: entry for entry in part.evenness}
    return joined(replace(entry, evenness=evenness.get(entry.label)) for entry in part.bins)


def joined(bins: Iterable[Bin]) -> tuple[Bin, ...]:
    """Bins in order; neighbours without data of their own that borrow from the same bin become one."""

    def key(entry: Bin) -> tuple[object, ...]:
        return (entry.state, entry.inherited_from) if entry.contexts == 0 else (entry.first_step,)

    runs = [list(group) for _, group in groupby(bins, key)]
    return tuple(replace(run[0], last_step=run[-1].last_step) for run in runs)
