"""The controls of branches: what comparable words do along their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from db.audits import batch_rows, branches, sessions
from db.tables import METADATA, Store, columns, field_values
from db.types import CompressedBytes, JsonObject


@dataclass(frozen=True, slots=True)
class ControlsRow:
    """The controls of a branch: their data, and what is read of many sessions together, which they are too large for.

    ``ranks`` has the fields of a :class:`~coft_core.controls.result.FamilyRank` for each family of marked words.
    """

    key: str
    evidence: float | None
    ranks: Sequence[JsonObject]
    data: bytes


controls = sa.Table(
    "controls",
    METADATA,
    sa.Column("branch_id", sa.Integer, sa.ForeignKey("branches.id", ondelete="CASCADE"), primary_key=True),
    *columns(
        ControlsRow,
        ranks=sa.JSON(),
        data=sa.Column("data", CompressedBytes, nullable=False),
    ),
)


class ControlsRepository(Store):
    """Keeps the newest controls of each branch."""

    def keep(self, branch_id: int, row: ControlsRow) -> None:
        """Store the controls of a branch in place of earlier ones."""
        with self._database.writing() as connection:
            connection.execute(sa.delete(controls).where(controls.c.branch_id == branch_id))
            insert_controls(connection, branch_id, row)

    def of_session(self, session_id: int) -> Mapping[int, bytes]:
        """The data of the branches of a session that have controls."""
        query = (
            sa.select(controls.c.branch_id, controls.c.data)
            .join(branches, branches.c.id == controls.c.branch_id)
            .where(branches.c.session_id == session_id)
        )
        with self._database.reading() as connection:
            return dict(connection.execute(query).tuples().all())

    def evidence(self) -> list[float]:
        """The e-values of the prompts that were audited one by one, each prompt's first one, oldest first."""
        query = (
            sa.select(controls.c.key, controls.c.evidence)
            .join(branches, branches.c.id == controls.c.branch_id)
            .join(sessions, sessions.c.id == branches.c.session_id)
            .where(branches.c.parent_id.is_(None), controls.c.evidence.is_not(None))
            .where(sessions.c.id.not_in(sa.select(batch_rows.c.session_id).where(batch_rows.c.session_id.is_not(None))))
            .order_by(sessions.c.id)
        )
        with self._database.reading() as connection:
            first: dict[str, float] = {}
            for key, value in connection.execute(query):
                first.setdefault(key, value)
        return list(first.values())


def insert_controls(connection: sa.Connection, branch_id: int, row: ControlsRow) -> None:
    """Store the controls of a branch that has none."""
    connection.execute(sa.insert(controls), {"branch_id": branch_id, **field_values(row, ControlsRow)})
