"""Reports of stored sessions: tables, JSON, HTML and the evidence bundle; no model is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.report.bundle import (
    LOGITS_FILE,
    Evidence,
    PromptsOfCalibrations,
    bundle_of,
    logits_file,
    tables_zip,
)
from app.report.bundle import PROMPTS_FILE as PROMPTS
from app.report.document import document_of, report_text, thresholds_of
from app.report.html import render
from app.report.tables import SessionData, steps_csv
from app.shared.audits import settings_from_json
from app.shared.errors import ServiceError
from app.shared.files import write_bytes
from app.shared.session_views import AuditViews
from app.shared.thresholds import Thresholds
from app.shared.wiring import Services
from db.audits import SessionRecord
from db.calibrations import CalibrationsRepository
from db.sessions import SessionsRepository
from db.types import NotFoundError
from db.verdicts import AnnotationsRepository

WITH_PROMPTS = "bundle-with-prompts"
SUFFIXES = {
    "csv": ".csv",
    "json": ".json",
    "html": ".html",
    "zip": ".zip",
    "bundle": "-bundle.zip",
    WITH_PROMPTS: "-bundle-with-prompts.zip",
}
"""Kinds of exports with the ends of their files' names."""


class ReportService:
    """Writes what leaves the program of stored sessions; the same session gives the same bytes."""

    def __init__(
        self,
        sessions: SessionsRepository,
        log: AnnotationsRepository,
        views: AuditViews,
        runs: CalibrationsRepository,
        thresholds: Thresholds,
        made_of: PromptsOfCalibrations,
    ) -> None:
        """Wire the service.

        Args:
            sessions: The store of sessions.
            log: Their verdict logs.
            views: What is said of chains and calibrations.
            runs: The store of calibrations, for their values.
            thresholds: Calibrations as sessions read them.
            made_of: Prompts that calibrations were made of.
        """
        self._sessions = sessions
        self._log = log
        self._views = views
        self._runs = runs
        self._thresholds = thresholds
        self._made_of = made_of

    @classmethod
    def wired(cls, services: Services) -> ReportService:
        """Built from the program's services."""
        return cls(
            services[SessionsRepository], services[AnnotationsRepository], services[AuditViews],
            services[CalibrationsRepository], services[Thresholds], services[PromptsOfCalibrations],
        )  # fmt: skip

    def data(self, session_id: int, branch_id: int | None = None) -> SessionData:
        """All that is stored of a session, or of one of its branches.

        Raises:
            ServiceError: The branch is another session's.
        """
        record = self._sessions.get(session_id)
        branches = self._sessions.branches(session_id)
        listed = [branch for branch in branches if branch_id in (None, branch.id)]
        if not listed:
            raise ServiceError(f"Branch {branch_id} does not belong to session {session_id}.")
        chains = {branch.id: self._sessions.chain(branch.id) for branch in listed}
        drift = self._views.drift(record)
        return SessionData(
            record=record,
            branches=branches,
            chains=chains,
            log=self._log.history(session_id),
            certificates={
                branch.id: self._views.chain(record, chains[branch.id], branch.finished) for branch in listed
            },
            drift=None if drift is None else drift.status,
        )

    def csv(self, session_id: int, branch_id: int | None = None) -> str:
        """The report as CSV text.

        Steps are listed branch by branch, each stored step once; with a branch given, the whole chain of that branch
        from its first step, ancestors' steps included.
        """
        return steps_csv(self.data(session_id, branch_id), whole_chains=branch_id is not None)

    def json(self, session_id: int) -> str:
        """The report as a typed, versioned JSON document."""
        return report_text(self._evidence(session_id).report)

    def html(self, session_id: int) -> str:
        """The report for people: one HTML file that needs nothing else, also to be printed."""
        evidence = self._evidence(session_id)
        return render(evidence.data, evidence.report)

    def bundle(self, session_id: int, with_prompts: bool = False) -> bytes:
        """The evidence bundle: everything that a third party needs to recompute the report, with digests of it all.

        Args:
            session_id: The session.
            with_prompts: Also the prompts of its calibration, so that this can be made again.

        Raises:
            ServiceError: These prompts are asked for and are not stored.
        """
        evidence = self._evidence(session_id, with_logits=True)
        if with_prompts:
            prompts = self._made_of.file(evidence.data.record)
            evidence = replace(evidence, extra=(*evidence.extra, (PROMPTS, prompts)))
        return bundle_of(evidence)

    def content(self, session_id: int, kind: str) -> bytes:
        """An export as a file's content.

        Args:
            session_id: The session.
            kind: ``csv``, ``json``, ``html``, ``zip``, ``bundle`` or ``bundle-with-prompts``.

        Raises:
            ServiceError: There is no such kind.
        """
        if kind in ("bundle", WITH_PROMPTS):
            return self.bundle(session_id, with_prompts=kind == WITH_PROMPTS)
        if kind == "zip":
            return tables_zip(self.data(session_id))
        texts = {"csv": self.csv, "json": self.json, "html": self.html}
        if kind not in texts:
            raise ServiceError(f"There is no export {kind!r}; choose {', '.join(SUFFIXES)}.")
        # A lone surrogate has no UTF-8; only the JSON file, which is ASCII, keeps it.
        return texts[kind](session_id).encode("utf-8", "replace")

    def write(self, session_id: int, kind: str, folder: Path) -> Path:
        """Write an export into a folder, atomically, and return its path.

        Raises:
            ServiceError: There is no such kind.
        """
        content = self.content(session_id, kind)
        return write_bytes(folder / f"coft-audit-session-{session_id}{SUFFIXES[kind]}", content)

    def _evidence(self, session_id: int, with_logits: bool = False) -> Evidence:
        data = self.data(session_id)
        settings = settings_from_json(data.record.policy_settings["settings"])
        stored = self._calibration(data.record)
        reading = None if stored is None else self._thresholds.of(settings)
        thresholds = None
        if stored is not None and reading is not None:
            thresholds = thresholds_of(reading, stored, settings.mask_layout, settings.group)
        report = document_of(data, self._sessions.times(session_id), thresholds)
        extra = self._logits(data) if with_logits else ()
        return Evidence(data, report, None if reading is None else stored, extra)

    def _calibration(self, record: SessionRecord) -> bytes | None:
        """The calibration's file; None without one, or where it was deleted, which the report then says."""
        if record.calibration_id is None:
            return None
        try:
            return self._runs.values(record.calibration_id)
        except NotFoundError:
            return None

    def _logits(self, data: SessionData) -> tuple[tuple[str, bytes], ...]:
        kept = [
            (branch.id, index, logits)
            for branch in data.branches
            for index, logits in sorted(self._sessions.logits(branch.id, branch.fork_step or 0).items())
        ]
        return ((LOGITS_FILE, logits_file(kept)),) if kept else ()
