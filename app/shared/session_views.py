"""Stored audit sessions as pages see them; no model is needed."""

from __future__ import annotations

from dataclasses import fields

from app.shared.audits import AuditSettings, AuditView, ChainProgress, preview_from_json, settings_from_json
from app.shared.kept_steps import computations_of, session_noise
from app.shared.planning import Detectors
from app.shared.policies import certifies
from app.shared.thinking import thinking_view
from app.shared.thresholds import Thresholds, bins_for
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import ChainCertificate, certify_chain
from coft_core.conformal.drift import DriftReport
from coft_core.effects import masked_words
from coft_core.types import Certificate, Step
from db.audits import BranchRecord, SessionRecord
from db.sessions import SessionsRepository
from db.types import NotFoundError


class AuditViews:
    """Puts together what the store knows of a session and of the calibration that it used."""

    def __init__(self, sessions: SessionsRepository, thresholds: Thresholds, detectors: Detectors) -> None:
        self._sessions = sessions
        self._thresholds = thresholds
        self._detectors = detectors

    def view(self, record: SessionRecord, branch: BranchRecord) -> AuditView:
        """A session with the chain of one branch."""
        settings = settings_from_json(record.policy_settings["settings"])
        steps = self._sessions.chain(branch.id)
        preview = preview_from_json(record.policy_settings["preview"])
        reading = self._applied(record, settings)
        progress = self.progress(record, branch, steps)
        return AuditView(
            **{item.name: getattr(progress, item.name) for item in fields(progress)},
            session_id=record.id,
            name=record.name,
            prompt=record.prompt,
            spans=record.spans,
            settings=settings,
            model=str(record.policy_settings["model_label"]),
            preview=preview,
            branch_id=branch.id,
            branches=self._sessions.outlines(record.id),
            steps=steps,
            fingerprint_digest=record.fingerprint_digest,
            calibration=self._thresholds.summary(record.calibration_id),
            user_list=str(record.policy_settings.get("user_list", "")),
            bins=() if reading is None else bins_for(reading, preview.branches[1:]),
            warnings=record.warnings + self._gone(record, settings),
            created_at=record.created_at,
            updated_at=record.updated_at,
            drift=self.drift(record),
        )

    def progress(self, record: SessionRecord, branch: BranchRecord, steps: tuple[Step, ...]) -> ChainProgress:
        """What the steps of a branch say of its chain as a whole."""
        return ChainProgress(
            finished=branch.finished,
            certificate=Certificate.read(record.certificate).counted(steps).text,
            chain=self.chain(record, steps, branch.finished),
            noise=session_noise(record),
            computed=computations_of(record),
            masked=masked_words(record.prompt, record.spans),
            thinking=thinking_view(steps, record.policy_settings),
        )

    def chain(self, record: SessionRecord, steps: tuple[Step, ...], finished: str | None) -> ChainCertificate | None:
        """The certificate of a whole chain; None without steps, without calibration, or with factorized masks."""
        reading = self._applied(record, settings_from_json(record.policy_settings["settings"]))
        if reading is None or reading.layout == "factorized" or not steps:
            return None
        return certify_chain(reading, steps, finished, record.policy_settings.get("vocabulary"))

    def drift(self, record: SessionRecord) -> DriftReport | None:
        """What the audits so far say against a session's calibration; None without one."""
        return None if record.calibration_id is None else self._thresholds.drift(record.calibration_id)

    def _applied(self, record: SessionRecord, settings: AuditSettings) -> Calibration | None:
        """The thresholds that a session was decoded with; None if it has none, or if they are deleted."""
        if record.calibration_id is None:
            return None
        try:
            reading = self._thresholds.of(settings)
        except NotFoundError:
            # deleted since the record was read
            return None
        return reading if reading is not None and reading.layout == settings.mask_layout else None

    def _gone(self, record: SessionRecord, settings: AuditSettings) -> tuple[str, ...]:
        reasons = []
        if settings.calibration_id is not None and certifies(settings) and record.calibration_id is None:
            reasons.append(f"The calibration “{record.calibration_label}” has been deleted.")
        if self._detectors.list_is_gone(settings):
            listed = record.policy_settings.get("user_list", "")
            reasons.append(f"The word list “{listed}” has been deleted or replaced.")
        return tuple(reasons)
