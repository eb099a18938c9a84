"""Calibrations as audits use them: read at a session's risk level, for its group, and drawn for its prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from threading import Lock
from typing import Any

from cachetools import LRUCache

from app.shared.audits import AuditSettings, BinView, CalibrationSummary, CalibrationView, CertifiedIn, ReadingRequest
from app.shared.calibrations import (
    CalibrationStore,
    Shown,
    calibration_view,
    drift_since,
    log_values,
    merged_bins,
    summary_of,
)
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from coft_core.conformal.bins import PositionBins, steps_label
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.certifiable import Certifiable
from coft_core.conformal.drift import DriftReport
from coft_core.conformal.families import AnyCalibration
from coft_core.conformal.groups import GroupContexts, GroupSummary, group_contexts, group_summary
from coft_core.conformal.quantile import minimum_contexts
from coft_core.fingerprint import certified_in
from db.sessions import SessionsRepository

KEPT = 64
"""Results that do not depend on alpha and are kept between readings."""


_Sizes = tuple[GroupContexts, ...]
"""Calibration contexts and contexts kept apart, by group."""


@dataclass(frozen=True, slots=True)
class _Constant:
    """What is the same at every alpha.

    Attributes:
        log_values: Log support by bin label.
        smallest_alpha: Smallest risk levels that the contexts support.
    """

    log_values: dict[str, tuple[float, ...]]
    smallest_alpha: Certifiable


class CalibrationReadings:
    """Reads stored calibrations; what does not depend on alpha is worked out once."""

    def __init__(self, store: CalibrationStore) -> None:
        """Read from a store."""
        self._store = store
        self._constants: LRUCache[tuple[object, ...], tuple[AnyCalibration, _Constant]] = LRUCache(KEPT)
        self._group_sizes: LRUCache[tuple[int, str | None], tuple[AnyCalibration, _Sizes]] = LRUCache(KEPT)
        self._lock = Lock()

    def view(self, calibration_id: int, asked: ReadingRequest | None = None) -> CalibrationView:
        """A calibration read as asked.

        Raises:
            ServiceError: A family or shares are asked for where there are none.
            InvalidInputError: A setting is outside its range, or a group is unknown or too small for alpha.
            NotFoundError: There is no such calibration.
        """
        record = self._store.get(calibration_id)
        stored = self._store.load(calibration_id)
        wanted = asked or ReadingRequest()
        everyone = read(stored, wanted)
        family = _family(everyone, wanted.family)
        whole = everyone if wanted.group is None else everyone.for_group(wanted.group)
        part = part_of(whole, family)
        constant = self._constant(calibration_id, stored, whole, family)
        shown = Shown(
            whole=whole,
            part=part,
            family=family,
            groups=self._groups(calibration_id, stored, part_of(everyone, family), family),
            smallest_alpha=constant.smallest_alpha,
            log_values=constant.log_values,
        )
        return calibration_view(record, shown)

    def _constant(
        self, calibration_id: int, stored: AnyCalibration, whole: AnyCalibration, family: str | None
    ) -> _Constant:
        key = (calibration_id, replace(whole.reading, alpha=0.0), whole.group, family)
        with self._lock:
            found = self._constants.get(key)
        if found is not None and found[0] is stored:
            return found[1]
        made = _Constant(log_values(part_of(whole, family)), whole.smallest_alpha())
        with self._lock:
            self._constants[key] = (stored, made)
        return made

    def _groups(
        self, calibration_id: int, stored: AnyCalibration, part: Calibration, family: str | None
    ) -> tuple[GroupSummary, ...]:
        key = (calibration_id, family)
        with self._lock:
            found = self._group_sizes.get(key)
        if found is None or found[0] is not stored:
            groups = part.context_groups
            sizes = tuple(group_contexts(groups, name, part.values, part.verification) for name in groups.names)
            found = (stored, sizes)
            with self._lock:
                self._group_sizes[key] = found
        return tuple(group_summary(own, part.alpha, part.shift) for own in found[1])


def read(stored: AnyCalibration, asked: ReadingRequest) -> AnyCalibration:
    """A calibration read as asked, all groups and families of it.

    Raises:
        ServiceError: Shares of alpha are asked of one masked branch.
        InvalidInputError: A setting is outside its range.
    """
    if asked == ReadingRequest(group=asked.group, family=asked.family):
        return stored
    settings: dict[str, Any] = {
        name: getattr(asked, name)
        for name in ("alpha", "estimator", "bin_width", "max_position", "draws", "rho", "bin_spacing")
    }
    if stored.layout == "factorized":
        shares = None if asked.alpha_by_family is None else dict(asked.alpha_by_family)
        return stored.read(by_family=shares, **settings)
    if asked.alpha_by_family is not None:
        raise ServiceError("This calibration has one masked branch and so one alpha; give no shares by family.")
    return stored.read(**settings)


def part_of(calibration: AnyCalibration, family: str | None) -> Calibration:
    """The calibration of a family, or the calibration itself where there is one masked branch.

    Raises:
        ServiceError: The family was not calibrated.
    """
    part = calibration.part(family)
    if part is None:
        known = ", ".join(calibration.families)
        raise ServiceError(f"The family “{family}” was not calibrated; the families are {known}.")
    return part


def _family(calibration: AnyCalibration, asked: str | None) -> str | None:
    """The family whose bins are shown."""
    if asked is not None and calibration.layout == "joint":
        raise ServiceError(f"This calibration has one masked branch; there are no thresholds of “{asked}” alone.")
    return calibration.parts[0][0] if asked is None else asked


READINGS = 32
"""Readings kept at a time; one of a long calibration takes milliseconds, and a page asks for the same one again."""

_WORST_FIRST = ("uninformative", "inherited", "calibrated")


class Thresholds:
    """Gives an audit the calibration that its settings name."""

    def __init__(self, store: CalibrationStore, sessions: SessionsRepository) -> None:
        """Wire to the stored calibrations, and to the audits that used them."""
        self._store = store
        self._sessions = sessions
        self._readings: LRUCache[tuple[int, float, str | None], tuple[AnyCalibration, AnyCalibration]]
        self._readings = LRUCache(READINGS)
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> Thresholds:
        """Built from the program's services."""
        return cls(services[CalibrationStore], services[SessionsRepository])

    def of(self, settings: AuditSettings) -> AnyCalibration | None:
        """The calibration of the settings at their risk level and for their group; None if they name none.

        Raises:
            ServiceError: A group is named where thresholds have none.
            InvalidInputError: There is no such group, it has too few contexts, or alpha is outside (0, 1).
            NotFoundError: The calibration has been deleted.
        """
        if settings.calibration_id is None:
            if settings.group is not None:
                raise ServiceError(
                    f"The group “{settings.group}” has no thresholds without a calibration; choose a calibration by "
                    "group, or no group."
                )
            return None
        stored = self.stored(settings.calibration_id)
        key = (settings.calibration_id, settings.alpha, settings.group)
        with self._lock:
            found = self._readings.get(key)
        if found is not None and found[0] is stored:
            return found[1]
        reading = reading_for(stored, settings)
        with self._lock:
            self._readings[key] = (stored, reading)
        return reading

    def stored(self, calibration_id: int) -> AnyCalibration:
        """A calibration as it was made.

        Raises:
            NotFoundError: It has been deleted.
        """
        return self._store.load(calibration_id)

    def summary(self, calibration_id: int | None) -> CalibrationSummary | None:
        """A calibration in a line; None if there is none, or if it has been deleted."""
        return next((summary_of(item) for item in self._store.list() if item.id == calibration_id), None)

    def drift(self, calibration_id: int) -> DriftReport:
        """What the audits that used a calibration say against it."""
        return drift_since(self._store.load(calibration_id), calibration_id, self._sessions)


def readings_of(calibration: AnyCalibration) -> CertifiedIn:
    """The readings whose probabilities the thresholds bound: both, or the factual one alone."""
    return certified_in(calibration.fingerprint)


def own_notes(calibration: AnyCalibration) -> tuple[str, ...]:
    """What must be said with an audit's thresholds; that rollouts settled is no reservation and stays out."""
    records = [part.chains for _, part in calibration.parts if part.chains is not None]
    fine = {record.sentence for record in records if record.settled or record.tolerance is None}
    return tuple(note for note in calibration.notes if note not in fine)


def bins_for(calibration: AnyCalibration, families: tuple[str, ...]) -> tuple[BinView, ...]:
    """Thresholds by position as an audit's page draws them.

    Args:
        calibration: The calibration.
        families: Families that the prompt has masked. With factorized masks a bin is as weak as its weakest family,
            and its threshold is the smallest of theirs.
    """
    if calibration.layout == "joint":
        return merged_bins(calibration)
    if not families:
        return ()
    parts = [calibration.part(family) for family in families]
    positions = calibration.positions
    singles = [_weakest(parts, positions, index) for index in range(positions.count)]
    runs = [list(group) for _, group in groupby(singles, key=_alike)]
    return tuple(_joined(run[0], run[-1]) for run in runs)


def reading_for(stored: AnyCalibration, settings: AuditSettings) -> AnyCalibration:
    """A calibration at the risk level and for the group of some settings.

    Raises:
        InvalidInputError: There is no such group, it has too few contexts, or alpha is outside (0, 1).
    """
    # Reading a factorized calibration at its own level again would replace levels that were given by hand.
    reading = stored if stored.alpha == settings.alpha else stored.read(alpha=settings.alpha)
    return reading if settings.group is None else reading.for_group(settings.group)


def _weakest(parts: list[Calibration | None], positions: PositionBins, index: int) -> BinView:
    """One bin over the families; a family that was never calibrated refuses nothing, so its threshold is 0."""
    entries = [part.bins[index] for part in parts if part is not None]
    worst = min(entries, key=lambda entry: _WORST_FIRST.index(entry.state), default=None)
    missing = worst is None or len(entries) < len(parts)
    lender = None if worst is None or missing else worst.inherited_from
    return BinView(
        label=positions.label(index),
        first_step=positions.first_step(index),
        last_step=positions.last_step(index),
        state="uninformative" if worst is None or missing else worst.state,
        tau=0.0 if missing else math.exp(min(entry.log_tau for entry in entries)),
        contexts=0 if missing else min(entry.contexts for entry in entries),
        rank=0 if worst is None or missing else worst.rank,
        coverage_low=None,
        coverage_high=None,
        inherited_from=None if lender is None else positions.label(lender),
        needed=max((minimum_contexts(part.alpha) for part in parts if part is not None), default=0),
    )


def _alike(entry: BinView) -> tuple[object, ...]:
    """Neighbours with data of their own stay apart; those without are drawn as one."""
    return (entry.state, entry.inherited_from) if entry.contexts == 0 else (entry.first_step,)


def _joined(first: BinView, last: BinView) -> BinView:
    return replace(first, last_step=last.last_step, label=steps_label(first.first_step, last.last_step))
