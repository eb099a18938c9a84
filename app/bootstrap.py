"""The one place that wires the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app.audit.reread_service import RereadService
from app.audit.service import AuditService
from app.batch.service import BatchService
from app.calibrate.service import CalibrationService
from app.compare.service import ComparisonService
from app.compare.sets import SetComparisonService
from app.lists.service import UserListService
from app.report.bundle import PromptsOfCalibrations
from app.report.service import ExportService
from app.report.tables import ReportService
from app.report.verify.run import BundleVerifier
from app.review.service import VerdictService
from app.sessions.service import SessionLibrary
from app.settings import Settings
from app.shared.calibrations import CalibrationStore
from app.shared.jobs import JobRunner, JobService
from app.shared.memory import MemoryBudget
from app.shared.model_host import ModelHost
from app.shared.planning import Detectors, Planner, families_from_text
from app.shared.rollouts import RolloutPool
from app.shared.session_views import AuditViews
from app.shared.thresholds import Thresholds
from app.swap.service import SwapService
from app.tune.service import TuningService
from coft_core.assets import assets_path
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model
from coft_core.text.detection import SpanDetector
from db.batches import BatchesRepository
from db.calibrations import CalibrationsRepository
from db.comparisons import ComparisonsRepository
from db.database import Database, default_database_url
from db.jobs import JobsRepository, LedgersRepository
from db.library import LibraryRepository
from db.prompt_sets import PromptSetsRepository
from db.sessions import SessionsRepository
from db.user_lists import UserListsRepository
from db.verdicts import AnnotationsRepository

EMBEDDED_CALIBRATION = ("models", "demo", "calibration.zip")
SILENT_FOR = timedelta(minutes=5)


@dataclass(frozen=True)
class Services:
    """Everything that a page or a command may call."""

    audits: AuditService
    calibrations: CalibrationService
    user_lists: UserListService
    reports: ReportService
    exports: ExportService
    verdicts: VerdictService
    jobs: JobService
    library: SessionLibrary
    batches: BatchService
    swaps: SwapService
    comparisons: ComparisonService
    compared_sets: SetComparisonService
    rereads: RereadService
    tunings: TuningService
    runner: JobRunner


@contextmanager
def services(
    settings: Settings, owns_store: bool = False, loader: Callable[..., LanguageModel] = load_model
) -> Iterator[Services]:
    """Open the store, wire the services, and close everything at the end.

    Args:
        settings: The settings.
        owns_store: True for the web server: every job that is not its own was left behind by an ended process. A
            command that may run beside a server only takes jobs without a sign of life for five minutes as such.
        loader: What loads a model.

    Raises:
        StoreError: The database cannot be opened.
    """
    with Database(settings.database_url or default_database_url()) as database, JobRunner(database) as runner:
        runner.recover(None if owns_store else SILENT_FOR)
        yield _wire(settings, database, runner, loader)


def verifier(settings: Settings, loader: Callable[..., LanguageModel] = load_model) -> BundleVerifier:
    """What verifies reports from elsewhere; it opens no store, and loads a model only for a replay.

    Args:
        settings: Device and number type of the model.
        loader: What loads a model.
    """
    budget = MemoryBudget(settings.kv_memory_mb)
    host = ModelHost(settings.device, settings.dtype, loader=loader, options=settings.placement, budget=budget)
    return BundleVerifier(host, partial(_detector, settings))


def _detector(settings: Settings) -> SpanDetector:
    return SpanDetector(
        pipeline=None if settings.pipeline == "none" else settings.pipeline,
        masked_families=families_from_text(settings.mask_families),
    )


def _wire(settings: Settings, database: Database, runner: JobRunner, loader: Callable[..., LanguageModel]) -> Services:
    host = ModelHost(
        settings.device,
        settings.dtype,
        loader=loader,
        options=settings.placement,
        faster_steps=settings.faster_steps,
        budget=MemoryBudget(settings.kv_memory_mb),
    )
    pool = RolloutPool(settings.live_rollouts, host.memory)
    detector = _detector(settings)
    sessions, runs, jobs = SessionsRepository(database), CalibrationsRepository(database), JobsRepository(database)
    largest = settings.max_upload_mb * 1_000_000
    stored_batches = BatchesRepository(database)
    stored_lists = UserListsRepository(database)
    user_lists = UserListService(stored_lists, runs, jobs, stored_batches, max_upload_bytes=largest)
    detectors = Detectors(detector, stored_lists)
    prompt_sets, store = PromptSetsRepository(database), CalibrationStore(runs)
    ledgers = LedgersRepository(database)
    calibrations = CalibrationService(
        store, prompt_sets, sessions, jobs, ledgers, runner, host, detectors, max_upload_bytes=largest
    )
    calibrations.install_embedded(assets_path(*EMBEDDED_CALIBRATION))
    log, thresholds = AnnotationsRepository(database), Thresholds(store, sessions)
    audits = AuditService(sessions, thresholds, host, detectors, pool, settings.full_logits_kb)
    reports = ReportService(sessions, log, AuditViews(sessions, thresholds, detectors))
    listed = JobService(runner, jobs, prompt_sets)
    measured = ComparisonsRepository(database)
    planner = Planner(thresholds, detectors, host)
    batches = BatchService(stored_batches, prompt_sets, runner, listed, audits, thresholds, host, planner, largest)
    return Services(
        audits=audits,
        calibrations=calibrations,
        user_lists=user_lists,
        reports=reports,
        exports=ExportService(
            reports, sessions, runs, thresholds, PromptsOfCalibrations(runs, jobs, prompt_sets, user_lists)
        ),
        verdicts=VerdictService(sessions, log),
        jobs=listed,
        library=SessionLibrary(LibraryRepository(database), sessions, audits, reports, detectors),
        batches=batches,
        swaps=SwapService(audits, planner, host, pool),
        comparisons=ComparisonService(sessions, audits, measured),
        compared_sets=SetComparisonService(measured, stored_batches, prompt_sets, listed, batches),
        rereads=RereadService(sessions, thresholds, store, audits, host),
        tunings=TuningService(jobs, runner, host, detectors, largest),
        runner=runner,
    )
