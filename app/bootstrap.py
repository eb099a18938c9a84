"""The one place that wires the program: its features, and the services that these call.

A service is built, and what it needs imported, when it is first used, so that a command that only reads the store
does not wait for the libraries that run models.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from app.audit.reread_service import RereadService
    from app.audit.service import AuditService
    from app.batch.service import BatchService
    from app.calibrate.service import CalibrationService
    from app.compare.service import ComparisonService
    from app.compare.sets import SetComparisonService
    from app.lists.service import UserListService
    from app.report.service import ExportService
    from app.report.tables import ReportService
    from app.report.verify.run import BundleVerifier
    from app.review.service import VerdictService
    from app.sessions.service import SessionLibrary
    from app.settings import Settings
    from app.shared.calibrations import CalibrationStore
    from app.shared.jobs import JobRunner, JobService
    from app.shared.model_host import ModelHost
    from app.shared.operations import Operation
    from app.shared.planning import Detectors, Planner
    from app.shared.rollouts import RolloutPool
    from app.shared.thresholds import Thresholds
    from app.swap.service import SwapService
    from app.tune.service import TuningService
    from coft_core.model.language_model import LanguageModel
    from coft_core.text.detection import SpanDetector
    from db.batches import BatchesRepository
    from db.calibrations import CalibrationsRepository
    from db.comparisons import ComparisonsRepository
    from db.database import Database
    from db.jobs import JobsRepository
    from db.prompt_sets import PromptSetsRepository
    from db.sessions import SessionsRepository
    from db.user_lists import UserListsRepository
    from db.verdicts import AnnotationsRepository

EMBEDDED_CALIBRATION = ("models", "demo", "calibration.zip")
SILENT_FOR = timedelta(minutes=5)
"""Time without a sign of life after which a command that may run beside a server takes a job for left behind."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A folder of the program, whose module ``operations`` declares what it does.

    Attributes:
        name: The folder's name.
        commands: What its commands are for, by their first word.
    """

    name: str
    commands: Mapping[str, str]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What it does."""
        from app.shared.operations import operations_of

        return operations_of(importlib.import_module(f"app.{self.name}.operations"))


FEATURES = (
    Feature("audit", {"audit": "audit one prompt and write its report",
                      "policies": "list the decoding methods and their parameters",
                      "reread": "read a stored audit at another lambda or alpha, without the model"}),
    Feature("compare", {"compare": "put stored audits, or branches of one, beside each other",
                        "compare-set": "run every prompt of a file under several policies, and compare"}),
    Feature("tune", {"tune": "sweep the strength of methods and keep each one's best point",
                     "tunings": "list finished tunings, or show one"}),
    Feature("batch", {"batch": "audit many prompts with the same settings, and sum them up by group"}),
    Feature("calibrate", {"calibrate": "calibrate on a CSV or JSONL prompt set, or resume a calibration",
                          "calibrations": "list, show, compare, export, reweight or delete calibrations"}),
    Feature("lists", {"lists": "add, show or remove word lists"}),
    Feature("sessions", {"sessions": "list or delete past audits"}),
    Feature("report", {"report": "export a past audit",
                       "verify": "check an evidence bundle (.zip) or a report (.json): recompute what it says"}),
    Feature("swap", {"swap": "exchange an attribute in a prompt and compare what follows"}),
    Feature("review", {"verdicts": "give, show, compare and check verdicts"}),
)  # fmt: skip


class Services:
    """Everything that a page or a command may call."""

    def __init__(
        self, settings: Settings, closing: ExitStack, owns_store: bool, loader: Callable[..., LanguageModel] | None
    ) -> None:
        """Nothing is opened yet; ``closing`` closes what is."""
        self._settings = settings
        self._closing = closing
        self._owns_store = owns_store
        self._loader = loader

    @cached_property
    def sessions(self) -> SessionsRepository:
        """Past audits as they are stored, which takes none of the libraries that run models."""
        from db.sessions import SessionsRepository

        return SessionsRepository(self._database)

    @cached_property
    def audits(self) -> AuditService:
        """Audits, token by token."""
        from app.audit.service import AuditService

        largest = self._settings.full_logits_kb
        return AuditService(self.sessions, self._thresholds, self._host, self._detectors, self._pool, largest)

    @cached_property
    def rereads(self) -> RereadService:
        """Stored audits at other settings."""
        from app.audit.reread_service import RereadService

        return RereadService(self.sessions, self._thresholds, self._store, self.audits, self._host)

    @cached_property
    def calibrations(self) -> CalibrationService:
        """Calibrations."""
        from app.calibrate.service import CalibrationService
        from db.jobs import LedgersRepository

        return CalibrationService(
            self._store, self._prompt_sets, self.sessions, self._jobs, LedgersRepository(self._database),
            self.runner, self._host, self._detectors, max_upload_bytes=self._largest_upload,
        )  # fmt: skip

    @cached_property
    def comparisons(self) -> ComparisonService:
        """Audits beside each other."""
        from app.compare.service import ComparisonService

        return ComparisonService(self.sessions, self.audits, self._measured)

    @cached_property
    def compared_sets(self) -> SetComparisonService:
        """Prompt sets under several policies."""
        from app.compare.sets import SetComparisonService

        return SetComparisonService(self._measured, self._batches, self._prompt_sets, self.jobs, self.batches)

    @cached_property
    def tunings(self) -> TuningService:
        """The strength of methods."""
        from app.tune.service import TuningService

        return TuningService(self._jobs, self.runner, self._host, self._detectors, self._largest_upload)

    @cached_property
    def swaps(self) -> SwapService:
        """Attribute swaps."""
        from app.swap.service import SwapService

        return SwapService(self.audits, self._planner, self._host, self._pool)

    @cached_property
    def batches(self) -> BatchService:
        """Many prompts with the same settings."""
        from app.batch.service import BatchService

        return BatchService(
            self._batches, self._prompt_sets, self.runner, self.jobs, self.audits, self._thresholds, self._host,
            self._planner, self._largest_upload,
        )  # fmt: skip

    @cached_property
    def library(self) -> SessionLibrary:
        """Past audits."""
        from app.sessions.service import SessionLibrary
        from db.library import LibraryRepository

        entries = LibraryRepository(self._database)
        return SessionLibrary(entries, self.sessions, self.audits, self.reports, self._detectors)

    @cached_property
    def verdicts(self) -> VerdictService:
        """Verdicts."""
        from app.review.service import VerdictService

        return VerdictService(self.sessions, self._log)

    @cached_property
    def user_lists(self) -> UserListService:
        """Word lists."""
        from app.lists.service import UserListService

        return UserListService(
            self._lists, self._runs, self._jobs, self._batches, max_upload_bytes=self._largest_upload
        )

    @cached_property
    def reports(self) -> ReportService:
        """Tables of past audits."""
        from app.report.tables import ReportService
        from app.shared.session_views import AuditViews

        views = AuditViews(self.sessions, self._thresholds, self._detectors)
        return ReportService(self.sessions, self._log, views)

    @cached_property
    def exports(self) -> ExportService:
        """Reports of past audits."""
        from app.report.bundle import PromptsOfCalibrations
        from app.report.service import ExportService

        prompts = PromptsOfCalibrations(self._runs, self._jobs, self._prompt_sets, self.user_lists)
        return ExportService(self.reports, self.sessions, self._runs, self._thresholds, prompts)

    @cached_property
    def verifier(self) -> BundleVerifier:
        """What verifies reports from elsewhere; it opens no store, and loads a model only for a replay."""
        from app.report.verify.run import BundleVerifier

        return BundleVerifier(self._model_host(faster_steps="off"), self._detector)

    @cached_property
    def jobs(self) -> JobService:
        """Background jobs."""
        from app.shared.jobs import JobService

        return JobService(self.runner, self._jobs, self._prompt_sets)

    @cached_property
    def runner(self) -> JobRunner:
        """What runs background jobs; those that an ended process left behind are found when it is first used."""
        from app.shared.jobs import JobRunner

        runner = self._closing.enter_context(JobRunner(self._database))
        runner.recover(None if self._owns_store else SILENT_FOR)
        return runner

    @cached_property
    def _database(self) -> Database:
        from db.database import Database, default_database_url

        return self._closing.enter_context(Database(self._settings.database_url or default_database_url()))

    @cached_property
    def _runs(self) -> CalibrationsRepository:
        from db.calibrations import CalibrationsRepository

        return CalibrationsRepository(self._database)

    @cached_property
    def _jobs(self) -> JobsRepository:
        from db.jobs import JobsRepository

        return JobsRepository(self._database)

    @cached_property
    def _prompt_sets(self) -> PromptSetsRepository:
        from db.prompt_sets import PromptSetsRepository

        return PromptSetsRepository(self._database)

    @cached_property
    def _batches(self) -> BatchesRepository:
        from db.batches import BatchesRepository

        return BatchesRepository(self._database)

    @cached_property
    def _measured(self) -> ComparisonsRepository:
        from db.comparisons import ComparisonsRepository

        return ComparisonsRepository(self._database)

    @cached_property
    def _lists(self) -> UserListsRepository:
        from db.user_lists import UserListsRepository

        return UserListsRepository(self._database)

    @cached_property
    def _log(self) -> AnnotationsRepository:
        from db.verdicts import AnnotationsRepository

        return AnnotationsRepository(self._database)

    @cached_property
    def _store(self) -> CalibrationStore:
        """The calibrations, with the one that comes with the program."""
        from app.shared.calibrations import CalibrationStore
        from coft_core.assets import assets_path

        store = CalibrationStore(self._runs)
        store.install_embedded(assets_path(*EMBEDDED_CALIBRATION))
        return store

    @cached_property
    def _thresholds(self) -> Thresholds:
        from app.shared.thresholds import Thresholds

        return Thresholds(self._store, self.sessions)

    @cached_property
    def _planner(self) -> Planner:
        from app.shared.planning import Planner

        return Planner(self._thresholds, self._detectors, self._host)

    @cached_property
    def _detectors(self) -> Detectors:
        from app.shared.planning import Detectors

        return Detectors(self._detector(), self._lists)

    @cached_property
    def _host(self) -> ModelHost:
        return self._model_host(self._settings.faster_steps)

    @cached_property
    def _pool(self) -> RolloutPool:
        from app.shared.rollouts import RolloutPool

        return RolloutPool(self._settings.live_rollouts, self._host.memory)

    def _model_host(self, faster_steps: Literal["on", "off"]) -> ModelHost:
        from transformers.utils.logging import disable_progress_bar

        from app.shared.memory import MemoryBudget
        from app.shared.model_host import ModelHost
        from coft_core.model.load import load_model

        # Commands print tables and JSON; the library's progress bars would run through them.
        disable_progress_bar()
        return ModelHost(
            self._settings.device,
            self._settings.dtype,
            loader=self._loader or load_model,
            options=self._settings.placement,
            faster_steps=faster_steps,
            budget=MemoryBudget(self._settings.kv_memory_mb),
        )

    @property
    def _largest_upload(self) -> int:
        return self._settings.max_upload_mb * 1_000_000

    def _detector(self) -> SpanDetector:
        from app.shared.planning import families_from_text
        from coft_core.text.detection import SpanDetector

        pipeline = None if self._settings.pipeline == "none" else self._settings.pipeline
        return SpanDetector(pipeline=pipeline, masked_families=families_from_text(self._settings.mask_families))


@contextmanager
def services(
    settings: Settings, owns_store: bool = False, loader: Callable[..., Any] | None = None
) -> Iterator[Services]:
    """The services, all of which are closed at the end.

    Args:
        settings: The settings.
        owns_store: True for the web server, which opens all of them at once: every job that is not its own was left
            behind by an ended process. A command that may run beside a server only takes jobs without a sign of life
            for five minutes as such.
        loader: What loads a model; None takes the core's own.

    Raises:
        StoreError: The database cannot be opened; without ``owns_store``, when it is first used.
    """
    with ExitStack() as closing:
        wired = Services(settings, closing, owns_store, loader)
        if owns_store:
            for name, found in vars(Services).items():
                if isinstance(found, cached_property):
                    getattr(wired, name)
        yield wired


def verifier(settings: Settings, loader: Callable[..., Any] | None = None) -> BundleVerifier:
    """What verifies reports from elsewhere, without a store.

    Args:
        settings: Device and number type of the model.
        loader: What loads a model; None takes the core's own.
    """
    return Services(settings, ExitStack(), owns_store=False, loader=loader).verifier
