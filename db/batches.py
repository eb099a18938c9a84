"""Batches: many prompts audited with the same settings, and what became of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, ForeignKey, Index, Subquery, case, func, insert, select, update

from db.audits import batch_rows, branches, sessions
from db.chains import candidates, steps
from db.controls import controls
from db.jobs import give_to_job
from db.tables import Repository, add_row, columns, fields_in, find, project_table
from db.types import JsonObject, mended, utc_now
from db.verdicts import AnnotationRecord, entries, log_entries


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A batch without its rows; its last job is None before the first one, or once that job is deleted."""

    id: int
    name: str
    prompt_set_id: int
    request: JsonObject
    job_id: int | None
    created_at: datetime
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRowRecord:
    """What became of one row of a batch, measured on its session's root branch.

    ``ranks`` are those of its controls; None where it has none.
    """

    line: int
    session_id: int | None
    begun: bool
    error: str | None
    root_branch_id: int | None
    finished: str | None
    certificate: str | None
    archived: bool
    text: str
    steps: int
    certified: int
    fallbacks: int
    overruled: int
    mean_log_ratio: float | None
    max_log_ratio: float | None
    min_margin: float | None
    thinking: JsonObject | None = None
    ranks: Sequence[JsonObject] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can still be run: its chain is not at its end, and its session was not deleted."""
        return self.finished is None and not (self.begun and self.session_id is None)


batches = project_table(
    "batches",
    "batch",
    *columns(
        BatchRecord,
        # Its prompts are the rows of its prompt set, which cannot be deleted before it.
        prompt_set_id=ForeignKey("prompt_sets.id", ondelete="RESTRICT"),
        job_id=ForeignKey("jobs.id", ondelete="SET NULL"),
        row_count=None,
    ),
    Index(None, "prompt_set_id"),
    Index(None, "job_id"),
)


class BatchesRepository(Repository[BatchRecord]):
    """Adds, follows and deletes batches; a batch's request and prompts never change, and outlive it."""

    _table, _kind = batches, BatchRecord
    _query = select(
        *fields_in(BatchRecord, batches),
        select(func.count())
        .select_from(batch_rows)
        .where(batch_rows.c.batch_id == batches.c.id)
        .scalar_subquery()
        .label("row_count"),
    )

    def add(self, name: str, prompt_set_id: int, request: JsonObject, lines: Collection[int]) -> BatchRecord:
        """Store a batch of some lines of a prompt set, none of which has begun."""
        with self._database.writing() as connection:
            values = {"name": name, "prompt_set_id": prompt_set_id, "request": request, "created_at": utc_now()}
            key = add_row(connection, batches, **values)
            if lines:
                connection.execute(insert(batch_rows), [{"batch_id": key, "line": line} for line in sorted(lines)])
            return self._one(connection, key)

    def list(self) -> Sequence[BatchRecord]:
        """Return all batches, newest first."""
        return self._listed(self._query.order_by(batches.c.id.desc()))

    def rename(self, batch_id: int, name: str) -> BatchRecord:
        """Change a batch's name."""
        return self._change(batch_id, name=name)

    def begin(self, batch_id: int, job_id: int) -> BatchRecord:
        """Make a job the one that runs a batch; making it so again does nothing."""
        with self._database.writing() as connection:
            give_to_job(connection, batches, batch_id, job_id)
            return self._one(connection, batch_id)

    def fail(self, batch_id: int, line: int, error: str | None) -> None:
        """Write why a row could not be run; None once it could."""
        of_row = batch_rows.c.batch_id == batch_id, batch_rows.c.line == line
        self._run(update(batch_rows).where(*of_row).values(error=error and mended(error)))

    def rows(self, batch_id: int) -> Sequence[BatchRowRecord]:
        """Return the rows of a batch in the order of their lines, with what their sessions say so far."""
        measured = _measured(batch_id)
        query = (
            select(
                batch_rows.c.line,
                batch_rows.c.session_id,
                batch_rows.c.begun_at.is_not(None).label("begun"),
                batch_rows.c.error,
                branches.c.id.label("root_branch_id"),
                branches.c.finished,
                sessions.c.certificate,
                sessions.c.archived_at.is_not(None).label("archived"),
                sessions.c.policy_settings["thinking"].label("thinking"),
                controls.c.ranks,
                *(func.coalesce(measured.c[name], 0).label(name) for name in _COUNTS),
                *(measured.c[name] for name in ("mean_log_ratio", "max_log_ratio", "min_margin")),
            )
            .join(sessions, sessions.c.id == batch_rows.c.session_id, isouter=True)
            .join(branches, (branches.c.session_id == sessions.c.id) & branches.c.parent_id.is_(None), isouter=True)
            .join(measured, measured.c.branch_id == branches.c.id, isouter=True)
            .join(controls, controls.c.branch_id == branches.c.id, isouter=True)
            .where(batch_rows.c.batch_id == batch_id)
            .order_by(batch_rows.c.line)
        )
        with self._database.reading() as connection:
            find(connection, batches, batch_id)
            texts = _texts(connection, batch_id)
            return [
                BatchRowRecord(**row._asdict(), text=texts.get(row.root_branch_id, ""))
                for row in connection.execute(query)
            ]

    def verdict_logs(self, batch_id: int) -> Sequence[AnnotationRecord]:
        """Return the verdict logs of a batch's sessions, session after session, oldest entry first."""
        query = (
            entries.join(batch_rows, batch_rows.c.session_id == log_entries.c.session_id)
            .where(batch_rows.c.batch_id == batch_id)
            .order_by(log_entries.c.session_id, log_entries.c.entry)
        )
        return self._read(AnnotationRecord, query)


_COUNTS = ("steps", "certified", "fallbacks", "overruled")


def of_root_branches(batch_id: int) -> ColumnElement[bool]:
    """Whether a step is on the root branch of one of a batch's sessions."""
    return steps.c.branch_id.in_(
        select(branches.c.id)
        .join(batch_rows, batch_rows.c.session_id == branches.c.session_id)
        .where(batch_rows.c.batch_id == batch_id, branches.c.parent_id.is_(None))
    )


def _measured(batch_id: int) -> Subquery:
    """What the steps of each session's root branch come to."""
    overruled = _overruled(batch_id)

    def counted(condition: Any) -> Any:
        return func.sum(case((condition, 1), else_=0))

    return (
        select(
            steps.c.branch_id,
            func.count().label("steps"),
            counted(steps.c.certified).label("certified"),
            counted(steps.c.fallback).label("fallbacks"),
            func.count(overruled.c.step_id).label("overruled"),
            func.avg(func.abs(steps.c.log_ratio)).label("mean_log_ratio"),
            func.max(func.abs(steps.c.log_ratio)).label("max_log_ratio"),
            func.min(steps.c.margin).label("min_margin"),
        )
        .join(overruled, overruled.c.step_id == steps.c.id, isouter=True)
        .where(of_root_branches(batch_id))
        .group_by(steps.c.branch_id)
        .subquery()
    )


def _overruled(batch_id: int) -> Subquery:
    """Steps whose likeliest fused candidate is not certified while another one is; an empty set has no other one."""
    refused = func.max(case((~candidates.c.certified, candidates.c.log_p_fused)))
    accepted = func.max(case((candidates.c.certified, candidates.c.log_p_fused)))
    return (
        select(candidates.c.step_id)
        .join(steps, steps.c.id == candidates.c.step_id)
        .where(of_root_branches(batch_id))
        .group_by(candidates.c.step_id)
        .having(refused > accepted)
        .subquery()
    )


def _texts(connection: Connection, batch_id: int) -> dict[int, str]:
    """Continuations by root branch, without the end token that finished them."""
    query = (
        select(steps.c.branch_id, steps.c.token, branches.c.finished)
        .join(branches, branches.c.id == steps.c.branch_id)
        .where(of_root_branches(batch_id))
        .order_by(steps.c.branch_id, steps.c.index)
    )
    texts = {}
    for branch_id, rows in groupby(connection.execute(query), attrgetter("branch_id")):
        listed = list(rows)
        shown = listed[:-1] if listed[-1].finished == "end" else listed
        texts[branch_id] = "".join(row.token for row in shown)
    return texts
