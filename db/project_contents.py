"""What belongs to a project, counted, and deleted together with it in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from db.accounts import tokens
from db.audits import branches, sessions
from db.evaluations import sweep_contents
from db.jobs import UNFINISHED, jobs
from db.projects import projects
from db.schema import every_table, roots
from db.scope import DEFAULT, PROJECT, in_every_project
from db.tables import Store, fields_in, find
from db.types import ConflictError, utc_now
from db.verdicts import Tombstone, log_entries, tombstones


@dataclass(frozen=True, slots=True)
class ProjectExtent:
    """What belongs to a project."""

    rows: Mapping[str, int]
    verdicts: int
    running: int

    @property
    def sessions(self) -> int:
        """How many sessions it has."""
        return self.rows.get("audit_sessions", 0)


class ProjectContents(Store):
    """Counts and deletes what belongs to a project, without asking who is a member of it."""

    def extent(self, project_id: int) -> ProjectExtent:
        """Return how much belongs to a project."""
        entries = (
            sa.select(sa.func.count())
            .select_from(log_entries)
            .join(sessions, sessions.c.id == log_entries.c.session_id)
            .where(_of(sessions, project_id))
        )
        going = sa.select(sa.func.count()).select_from(jobs).where(_of(jobs, project_id), jobs.c.status.in_(UNFINISHED))
        with in_every_project(), self._database.reading() as connection:
            rows = {one.name: connection.scalar(_count(one, project_id)) or 0 for one in _contents()}
            there = {name: int(number) for name, number in rows.items() if number}
            return ProjectExtent(there, int(connection.scalar(entries) or 0), int(connection.scalar(going) or 0))

    def chains(self, project_id: int) -> Mapping[int, Sequence[int]]:
        """Return the branches of a project's sessions, by session."""
        query = (
            sa.select(branches.c.session_id, branches.c.id)
            .join(sessions, sessions.c.id == branches.c.session_id)
            .where(_of(sessions, project_id))
        )
        found: dict[int, list[int]] = {}
        with in_every_project(), self._database.reading() as connection:
            for session, branch in connection.execute(query):
                found.setdefault(session, []).append(branch)
        return found

    def delete(self, project_id: int) -> None:
        """Delete a project with all that belongs to it; of verdict logs there stays what deleted sessions leave.

        Tokens that open only this project are revoked.
        """
        if project_id == DEFAULT:
            raise ConflictError("The first project cannot be deleted: what names no project belongs to it.")
        with in_every_project(), self._database.together():
            with self._database.writing() as connection:
                name = find(connection, projects, project_id, lock=True).name
                going = sa.select(jobs.c.id).where(_of(jobs, project_id), jobs.c.status.in_(UNFINISHED))
                if connection.execute(going.limit(1)).first() is not None:
                    raise ConflictError(f"Jobs of “{name}” are at work or wait; cancel them, or wait for them.")
                for one in _contents():
                    connection.execute(sa.delete(one).where(_of(one, project_id)))
                bound = sa.update(tokens).where(tokens.c.project_id == project_id, tokens.c.revoked_at.is_(None))
                connection.execute(bound.values(revoked_at=utc_now()))
                connection.execute(sa.delete(projects).where(projects.c.id == project_id))
            sweep_contents(self._database)

    def left(self) -> Sequence[Tombstone]:
        """Return what verdict logs of projects that are gone have left, in the order of deletion."""
        query = sa.select(*fields_in(Tombstone, tombstones)).where(
            tombstones.c[PROJECT].not_in(sa.select(projects.c.id))
        )
        with in_every_project(), self._database.reading() as connection:
            return [Tombstone(**row._asdict()) for row in connection.execute(query.order_by(tombstones.c.id))]


def _contents() -> list[sa.Table]:
    """What a project consists of; a prompt set cannot be deleted before the batches that are made of it."""
    return [every_table()[name] for name in sorted(roots(), key="prompt_sets".__eq__)]


def _of(rows: sa.FromClause, project_id: int) -> sa.ColumnElement[bool]:
    belongs: sa.ColumnElement[bool] = rows.c[PROJECT] == project_id
    return belongs


def _count(rows: sa.Table, project_id: int) -> sa.Select[int]:
    return sa.select(sa.func.count()).select_from(rows).where(_of(rows, project_id))
