"""Evaluations: what became of each item of a benchmark under each method, kept once however often it is asked for."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from db.database import Database
from db.jobs import give_to_job
from db.scope import WHOLE
from db.tables import METADATA, Repository, add_row, columns, field_values, fields_in, find, project_table
from db.types import AnyText, CompressedBytes, JsonObject, utc_now

KEYS_AT_ONCE = 500
"""Keys that one query names at most; databases bound how many values a statement may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """An evaluation without its items; its last job is None before the first one, or once that job is deleted."""

    id: int
    name: str
    request: JsonObject
    plan: JsonObject
    job_id: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationItemRecord:
    """One item under one method and seed."""

    suite: str
    method: str
    seed: int
    place: int
    item: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationCalibrationRecord:
    """Thresholds of one method for one suite and seed, without their values."""

    suite: str
    method: str
    seed: int
    key: str
    summary: JsonObject


evaluations = project_table(
    "evaluations",
    "evaluation",
    *columns(EvaluationRecord, job_id=sa.ForeignKey("jobs.id", ondelete="SET NULL")),
    sa.Index(None, "job_id"),
)

contents = sa.Table(
    "evaluation_contents",
    METADATA,
    sa.Column("key", AnyText, primary_key=True),
    sa.Column("content", CompressedBytes, nullable=False),
)
"""Outcomes and calibrations by a digest of all that they depend on; evaluations share them."""


def _owner() -> sa.Column[int]:
    return sa.Column("evaluation_id", sa.Integer, sa.ForeignKey("evaluations.id", ondelete="CASCADE"), nullable=False)


def _content() -> sa.ForeignKey:
    return sa.ForeignKey("evaluation_contents.key", ondelete="RESTRICT")


items = sa.Table(
    "evaluation_items",
    METADATA,
    _owner(),
    *columns(EvaluationItemRecord, seed=sa.BigInteger(), key=_content()),
    sa.PrimaryKeyConstraint("evaluation_id", "suite", "method", "seed", "place"),
    sa.Index(None, "key"),
)

calibrations = sa.Table(
    "evaluation_calibrations",
    METADATA,
    _owner(),
    *columns(EvaluationCalibrationRecord, seed=sa.BigInteger(), key=_content()),
    sa.PrimaryKeyConstraint("evaluation_id", "suite", "method", "seed"),
    sa.Index(None, "key"),
)


class EvaluationsRepository(Repository[EvaluationRecord]):
    """Adds, follows and deletes evaluations; contents are kept as long as an evaluation refers to them."""

    _table, _kind = evaluations, EvaluationRecord
    _query = sa.select(*fields_in(EvaluationRecord, evaluations))

    def add(self, name: str, request: JsonObject, plan: JsonObject) -> EvaluationRecord:
        """Store an evaluation of which nothing is done."""
        told = {"name": name, "request": request, "plan": plan, "created_at": utc_now()}
        with self._database.writing() as connection:
            key = add_row(connection, evaluations, **told)
            return self._one(connection, key)

    def list(self) -> Sequence[EvaluationRecord]:
        """Return all evaluations, newest first."""
        return self._listed(self._query.order_by(evaluations.c.id.desc()))

    def begin(self, evaluation_id: int, job_id: int) -> EvaluationRecord:
        """Make a job the one that runs an evaluation; making it so again does nothing."""
        with self._database.writing() as connection:
            give_to_job(connection, evaluations, evaluation_id, job_id)
            return self._one(connection, evaluation_id)

    def link(self, evaluation_id: int, wanted: Sequence[EvaluationItemRecord]) -> builtins.list[EvaluationItemRecord]:
        """Write down those items whose outcome is kept already, and return the others."""
        with self._database.writing() as connection:
            known = _known(connection, {item.key for item in wanted})
            _refer(connection, items, evaluation_id, [item for item in wanted if item.key in known])
        return [item for item in wanted if item.key not in known]

    def keep(self, evaluation_id: int, done: Sequence[EvaluationItemRecord], outcomes: Mapping[str, bytes]) -> None:
        """Write down items with their outcomes by key, all or none."""
        with self._database.writing() as connection:
            _add_contents(connection, outcomes)
            _refer(connection, items, evaluation_id, done)

    def link_calibration(self, evaluation_id: int, calibration: EvaluationCalibrationRecord) -> bool:
        """Write a calibration down if it is kept already; whether it is. It keeps the summary that it was kept with."""
        query = sa.select(calibrations.c.summary).where(calibrations.c.key == calibration.key).limit(1)
        with self._database.writing() as connection:
            summary = connection.scalar(query)
            if summary is None:
                return False
            _refer(connection, calibrations, evaluation_id, [replace(calibration, summary=summary)])
            return True

    def keep_calibration(self, evaluation_id: int, calibration: EvaluationCalibrationRecord, data: bytes) -> None:
        """Write a calibration down with its values."""
        with self._database.writing() as connection:
            _add_contents(connection, {calibration.key: data})
            _refer(connection, calibrations, evaluation_id, [calibration])

    def calibrations(self, evaluation_id: int) -> builtins.list[EvaluationCalibrationRecord]:
        """Return what is said of an evaluation's calibrations, by suite, method and seed."""
        row = calibrations.c
        query = (
            sa.select(*fields_in(EvaluationCalibrationRecord, calibrations))
            .where(row.evaluation_id == evaluation_id)
            .order_by(row.suite, row.method, row.seed)
        )
        return self._read(EvaluationCalibrationRecord, query)

    def calibration(self, evaluation_id: int, suite: str, method: str, seed: int) -> bytes | None:
        """Return the values of a calibration, empty without anything to fit it on; None if it was not made yet."""
        row = calibrations.c
        of_method = row.evaluation_id == evaluation_id, row.suite == suite, row.method == method, row.seed == seed
        query = sa.select(contents.c.content).join(calibrations, row.key == contents.c.key).where(*of_method)
        return self._scalar(bytes, query)

    def counts(self, evaluation_id: int) -> dict[tuple[str, str, int], int]:
        """Return how many items are done by suite, method and seed; without those of which none is."""
        return self.all_counts(evaluation_id).get(evaluation_id, {})

    def all_counts(self, only: int | None = None) -> dict[int, dict[tuple[str, str, int], int]]:
        """Return the same of every evaluation, by its number; without those of which nothing is done."""
        row = items.c
        group = (row.evaluation_id, row.suite, row.method, row.seed)
        query = sa.select(*group, sa.func.count()).where(*([] if only is None else [row.evaluation_id == only]))
        found: dict[int, dict[tuple[str, str, int], int]] = {}
        with self._database.reading() as connection:
            for number, suite, method, seed, count in connection.execute(query.group_by(*group)):
                found.setdefault(number, {})[suite, method, seed] = count
        return found

    def places(self, evaluation_id: int, suite: str, seed: int) -> set[tuple[str, int]]:
        """Return method and place of the items of a suite that are done under a seed."""
        row = items.c
        query = sa.select(row.method, row.place).where(
            row.evaluation_id == evaluation_id, row.suite == suite, row.seed == seed
        )
        with self._database.reading() as connection:
            return {(method, place) for method, place in connection.execute(query)}

    def done(self, evaluation_id: int, suite: str) -> int:
        """Return how many items of a suite are done, over all methods and seeds."""
        query = sa.select(sa.func.count()).where(items.c.evaluation_id == evaluation_id, items.c.suite == suite)
        with self._database.reading() as connection:
            find(connection, evaluations, evaluation_id)
            return int(connection.scalar(query) or 0)

    def outcomes(self, evaluation_id: int, suite: str) -> tuple[builtins.list[tuple[str, int, str]], dict[str, bytes]]:
        """Return method, seed and key of the items of a suite that are done, and their outcomes by key.

        Items are ordered by method and seed, and then as in the suite. One outcome may be that of several.
        """
        row = items.c
        own = row.evaluation_id == evaluation_id, row.suite == suite
        # Keys are digests: there are many, and nothing in them is escaped.
        key, kept = (sa.type_coerce(column, sa.String()) for column in (row.key, contents.c.key))
        listed = sa.select(row.method, row.seed, key).where(*own).order_by(row.method, row.seed, row.place)
        wanted = sa.select(kept, contents.c.content).where(contents.c.key.in_(sa.select(row.key).where(*own)))
        with self._database.reading() as connection:
            find(connection, evaluations, evaluation_id)
            found = [(method, seed, key) for method, seed, key in connection.execute(listed)]
            return found, dict(connection.execute(wanted).tuples().all())

    def delete(self, key: int, /) -> None:
        """Delete an evaluation, with the outcomes and calibrations that no other one refers to."""
        with self.together():
            super().delete(key)
            sweep_contents(self._database)


def sweep_contents(database: Database) -> None:
    """Remove outcomes and calibrations that no evaluation of any project refers to."""
    named = (sa.select(one.c.key).where(one.c.key == contents.c.key) for one in (items, calibrations))
    with database.writing() as connection:
        connection.execute(sa.delete(contents).where(*(~query.execution_options(**WHOLE).exists() for query in named)))


def _known(connection: sa.Connection, keys: Collection[str]) -> set[str]:
    """Those of some keys under which something is kept."""
    query = sa.select(contents.c.key)
    return {key for some in _portions(keys) for key in connection.scalars(query.where(contents.c.key.in_(some)))}


def _add_contents(connection: sa.Connection, given: Mapping[str, bytes]) -> None:
    """Keep what is not kept yet: whatever has the same key is the same."""
    known = _known(connection, given.keys())
    rows = [{"key": key, "content": content} for key, content in given.items() if key not in known]
    if rows:
        connection.execute(sa.insert(contents), rows)


def _refer(connection: sa.Connection, table: sa.Table, evaluation_id: int, records: Sequence[Any]) -> None:
    rows = [{"evaluation_id": evaluation_id, **field_values(record, type(record))} for record in records]
    if rows:
        connection.execute(sa.insert(table), rows)


def _portions(keys: Collection[str]) -> Iterable[Sequence[str]]:
    ordered = sorted(keys)
    return (ordered[start : start + KEYS_AT_ONCE] for start in range(0, len(ordered), KEYS_AT_ONCE))
