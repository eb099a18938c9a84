"""Reports of stored sessions: tables, JSON, HTML, formal reports and the evidence bundle; no model is needed."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from app.calibrate.service import request_from_json
from app.report.bundle import (
    CALIBRATION,
    LOGITS_FILE,
    PROMPTS_FILE,
    REPORT,
    CalibrationSource,
    bundle_digest,
    bundle_of,
    logits_file,
    pack,
    prompts_file,
    tables_of,
)
from app.report.decided import (
    DECISIONS,
    RATES,
    ROWS,
    decided_bundle,
    decided_files,
    decided_fragment,
    decided_html,
    formal_decided,
)
from app.report.document import VERSION, ReportPart, document_of, report_text, thresholds_of
from app.report.formal import formal_batch, formal_session, pdf_of
from app.report.html import render
from app.report.inspect_log import inspect_log
from app.report.results_bundle import results_bundle
from app.report.signing import Signer
from app.report.tables import SessionData, steps_csv
from app.review.service import VerdictService
from app.shared.audits import settings_from_json
from app.shared.decisions import DecidedRun
from app.shared.errors import ServiceError
from app.shared.files import write_bytes
from app.shared.formal_reports import AuditedBatch, Statement
from app.shared.kept_controls import KeptControls
from app.shared.planning import detector_parts, stored_list
from app.shared.results.formats import SHARED, SIGNED, SharedFormat, shared_text
from app.shared.results.publication import Publication
from app.shared.results.record import Result, Results
from app.shared.session_views import AuditViews
from app.shared.thresholds import Thresholds
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from coft_core.stored_logits import holds_all
from db.audits import SessionRecord
from db.calibrations import CalibrationRecord, CalibrationsRepository
from db.imports import ImportsRepository
from db.jobs import JobsRepository
from db.prompt_sets import PromptSetsRepository
from db.sessions import SessionsRepository
from db.types import NotFoundError
from db.user_lists import UserListsRepository

Read = tuple[bytes, Calibration]
"""The file of a calibration, and the calibration as a session reads it."""

WITH_PROMPTS = "bundle-with-prompts"
INSPECT = "inspect"


class Export(NamedTuple):
    """A kind of export: how its files end, its name, and what it is for."""

    suffix: str
    title: str
    about: str


EXPORTS = {
    "csv": Export(".csv", "CSV", "One table, one row a token. For a spreadsheet."),
    "json": Export(".json", "JSON", "Everything in the report as data with a fixed form. For other programs."),
    "html": Export(".html", "HTML report", "Everything to read, print or hand on: one file that needs nothing else."),
    "zip": Export(
        ".zip",
        "CSV bundle (zip)",
        "Steps, candidate words and the verdict log as three tables. For your own analysis.",
    ),
    "bundle": Export(
        "-bundle.zip", "Evidence bundle", "The report with all that a third party needs to recompute and check it."
    ),
    WITH_PROMPTS: Export(
        "-bundle-with-prompts.zip",
        "Evidence bundle with calibration prompts",
        "The same with the prompts of its calibration, so that this can be made again. They may be confidential.",
    ),
    "formal": Export(
        "-formal.html", "Formal report (HTML)", "One page with the finding, and annexes for the law. You sign it."
    ),
    "pdf": Export("-formal.pdf", "Formal report (PDF)", "The same to file or to send."),
    INSPECT: Export(
        ".eval", "Inspect log", "A sample for each branch, for Inspect's viewer. Needs the package inspect-ai."
    ),
}
"""Kinds of exports."""

DECIDED = {"csv": RATES, "rows": ROWS, "json": DECISIONS, "html": "", "formal": "", "pdf": "", "bundle": ""}
"""Kinds of exports of decisions, and of which file of a bundle they are."""

FORMAL = ("formal", "pdf")
"""Those that an auditor signs with a name and a question."""


class ReportService:
    """Writes what leaves the program of stored sessions; the same session gives the same bytes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions = services[SessionsRepository]
        self._imports, self._controls = services[ImportsRepository], services[KeptControls]
        self._verdicts = services[VerdictService]
        self._views = services[AuditViews]
        self._thresholds = services[Thresholds]
        self._runs = services[CalibrationsRepository]
        self._jobs = services[JobsRepository]
        self._prompt_sets = services[PromptSetsRepository]
        self._user_lists = services[UserListsRepository]

    def data(self, session_id: int, branch_id: int | None = None) -> SessionData:
        """All that is stored of a session, or of one of its branches."""
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
            log=self._verdicts.whole_history(session_id),
            certificates={
                branch.id: self._views.chain(record, chains[branch.id], branch.finished) for branch in listed
            },
            drift=None if drift is None else drift.status,
            controls=self._controls.of_session(session_id),
        )

    def csv(self, session_id: int, branch_id: int | None = None) -> str:
        """The report as CSV text.

        Steps are listed branch by branch, each stored step once; with a branch given, the whole chain of that branch
        from its first step, ancestors' steps included.
        """
        return steps_csv(self.data(session_id, branch_id), whole_chains=branch_id is not None)

    def json(self, session_id: int) -> str:
        """The report as a typed, versioned JSON document; that of an imported session is the one that came with it."""
        if self._sessions.origin(session_id) is not None:
            return self._imported(session_id, REPORT).decode("ascii")
        return report_text(self._reported(session_id)[1])

    def html(self, session_id: int) -> str:
        """The report for people: one HTML file that needs nothing else, also to be printed."""
        data, document, _ = self._reported(session_id)
        return render(data, document)

    def formal(self, session_id: int, statement: Statement) -> str:
        """The formal report of a session: one page and annexes, as an HTML file that needs nothing else."""
        data, document, calibration = self._reported(session_id)
        reading = None if calibration is None else calibration[1]
        return formal_session(data, document, reading, self._views.drift(data.record), statement)

    def formal_batch(self, batch: AuditedBatch, statement: Statement, kind: str) -> bytes:
        """The formal report of a batch."""
        if kind not in FORMAL:
            raise ServiceError(f"There is no formal report {kind!r}; choose {', '.join(FORMAL)}.")
        sessions = self._found(batch.name, batch.sessions)
        record = sessions[0].record
        calibration = self._calibration(record)
        reading = None if calibration is None else calibration[1]
        page = formal_batch(batch, sessions, reading, self._views.drift(record), statement)
        return _encoded(page, kind)

    def decided(self, run: DecidedRun, kind: str, statement: Statement) -> tuple[str, bytes]:
        """An export of decisions: how its file ends, and its content."""
        if kind not in DECIDED:
            raise ServiceError(f"There is no export {kind!r} of decisions; choose {', '.join(DECIDED)}.")
        if kind in FORMAL:
            content = _encoded(formal_decided(run, statement), kind)
        elif kind == "html":
            content = decided_html(run).encode("utf-8", "replace")
        elif kind == "bundle":
            content = decided_bundle(run, self._services[Signer].sign)
        else:
            content = decided_files(run)[DECIDED[kind]]
        return (f"-{DECIDED[kind]}" if DECIDED[kind] else EXPORTS[kind].suffix), content

    def decided_fragment(self, run: DecidedRun) -> Markup:
        """What a page shows of decisions: the finding, the picture, and what they are compared with."""
        return decided_fragment(run)

    def inspect_batch(self, name: str, sessions: Sequence[int], results: Sequence[Result] = ()) -> bytes:
        """The sessions of a batch as a log of Inspect; those that have been deleted are left out."""
        return inspect_log(self._found(name, sessions), name, results)

    def weights_digest(self, session_id: int) -> str:
        """Digest of the weights that a session was read with; empty where it is not known."""
        with suppress(NotFoundError):
            return str(self._sessions.get(session_id).fingerprint.get("weights") or "")
        return ""

    def shared(self, results: Results, form: SharedFormat, told: Publication) -> bytes:
        """Results as a file for other programs; see :data:`SHARED`."""
        if form not in SHARED:
            raise ServiceError(f"There is no format {form!r}; choose one of {', '.join(SHARED)}.")
        if not results.results:
            raise ServiceError(f"The {results.kind} “{results.name}” has no figure yet; run it to its end first.")
        signed = results_bundle(results, self._services[Signer].sign) if form in SIGNED else b""
        if form == "signed":
            return signed
        return shared_text(results, form, told, VERSION, bundle_digest(signed) if signed else "")

    def bundle(self, session_id: int, with_prompts: bool = False) -> bytes:
        """The evidence bundle: everything that a third party needs to recompute the report, with digests of it all.

        That of an imported session is the one that came, byte for byte, so that its signature still holds.
        """
        if self._sessions.origin(session_id) is not None:
            if with_prompts:
                self._imported(session_id, PROMPTS_FILE)
            return self._imports.bundle(session_id)
        data, document, calibration = self._reported(session_id)
        further = {} if calibration is None else {CALIBRATION: calibration[0]}
        if logits := [
            (branch.id, index, kept)
            for branch in data.branches
            for index, kept in sorted(self._sessions.logits(branch.id, branch.fork_step or 0).items())
            if holds_all(kept)
        ]:
            further[LOGITS_FILE] = logits_file(logits)
        if with_prompts:
            further[PROMPTS_FILE] = self._prompts(data.record)
        return bundle_of(data, document, further, self._services[Signer].sign)

    def content(self, session_id: int, kind: str, statement: Statement | None = None) -> bytes:
        """An export as a file's content."""
        if kind in FORMAL:
            return _encoded(self.formal(session_id, statement or Statement()), kind)
        if kind in ("bundle", WITH_PROMPTS):
            return self.bundle(session_id, with_prompts=kind == WITH_PROMPTS)
        if kind == INSPECT:
            data = self.data(session_id)
            return inspect_log([data], data.record.name)
        if kind == "zip":
            return pack(tables_of(self.data(session_id)))
        texts = {"csv": self.csv, "json": self.json, "html": self.html}
        if kind not in texts:
            raise ServiceError(f"There is no export {kind!r}; choose {', '.join(EXPORTS)}.")
        # A lone surrogate has no UTF-8; only the JSON file, which is ASCII, keeps it.
        return texts[kind](session_id).encode("utf-8", "replace")

    def write(self, session_id: int, kind: str, folder: Path, statement: Statement | None = None) -> Path:
        """Write an export into a folder, atomically, and return its path; see :meth:`content`."""
        content = self.content(session_id, kind, statement)
        return write_bytes(folder / f"coft-audit-session-{session_id}{EXPORTS[kind].suffix}", content)

    def _imported(self, session_id: int, file: str) -> bytes:
        """A file of the bundle that an imported session came in."""
        with zipfile.ZipFile(io.BytesIO(self._imports.bundle(session_id))) as archive:
            if file not in archive.namelist():
                raise ServiceError(
                    f"Session {session_id} was imported with a bundle without {file}; choose another export."
                )
            return archive.read(file)

    def _found(self, batch: str, numbers: Sequence[int]) -> list[SessionData]:
        """Sessions of a batch that are still there, with chains and log, without what certifies them."""
        found = []
        for number in numbers:
            with suppress(NotFoundError):
                record, branches = self._sessions.get(number), self._sessions.branches(number)
                chains = {branch.id: self._sessions.chain(branch.id) for branch in branches}
                log, controls = self._verdicts.whole_history(number), self._controls.of_session(number)
                found.append(SessionData(record, branches, chains, log, {}, None, controls))
        if not found:
            raise ServiceError(f"The batch “{batch}” has no finished session to report; run it first.")
        return found

    def _reported(self, session_id: int) -> tuple[SessionData, ReportPart, Read | None]:
        """A session with its document and its calibration."""
        data = self.data(session_id)
        settings, thresholds = settings_from_json(data.record.policy_settings["settings"]), None
        if (calibration := self._calibration(data.record)) is not None:
            stored, reading = calibration
            thresholds = thresholds_of(reading, stored, settings.mask_layout, settings.group)
        return data, document_of(data, self._sessions.times(session_id), thresholds), calibration

    def _calibration(self, record: SessionRecord) -> Read | None:
        """The calibration; None without one, or where it was deleted, which the report then says."""
        if record.calibration_id is None:
            return None
        try:
            stored = self._runs.values(record.calibration_id)
        except NotFoundError:
            return None
        reading = self._thresholds.of(settings_from_json(record.policy_settings["settings"]))
        return None if reading is None else (stored, reading)

    def _prompts(self, record: SessionRecord) -> bytes:
        """The prompts of a session's calibration as a bundle holds them."""
        if record.calibration_id is None:
            raise ServiceError(
                f"Session {record.id} has no calibration whose prompts could be exported; choose the bundle without."
            )
        run = self._runs.get(record.calibration_id)
        try:
            return self._prompts_of(run)
        except NotFoundError as error:
            raise ServiceError(
                f"The prompts of the calibration “{run.name}” are no longer stored; choose the bundle without them."
            ) from error

    def _prompts_of(self, run: CalibrationRecord) -> bytes:
        job = None if run.job_id is None else self._jobs.get(run.job_id)
        if job is None or run.prompt_set_id is None or "request" not in job.payload:
            raise ServiceError(
                f"The calibration “{run.name}” was not made here from a prompt set, so its prompts are not stored; "
                "choose the bundle without them."
            )
        parts = detector_parts(str(run.fingerprint["detector"]))
        request = request_from_json(job.payload["request"])
        # The program's own choice of families may be another one by now.
        request = request if parts is None else replace(request, masked_families=parts.masked_families)
        listed = None if request.user_list_id is None else stored_list(self._user_lists, request.user_list_id)
        rows = tuple(self._prompt_sets.rows(run.prompt_set_id))
        return prompts_file(CalibrationSource(request, rows, listed), self._prompt_sets.get(run.prompt_set_id))


def _encoded(page: str, kind: str) -> bytes:
    """A formal report as the kind of file that is asked for."""
    return pdf_of(page) if kind == "pdf" else page.encode("utf-8", "replace")
