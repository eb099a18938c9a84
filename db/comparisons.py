"""Comparisons over prompt sets, and what their steps say and cost."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, ForeignKey, Index, Integer, Select, Table, UniqueConstraint, insert, select

from db.audits import batch_rows, sessions
from db.batches import of_root_branches
from db.chains import in_chain, steps
from db.prompt_sets import prompt_sets
from db.tables import METADATA, Repository, add_row, columns, fields_in, project_table
from db.types import JsonObject, utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A comparison over a prompt set; the batches are its columns', in their order, without those that were deleted."""

    id: int
    name: str
    prompt_set_id: int
    created_at: datetime
    batch_ids: tuple[int, ...]
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStepRecord:
    """The numbers of a step that comparisons sum up; fields as in :class:`coft_core.types.Step`, and what it cost."""

    branch_id: int
    index: int
    token_id: int
    token: str
    certified: bool
    fallback: bool
    log_ratio: float
    kl_fused_factual: float | None
    tv_fused_factual: float | None
    seconds: float | None
    peak_bytes: int | None


comparisons = project_table(
    "comparisons",
    "comparison",
    *columns(
        ComparisonRecord,
        # Its prompts are the rows of this set, which all of its batches share.
        prompt_set_id=ForeignKey("prompt_sets.id", ondelete="RESTRICT"),
        batch_ids=None,
        row_count=None,
    ),
    Index(None, "prompt_set_id"),
)

comparison_columns = Table(
    "comparison_columns",
    METADATA,
    Column("comparison_id", Integer, ForeignKey("comparisons.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),
    # The batch that audits the prompts with the column's settings.
    Column("batch_id", Integer, ForeignKey("batches.id", ondelete="CASCADE"), nullable=False),
    UniqueConstraint("batch_id"),
)

_NUMBERS = select(*fields_in(MeasuredStepRecord, steps))


class ComparisonsRepository(Repository[ComparisonRecord]):
    """Adds, lists and deletes comparisons; their columns never change, and their batches and sessions outlive them."""

    _table = comparisons
    _query = select(*fields_in(ComparisonRecord, comparisons), prompt_sets.c.row_count).join_from(
        comparisons, prompt_sets, prompt_sets.c.id == comparisons.c.prompt_set_id
    )

    def add(self, name: str, prompt_set_id: int, batch_ids: Sequence[int]) -> ComparisonRecord:
        """Store a comparison of batches that share a prompt set, in the order of its columns."""
        with self._database.writing() as connection:
            key = add_row(connection, comparisons, name=name, prompt_set_id=prompt_set_id, created_at=utc_now())
            rows = [{"comparison_id": key, "place": place, "batch_id": batch} for place, batch in enumerate(batch_ids)]
            connection.execute(insert(comparison_columns), rows)
            return self._one(connection, key)

    def list(self) -> Sequence[ComparisonRecord]:
        """Return all comparisons, newest first."""
        return self._listed(self._query.order_by(comparisons.c.id.desc()))

    def batch_steps(self, batch_id: int) -> Sequence[MeasuredStepRecord]:
        """Return the steps of all root branches of a batch's sessions, chain after chain, in their order."""
        query = _NUMBERS.where(of_root_branches(batch_id)).order_by(steps.c.branch_id, steps.c.index)
        return self._read(MeasuredStepRecord, query)

    def branch_steps(self, branch_id: int) -> Sequence[MeasuredStepRecord]:
        """Return the steps of a branch's whole chain in their order."""
        with self._database.reading() as connection:
            query = _NUMBERS.where(in_chain(connection, branch_id)).order_by(steps.c.index)
            return [MeasuredStepRecord(**row._asdict()) for row in connection.execute(query)]

    def footprints(self, batch_id: int) -> dict[int, JsonObject | None]:
        """Return what each session of a batch needs of memory, by session; None where it was not computed."""
        query = (
            select(sessions.c.id, sessions.c.footprint)
            .join(batch_rows, batch_rows.c.session_id == sessions.c.id)
            .where(batch_rows.c.batch_id == batch_id)
        )
        with self._database.reading() as connection:
            return {row.id: row.footprint for row in connection.execute(query)}

    def _records(self, connection: Connection, query: Select[*tuple[Any, ...]]) -> builtins.list[ComparisonRecord]:
        places = comparison_columns.c
        records = []
        for row in connection.execute(query).all():
            batches = select(places.batch_id).where(places.comparison_id == row.id).order_by(places.place)
            records.append(ComparisonRecord(**row._asdict(), batch_ids=tuple(connection.scalars(batches))))
        return records
