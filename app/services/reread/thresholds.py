"""Which thresholds an audit can be read with at another lambda: a calibration belongs to one lambda."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from app.services.calibration.store import AnyCalibration, CalibrationStore
from app.services.calibration.thresholds import Thresholds, layout_of, own_notes
from app.services.errors import ServiceError
from app.services.policy_words import info_of
from app.services.views import AuditSettings
from app.services.views.rereading import CalibrationOffer, RereadThresholds
from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.policies.base import compared_certificate
from coft_core.policies.single_branch import factual_only
from db.records import CalibrationRecord, SessionRecord

NO_THRESHOLDS = "No threshold is applied in this audit, so only lambda can be changed."

_FREE = ("lam", "estimator", "source")
"""Fields of a fingerprint in which a calibration for another lambda may differ from the audit's."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Thresholds for a reading: the calibration at its alpha, and what may be claimed with it."""

    calibration: AnyCalibration | None
    told: RereadThresholds


class ThresholdChoice:
    """Chooses the calibration with which an audit is read."""

    def __init__(self, thresholds: Thresholds, store: CalibrationStore) -> None:
        """Wire to the stored calibrations."""
        self._thresholds = thresholds
        self._store = store

    def choose(self, record: SessionRecord, settings: AuditSettings, alike: Sequence[CalibrationRecord] = ()) -> Chosen:
        """The thresholds for some settings of a stored audit.

        The audit's own calibration counts wherever it fits, and at the audit's own lambda whether or not it does.
        Elsewhere one that was made for that lambda takes its place. Where there is none, the audit's own thresholds
        are read, and nothing counts as certified.

        Args:
            record: The audit.
            settings: Its settings with the lambda and alpha of the reading.
            alike: Calibrations of the same policy at any lambda, the best first; see :meth:`alike`.

        Raises:
            ServiceError: The calibration has been deleted.
            InvalidInputError: Alpha is outside (0, 1).
        """
        own = self._own(record, settings)
        if own is None:
            return Chosen(None, RereadThresholds("none", record.certificate, NO_THRESHOLDS))
        label = record.calibration_label
        if self._mismatch(record, settings, own) and settings.lam != record.lam:
            other = next(self._made_for(settings, alike), None)
            if other is not None:
                found, reading = other
                told = f"At this lambda the calibration “{found.name}” counts, which was made for it."
                return Chosen(
                    reading, RereadThresholds("other", "certified", told, found.id, found.name, own_notes(reading))
                )
        number = settings.calibration_id
        if differing := self._mismatch(record, settings, own):
            certificate = compared_certificate(own.fingerprint, _used(record, settings, own), accept_mismatch=True).text
            made = own.fingerprint.lam
            told = (
                f"Uncertified at this lambda: the calibration “{label}” was made for lambda {made:g}, and no stored "
                "calibration fits this audit here. Its thresholds are read all the same, but nothing counts as "
                "certified."
                if differing == ("lam",)
                else f"Uncertified: the calibration “{label}” belongs to another policy ({', '.join(differing)})."
            )
            return Chosen(own, RereadThresholds("mismatch", certificate, told, number, label, own_notes(own)))
        told = f"The thresholds of the audit’s own calibration “{label}” count."
        return Chosen(own, RereadThresholds("own", "certified", told, number, label, own_notes(own)))

    def offers(self, alike: Sequence[CalibrationRecord]) -> tuple[CalibrationOffer, ...]:
        """The best of the calibrations that fit an audit in everything but lambda, one for each lambda, by lambda."""
        best: dict[float, CalibrationRecord] = {}
        for found in alike:
            best.setdefault(found.lam, found)
        return tuple(CalibrationOffer(lam, best[lam].id, best[lam].name) for lam in sorted(best))

    def alike(self, record: SessionRecord, settings: AuditSettings) -> list[CalibrationRecord]:
        """Calibrations of an audit's policy at any lambda, its own first, then those of its estimator and source.

        An audit that applies no thresholds has none.
        """
        # Thresholds of the factual reading alone fit at every lambda, so that no other calibration is needed.
        if record.calibration_id is None or info_of(settings.policy).certified_in != "both":
            return []
        made = Fingerprint.from_dict(record.fingerprint)
        same = [
            found
            for found in self._store.list(str(record.fingerprint["model"]))
            if found.mask_layout == settings.mask_layout and _alike(Fingerprint.from_dict(found.fingerprint), made)
        ]

        def rank(found: CalibrationRecord) -> tuple[bool, bool, int]:
            kin = all(found.fingerprint[name] == record.fingerprint[name] for name in ("estimator", "source"))
            return found.id != settings.calibration_id, not kin, -found.id

        return sorted(same, key=rank)

    def _own(self, record: SessionRecord, settings: AuditSettings) -> AnyCalibration | None:
        if settings.calibration_id is None:
            return None
        if record.calibration_id is None:
            raise ServiceError(
                f"The calibration “{record.calibration_label}” of this audit has been deleted, so its thresholds "
                "cannot be read again; start a new audit with another calibration."
            )
        own = self._thresholds.of(settings)
        # Thresholds of another mask layout were never applied, see the audit's certificate.
        return own if own is not None and layout_of(own) == settings.mask_layout else None

    def _mismatch(self, record: SessionRecord, settings: AuditSettings, own: AnyCalibration) -> tuple[str, ...]:
        differences = own.fingerprint.differences(_used(record, settings, own))
        return tuple(name for name, _, _ in differences)

    def _made_for(
        self, settings: AuditSettings, alike: Sequence[CalibrationRecord]
    ) -> Iterator[tuple[CalibrationRecord, AnyCalibration]]:
        """Calibrations that fit at the settings' lambda, read at their alpha and for their group; the best first."""
        for found in alike:
            if found.lam != settings.lam:
                continue
            try:
                reading = self._thresholds.of(replace(settings, calibration_id=found.id))
            except (ServiceError, InvalidInputError):
                # It does not know the audit's group, or has too few contexts of it, so it does not fit.
                continue
            if reading is not None:
                yield found, reading


def _used(record: SessionRecord, settings: AuditSettings, calibration: AnyCalibration) -> Fingerprint:
    """The audit's fingerprint at the lambda of the settings, as the calibration would have to have it."""
    decoded = Fingerprint.from_dict(record.fingerprint)
    used = replace(decoded, lam=float(settings.lam), estimator=calibration.estimator, source=calibration.source)
    if info_of(settings.policy).certified_in == "factual" and isinstance(calibration, Calibration):
        return factual_only(calibration, used)
    return used


def _alike(first: Fingerprint, second: Fingerprint) -> bool:
    return all(name in _FREE for name, _, _ in first.differences(second))
