"""A store of many sessions: a few are audited, and their rows are copied by SQL in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.audit.service import AuditService
from app.batch.service import BatchRequest
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.sessions.service import SessionLibrary
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from bench.load.figures import PROMPTS
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model
from coft_core.types import Example
from db.audits import BatchPlace, claim_row
from db.batches import BatchesRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.sessions import SessionsRepository

OF_A_BATCH = 5
"""Every so many-th block of sessions belongs to a batch."""
BATCH_ROWS = 50
JUDGED = 10
"""Every so many-th session has a verdict, and every second of those another reviewer's."""
TAGGED = 7
REVIEWERS = ("Ana", "Ben", "Cem")

_PARTS = {
    "audit_sessions": ("id", "active_branch_id"),
    "session_spans": ("session_id",),
    "branches": ("id", "session_id", "parent_id"),
    "steps": ("id", "branch_id"),
    "candidates": ("step_id",),
}
"""Tables of a session, parents first, and their columns that hold numbers of rows."""


def endless(name: str, **options: object) -> LanguageModel:
    """A model that goes on until a chain has its length."""
    return replace(load_model(name, **options), end_token_ids=frozenset())  # type: ignore[arg-type]


def usual_settings(wired: Services, steps: int) -> AuditSettings:
    """Settings of a chain of so many steps, with the embedded calibration."""
    embedded = next((item.id for item in wired[CalibrationService].list() if item.embedded), None)
    return AuditSettings(max_new_tokens=steps, calibration_id=embedded)


def fill(url: str, sessions: int, steps: int, loader: Callable[..., LanguageModel] = endless) -> None:
    """Bring a store to so many sessions.

    One session a prompt is audited with the embedded model. The others are copies of these with other names and
    moments; some stand in batches, some have verdicts of several reviewers, and some tags.
    """
    with services(Settings(database_url=url), loader=loader) as wired:
        settings = usual_settings(wired, steps)
        originals = min(len(PROMPTS), sessions)
        for number, prompt in enumerate(PROMPTS[:originals]):
            begun = wired[AuditService].start(StartAudit(prompt, settings, name=f"audit {number + 1}"))
            for _ in wired[AuditService].run(begun.session_id):
                pass
    copy_sessions(Path(url.removeprefix("sqlite:///")), sessions)
    with services(Settings(database_url=url), loader=loader) as wired, wired.database.together():
        order(wired, settings, sessions)


def copy_sessions(path: Path, sessions: int) -> None:
    """Copy the sessions of a store, in turn, until there are so many."""
    connection = sqlite3.connect(path, isolation_level=None)
    # The store is made for a measurement and thrown away after it.
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-200000")
    (originals,) = connection.execute("SELECT count(*) FROM audit_sessions").fetchone()
    rounds = -(-sessions // originals) - 1
    shifts = {
        name: connection.execute(f"SELECT coalesce(max(id), 0) FROM {name}").fetchone()[0]
        for name in ("audit_sessions", "branches", "steps")
    }
    connection.execute("BEGIN")
    connection.execute("PRAGMA defer_foreign_keys=ON")
    for number in range(1, rounds + 1):
        left = min(originals, sessions - originals * number)
        for table, keys in _PARTS.items():
            _copy(connection, table, keys, {name: shift * number for name, shift in shifts.items()}, left)
    begin = datetime.now(UTC) - timedelta(days=365)
    moments = [(f"audit {number}", _moment(begin, number), number) for number in range(1, sessions + 1)]
    connection.executemany("UPDATE audit_sessions SET name = ?, updated_at = ? WHERE id = ?", moments)
    connection.execute("COMMIT")
    connection.close()


_OF_TABLE = {"session_id": "audit_sessions", "branch_id": "branches", "step_id": "steps", "parent_id": "branches"}


def _copy(connection: sqlite3.Connection, table: str, keys: tuple[str, ...], shifts: dict[str, int], left: int) -> None:
    """Copy the rows of the first ``left`` sessions, with the numbers of rows shifted."""
    names = [f'"{row[1]}"' for row in connection.execute(f"PRAGMA table_info({table})")]
    whose = {**_OF_TABLE, "id": table, "active_branch_id": "branches"}
    values = [f"{name} + {shifts[whose[name.strip(chr(34))]]}" if name.strip('"') in keys else name for name in names]
    first = {
        "audit_sessions": "id <= :left",
        "branches": "session_id <= :left",
        "session_spans": "session_id <= :left",
        "steps": "branch_id IN (SELECT id FROM branches WHERE session_id <= :left)",
        "candidates": "step_id IN (SELECT id FROM steps WHERE branch_id IN "
        "(SELECT id FROM branches WHERE session_id <= :left))",
    }[table]
    text = f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {table} WHERE {first}"
    connection.execute(text, {"left": left})


def _moment(begin: datetime, number: int) -> str:
    """As the store writes a moment; one session about every hour and a half."""
    return (begin + timedelta(minutes=97 * number)).strftime("%Y-%m-%d %H:%M:%S.%f")


def order(wired: Services, settings: AuditSettings, sessions: int) -> None:
    """Put blocks of sessions into batches, and give some of them verdicts and tags."""
    for start in range(1, sessions - BATCH_ROWS + 2, BATCH_ROWS * OF_A_BATCH):
        _batch(wired, settings, range(start, start + BATCH_ROWS))
    verdicts = wired[VerdictService]
    for place, session in enumerate(range(1, sessions + 1, JUDGED)):
        for reviewer in REVIEWERS[: 1 + place % 2]:
            said = ("fair", "unfair", "unclear")[(place + len(reviewer) + (reviewer == "Ben") * (place % 5 == 1)) % 3]
            verdicts.add(VerdictRequest(session, reviewer, said, note=f"seen by {reviewer}"))
    wired[SessionLibrary].tag(range(1, sessions + 1, TAGGED), "kept")


def _batch(wired: Services, settings: AuditSettings, ids: range) -> None:
    """Make rows of a batch of stored sessions."""
    name = f"batch of {ids.start}"
    rows = [PromptRow(number, Example(wired[SessionsRepository].get(id_).prompt)) for number, id_ in enumerate(ids, 2)]
    prompts = wired[PromptSetsRepository].add(name, "prompts.csv", "0" * 64, rows)
    request = asdict(BatchRequest(name=name, settings=settings))
    batch = wired[BatchesRepository].add(name, prompts.id, request, [row.line for row in rows])
    with wired.database.writing() as connection:
        for row, session in zip(rows, ids, strict=True):
            claim_row(connection, BatchPlace(batch.id, row.line), session)
