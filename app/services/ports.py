"""The services as the pages and the command line see them.

Every method that takes user input raises an exception derived from ``app.services.errors.ServiceError`` or
``coft_core.errors.CoftError`` whose text is one sentence fit to be shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from app.services.compare_ports import ComparedSets
from app.services.prompts.ports import PromptSets
from app.services.reread.ports import Rereads
from app.services.review_ports import Exports, Verdicts
from app.services.session_ports import Batches, Comparisons, Library, Swaps
from app.services.tuning.ports import Tunings
from app.services.views import (
    AuditSettings,
    AuditView,
    CalibrationEstimate,
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    ChainProgress,
    DriftReport,
    JobView,
    LeaveOneOut,
    LoadingPhase,
    MaskPreview,
    ModelView,
    Overhead,
    ParsedPromptSet,
    ParsedUserList,
    PromptPreview,
    ReadingRequest,
    RowError,
    RunUntil,
    SessionSummary,
    SettingsFit,
    Span,
    StartAudit,
    Step,
    UserListSummary,
    UserListView,
)


class Audits(Protocol):
    """Audit sessions: started, stepped, forked, reopened."""

    def model(self, name: str) -> ModelView:
        """Load (once) and describe a model."""

    def loading(self, name: str) -> Iterator[LoadingPhase]:
        """Load a model if need be, and tell of each phase as it begins."""

    @property
    def masked_families(self) -> tuple[str, ...]:
        """Families that are masked unless the settings say otherwise."""

    def detector(self, settings: AuditSettings) -> str:
        """Version of the detector that these settings choose, as in fingerprints."""

    def detect(self, text: str, settings: AuditSettings | None = None) -> tuple[Span, ...]:
        """Sensitive spans of a text, sorted and disjoint, suggested ones included."""

    def preview(self, prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
        """The prompt as the masked branch reads it."""

    def start(self, request: StartAudit) -> AuditView:
        """Begin a session without a step."""

    def view(self, session_id: int, branch_id: int | None = None) -> AuditView:
        """A session from the store; needs no model. Without a branch, the active one."""

    def progress(self, session_id: int, branch_id: int | None = None) -> ChainProgress:
        """What the steps so far say of a chain as a whole; cheap enough to be asked after every step."""

    def fit(self, settings: AuditSettings) -> SettingsFit:
        """How the settings and the calibration that they name agree; needs no model."""

    def adopt(self, settings: AuditSettings) -> AuditSettings:
        """The settings with everything that the calibration they name was made with; needs no model."""

    def step(self, session_id: int, branch_id: int | None = None) -> Step | None:
        """Generate one token; it is durable when this returns. None when the chain is finished."""

    def run(self, session_id: int, branch_id: int | None = None, until: RunUntil | None = None) -> Iterator[Step]:
        """Generate one durable step at a time: to the end, to :meth:`pause`, or to the step that meets a condition."""

    def pause(self, session_id: int) -> None:
        """Stop a running :meth:`run` of this session after its current step."""

    def fork(self, session_id: int, branch_id: int, index: int, token: int | str) -> AuditView:
        """Depart from a branch at a step (0-based) with another token: an id, or text that is one token."""

    def contributions(self, session_id: int, branch_id: int | None = None) -> LeaveOneOut:
        """What each masked span contributes to the sensitivity of each token of a chain; needs the model."""

    def overhead(self, session_id: int) -> Overhead:
        """Measured time per token of the session's policy against vanilla decoding; needs the model."""

    def sessions(self, search: str = "", limit: int = 200) -> tuple[SessionSummary, ...]:
        """Past sessions, newest first."""

    def delete(self, session_id: int) -> None:
        """Delete a session with everything that belongs to it."""


class Calibrations(PromptSets, Protocol):
    """Prompt sets and calibration runs."""

    def row_errors(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> tuple[RowError, ...]:
        """All that is wrong with a prompt set for a request, also what only the model can tell; loads the model."""

    def preview(
        self, prompts: ParsedPromptSet, request: CalibrationRequest, limit: int = 12
    ) -> tuple[PromptPreview, ...]:
        """The first rows with the spans that will be masked; needs no model."""

    def estimate(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> CalibrationEstimate:
        """How long the calibration will take, from a short trial; loads the model."""

    def submit(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> int:
        """Store the prompt set, start the calibration as a job, and return the job's id."""

    def resume(self, job_id: int) -> int:
        """Start a cancelled, failed or interrupted calibration again, from what it had done; the new job's id."""

    def list(self, model: str | None = None) -> tuple[CalibrationSummary, ...]:
        """Finished calibrations, newest first."""

    def view(self, calibration_id: int, reading: ReadingRequest | None = None) -> CalibrationView:
        """A calibration read as asked (as it was calibrated by default); needs no model."""

    def reweight(self, calibration_id: int, deployment: tuple[str, ...], name: str) -> int:
        """Store a calibration anew with weights estimated for other prompts; needs no model. The new one's id."""

    def drift(self, calibration_id: int) -> DriftReport:
        """What the audits that used a calibration say against it."""

    def export(self, calibration_id: int, folder: Path) -> Path:
        """Write a calibration as a file that the library and the command line load, and return its path."""

    def delete(self, calibration_id: int) -> None:
        """Delete a calibration; sessions that used it keep its label."""


class UserLists(Protocol):
    """Reviewers' word lists."""

    def parse(
        self, path: Path, filename: str | None = None, action: str = "mask", family: str = "other"
    ) -> ParsedUserList:
        """Read a CSV or TXT word list; problems of single lines are data, an unreadable file is an error."""

    def add(self, name: str, parsed: ParsedUserList, replace: bool = False) -> UserListView:
        """Store a word list whole, or refuse it."""

    def list(self) -> tuple[UserListSummary, ...]:
        """All word lists in the order of their names."""

    def view(self, user_list_id: int) -> UserListView:
        """A word list with its terms."""

    def named(self, name: str) -> UserListView:
        """The word list of a name."""

    def write_csv(self, user_list_id: int, folder: Path) -> Path:
        """Write a word list into a folder, atomically, and return its path."""

    def delete(self, user_list_id: int) -> None:
        """Delete a word list that neither a calibration nor an unfinished job uses."""


class Reports(Protocol):
    """Exports."""

    def csv(self, session_id: int, branch_id: int | None = None) -> str:
        """The report of a session (all its branches, or one) as RFC 4180 CSV text."""

    def write_csv(self, session_id: int, folder: Path) -> Path:
        """Write the report into a folder, atomically, and return its path."""


class Jobs(Protocol):
    """Background work."""

    def get(self, job_id: int) -> JobView:
        """A job's state."""

    def list(self, kind: str | None = None, limit: int = 20) -> tuple[JobView, ...]:
        """Jobs, newest first."""

    def cancel(self, job_id: int) -> None:
        """Ask a job to stop; it stops at its next check."""


class Services(Protocol):
    """Everything that a page may call."""

    @property
    def audits(self) -> Audits:
        """Audit sessions."""

    @property
    def calibrations(self) -> Calibrations:
        """Prompt sets and calibration runs."""

    @property
    def user_lists(self) -> UserLists:
        """Word lists."""

    @property
    def reports(self) -> Reports:
        """Reports as tables."""

    @property
    def exports(self) -> Exports:
        """Reports as JSON, HTML, tables and evidence bundles."""

    @property
    def verdicts(self) -> Verdicts:
        """Verdicts of reviewers."""

    @property
    def jobs(self) -> Jobs:
        """Background work."""

    @property
    def library(self) -> Library:
        """Past sessions."""

    @property
    def batches(self) -> Batches:
        """Many prompts at once."""

    @property
    def swaps(self) -> Swaps:
        """Exchanged attributes."""

    @property
    def tunings(self) -> Tunings:
        """Methods at their best strength."""

    @property
    def comparisons(self) -> Comparisons:
        """Chains beside each other."""

    @property
    def compared_sets(self) -> ComparedSets:
        """Prompt sets under several settings."""

    @property
    def rereads(self) -> Rereads:
        """Audits read at another lambda or alpha."""
