"""Stored calibrations read as a page asks, fast enough for a slider."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from app.services.calibration.store import AnyCalibration, CalibrationStore
from app.services.calibration.summaries import Shown, calibration_view, log_values
from app.services.errors import ServiceError
from app.services.views import CalibrationView, Certifiable, GroupSummary, ReadingRequest
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.factorized import FactorizedCalibration
from coft_core.conformal.groups import GroupContexts, group_contexts, group_summary

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
        self._constants: OrderedDict[tuple[object, ...], tuple[AnyCalibration, _Constant]] = OrderedDict()
        self._group_sizes: OrderedDict[tuple[int, str | None], tuple[AnyCalibration, _Sizes]] = OrderedDict()
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
            while len(self._constants) > KEPT:
                self._constants.popitem(last=False)
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
                while len(self._group_sizes) > KEPT:
                    self._group_sizes.popitem(last=False)
        return tuple(group_summary(own, part.alpha, part.shift) for own in found[1])


def read(stored: AnyCalibration, asked: ReadingRequest) -> AnyCalibration:
    """A calibration read as asked, all groups and families of it.

    Raises:
        ServiceError: Shares of alpha are asked of one masked branch.
        InvalidInputError: A setting is outside its range.
    """
    settings: dict[str, Any] = {
        name: getattr(asked, name) for name in ("bin_width", "max_position", "draws", "rho", "bin_spacing")
    }
    if isinstance(stored, FactorizedCalibration):
        shares = None if asked.alpha_by_family is None else dict(asked.alpha_by_family)
        return stored.read(asked.alpha, shares, asked.estimator, **settings)
    if asked.alpha_by_family is not None:
        raise ServiceError("This calibration has one masked branch and so one alpha; give no shares by family.")
    if asked == ReadingRequest(group=asked.group, family=asked.family):
        return stored
    return stored.read(asked.alpha, asked.estimator, **settings)


def part_of(calibration: AnyCalibration, family: str | None) -> Calibration:
    """The calibration of a family, or the calibration itself where there is one masked branch.

    Raises:
        ServiceError: The family was not calibrated.
    """
    if isinstance(calibration, Calibration):
        return calibration
    part = None if family is None else calibration.part(family)
    if part is None:
        known = ", ".join(calibration.families)
        raise ServiceError(f"The family “{family}” was not calibrated; the families are {known}.")
    return part


def _family(calibration: AnyCalibration, asked: str | None) -> str | None:
    """The family whose bins are shown."""
    if isinstance(calibration, FactorizedCalibration):
        return calibration.families[0] if asked is None else asked
    if asked is not None:
        raise ServiceError(f"This calibration has one masked branch; there are no thresholds of “{asked}” alone.")
    return None
