"""Work that is killed, how it goes on afterwards, and what must be there then."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.audit.service import AuditService
from app.batch.service import BatchRequest, BatchService
from app.calibrate.service import CalibrationService
from app.compare.chains import SetRequest
from app.compare.sets import SetComparisonService
from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationRequest
from app.evaluate.service import EvaluationService
from app.jobs.service import ACTIVE, CALIBRATION_JOB, JobService
from app.report.imports import BundleImports
from app.report.service import ReportService
from app.report.verify.run import BundleVerifier
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.wiring import Services
from bench.faults.forking import STORE, Say, Work, opened
from coft_core.types import Span
from db.calibrations import CalibrationsRepository
from db.sessions import SessionsRepository

SETTINGS = AuditSettings(model="tiny", max_new_tokens=8, top_p=1.0, alpha=0.3)
PROMPT = "The old nurse said he would come"
START = StartAudit(PROMPT, replace(SETTINGS, max_new_tokens=24), (Span(4, 7, "age"), Span(19, 21, "gender")), "one")
ROWS = 6

ORPHANS = {
    "prompt sets that nothing names": "SELECT COUNT(*) FROM prompt_sets WHERE id NOT IN (SELECT prompt_set_id FROM "
    "batches) AND id NOT IN (SELECT prompt_set_id FROM calibration_runs WHERE prompt_set_id IS NOT NULL) AND id NOT IN "
    "(SELECT prompt_set_id FROM job_ledgers) AND id NOT IN (SELECT prompt_set_id FROM comparisons) AND id NOT IN "
    "(SELECT json_extract(payload, '$.prompt_set_id') FROM jobs WHERE json_extract(payload, '$.prompt_set_id') IS NOT "
    "NULL)",
    "batches without a row": "SELECT COUNT(*) FROM batches WHERE id NOT IN (SELECT batch_id FROM batch_rows)",
    "branches without the step they depart with": "SELECT COUNT(*) FROM branches WHERE parent_id IS NOT NULL AND id "
    "NOT IN (SELECT branch_id FROM steps)",
    "steps without candidates": "SELECT COUNT(*) FROM steps WHERE id NOT IN (SELECT step_id FROM candidates)",
    "sessions without a branch": "SELECT COUNT(*) FROM audit_sessions WHERE active_branch_id IS NULL",
}


def half_written(folder: Path) -> list[str]:
    """What of a store is damaged, or there in part."""
    with closing(sqlite3.connect(folder / STORE)) as store:
        found = [row[0] for row in store.execute("PRAGMA integrity_check") if row[0] != "ok"]
        found += [f"a row of {row[0]} points at nothing" for row in store.execute("PRAGMA foreign_key_check")]
        for what, query in ORPHANS.items():
            if number := store.execute(query).fetchone()[0]:
                found.append(f"{number} {what}")
    return found


@dataclass(frozen=True, slots=True)
class Task:
    """Work that is killed."""

    name: str
    prepare: Work
    work: Work
    finish: Work


def served(*parts: Callable[[Services, Path, Say], None]) -> Work:
    """Work on the services of a folder's store, part after part."""

    def work(folder: Path, say: Say) -> None:
        with opened(folder) as wired:
            for part in parts:
                part(wired, folder, say)

    return work


def _waited(wired: Services, number: int) -> None:
    job = wired[JobService].wait(number)
    if job.status != "done":
        raise RuntimeError(f"The job {job.title} is {job.status}: {job.error}")


def _require_settled(wired: Services, folder: Path, say: Say) -> None:
    """Jobs of a process that is gone are known as interrupted."""
    for job in wired[JobService].list(limit=100):
        if job.status in ACTIVE:
            say(f"LOST the job {job.title} still counts as {job.status}")


def _write_set(wired: Services, folder: Path, say: Say) -> None:
    lines = ["prompt,reference,context,group"]
    lines += [f"He said number {n} to the nurse,and she wrote {n} down,{n},{n % 2}" for n in range(ROWS)]
    (folder / "set.csv").write_text("\n".join(lines) + "\n")


def _begin_session(wired: Services, folder: Path, say: Say) -> None:
    wired[AuditService].start(START)


def _chains(wired: Services, session_id: int) -> list[list[tuple[int, str, bool]]]:
    """What a session says; its logarithms are left out, which differ by rounding where a chain was read again."""
    sessions = wired[SessionsRepository]
    chains = (sessions.chain(branch.id) for branch in sessions.branches(session_id))
    return [[(step.token_id, step.token, step.forced) for step in chain] for chain in chains]


def _told(step: object) -> str:
    return json.dumps({name: value for name, value in asdict(step).items() if name != "logits"}, default=str)  # type: ignore[call-overload]


def _run(wired: Services, folder: Path, say: Say) -> None:
    audits = wired[AuditService]
    root = audits.view(1).branches[0].id
    for step in audits.run(1, root):
        say(f"0 {_told(step)}")
    chain = wired[SessionsRepository].chain(root)
    other = next(row for row in chain[3].candidates if row.token_id != chain[3].token_id)
    fork = audits.fork(1, root, 3, other.token_id)
    for step in fork.steps[3:]:
        say(f"1 {_told(step)}")
    for step in audits.run(1, fork.branch_id):
        say(f"1 {_told(step)}")


def _run_on(wired: Services, folder: Path, say: Say) -> None:
    sessions = wired[SessionsRepository]
    for place, branch in enumerate(sessions.branches(1)):
        for step in sessions.chain(branch.id)[branch.fork_step or 0 :]:
            say(f"{place} {_told(step)}")
    say("THEN")
    _run(wired, folder, lambda line: None)
    say(json.dumps(_chains(wired, 1)))


def _calibrate(wired: Services, folder: Path, say: Say) -> None:
    service = wired[CalibrationService]
    request = CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.3)
    _waited(wired, service.submit(service.parse(folder / "set.csv"), request))


def _calibrate_on(wired: Services, folder: Path, say: Say) -> None:
    jobs = wired[JobService].list(CALIBRATION_JOB)
    if not jobs:
        _calibrate(wired, folder, say)
    elif jobs[0].status != "done":
        if not jobs[0].resumable:
            say("LOST a calibration that cannot be resumed")
        _waited(wired, wired[CalibrationService].resume(jobs[0].id))
    made = [item for item in wired[CalibrationsRepository].list() if not item.embedded]
    bins = [[(one.first_step, round(one.log_tau, 3), one.contexts) for one in item.bins] for item in made]
    say(json.dumps([[(item.name, item.context_count) for item in made], bins]))


def _batch(wired: Services, folder: Path, say: Say) -> None:
    service = wired[BatchService]
    number = service.submit(service.parse(folder / "set.csv"), BatchRequest("batch", SETTINGS))
    _waited(wired, service.view(number).job.id)  # type: ignore[union-attr]


def _batch_on(wired: Services, folder: Path, say: Say) -> None:
    service = wired[BatchService]
    if not service.list():
        _batch(wired, folder, say)
    elif service.view(1).resumable:
        _waited(wired, service.resume(1))
    view = service.view(1)
    say(json.dumps([len(service.list()), [[row.line, row.text, row.state] for row in view.rows]], default=str))


def _compare(wired: Services, folder: Path, say: Say) -> None:
    columns = (SETTINGS, replace(SETTINGS, policy="vanilla"))
    service = wired[SetComparisonService]
    number = service.submit(wired[BatchService].parse(folder / "set.csv"), SetRequest("compared", columns))
    for column in service.view(number).columns:
        _waited(wired, column.job.id)


def _compare_on(wired: Services, folder: Path, say: Say) -> None:
    service, batches = wired[SetComparisonService], wired[BatchService]
    if not service.list():
        if batches.list():
            say("LOST batches that no comparison names")
        _compare(wired, folder, say)
    for column in service.view(1).columns:
        if batches.view(column.batch_id).resumable:
            _waited(wired, batches.resume(column.batch_id))
    told = [[row.line, [cell.text for cell in row.cells]] for row in service.view(1).rows]
    say(json.dumps([len(batches.list()), len(service.list()), told]))


def _evaluate(wired: Services, folder: Path, say: Say) -> None:
    service = wired[EvaluationService]
    methods = methods_from(("vanilla", "coft:calibrated"), replace(SETTINGS, alpha=0.5))
    request = EvaluationRequest("questions", ("phantom_questions",), methods, "tiny", (0,), 8, 0.5)
    _waited(wired, service.view(service.submit(request)).job.id)  # type: ignore[union-attr]


def _evaluate_on(wired: Services, folder: Path, say: Say) -> None:
    service = wired[EvaluationService]
    if not service.list():
        _evaluate(wired, folder, say)
    elif service.view(1).resumable:
        _waited(wired, service.resume(1))
    with closing(sqlite3.connect(folder / STORE)) as store:
        query = (
            "SELECT suite, method, seed, place, hex(content) FROM evaluation_items JOIN evaluation_contents USING "
            "(key) ORDER BY 1, 2, 3, 4"
        )
        say(json.dumps([len(service.list()), store.execute(query).fetchall()]))


def _bundle(wired: Services, folder: Path, say: Say) -> None:
    (folder / "evidence.zip").write_bytes(wired[ReportService].bundle(1))


def _export(wired: Services, folder: Path, say: Say) -> None:
    for round_ in range(3):
        for kind in ("bundle", "html", "json", "zip"):
            path = wired[ReportService].write(1, kind, folder / f"out{round_}")
            say(str(path.relative_to(folder)))


def _export_on(wired: Services, folder: Path, say: Say) -> None:
    reports = wired[ReportService]
    suffixes = {"bundle": "-bundle.zip", "html": ".html", "json": ".json", "zip": ".zip"}
    whole = {f"coft-audit-session-1{suffix}": reports.content(1, kind) for kind, suffix in suffixes.items()}
    for path in folder.glob("out*/coft-*"):
        if path.read_bytes() != whole[path.name]:
            say(f"LOST {path.name} is half of a file")
    say(json.dumps(sorted(whole)))


def _bundle_elsewhere(folder: Path, say: Say) -> None:
    served(_begin_session, _run, _bundle)(folder, lambda line: None)
    for path in folder.glob(f"{STORE}*"):
        path.unlink()
    served()(folder, say)


def _import(wired: Services, folder: Path, say: Say) -> None:
    say(f"imported {wired[BundleImports].add(folder / 'evidence.zip').session_id}")


def _import_on(wired: Services, folder: Path, say: Say) -> None:
    number = wired[BundleImports].add(folder / "evidence.zip").session_id
    again = folder / "again.zip"
    again.write_bytes(wired[ReportService].bundle(number))
    if not wired[BundleVerifier].verify(again).ok:
        say("LOST an imported bundle that does not verify")
    sessions = wired[SessionsRepository]
    told = [[_told(step) for step in sessions.chain(branch.id)] for branch in sessions.branches(number)]
    say(json.dumps([sessions.count(), told]))


def _job(name: str, work: Callable[[Services, Path, Say], None], on: Callable[[Services, Path, Say], None]) -> Task:
    """Work that a job does on a prompt set, which a server that starts knows to be interrupted."""
    return Task(name, served(_write_set), served(work), served(_require_settled, on))


TASKS = (
    Task("runs", served(_begin_session), served(_run), served(_run_on)),
    _job("calibrations", _calibrate, _calibrate_on),
    _job("batches", _batch, _batch_on),
    _job("comparisons", _compare, _compare_on),
    _job("suites", _evaluate, _evaluate_on),
    Task("exports", served(_begin_session, _run), served(_export), served(_export_on)),
    Task("imports", _bundle_elsewhere, served(_import), served(_import_on)),
)


def copied(folder: Path, to: Path) -> Path:
    """A folder's files in another one, which replaces what stood there."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to
