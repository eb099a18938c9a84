"""Audit sessions with their spans, branches and steps."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, func, insert, select

from coft_core.types import Span
from db.audits import (
    BranchRecord,
    SessionFields,
    SessionOrigin,
    SessionRecord,
    SessionSummary,
    active_branch_record,
    branch_record,
    branches,
    claim_row,
    own_branch,
    require_calibration,
    require_own,
    session_origin,
    session_record,
    session_spans,
    sessions,
    touch,
)
from db.chains import BranchChains, StepWriter, chain_length
from db.database import Database
from db.library import active_length, names_it
from db.tables import Repository, add_row, change_row, field_values, fields_in, find
from db.types import ConflictError, JsonObject, utc_now


class SessionsRepository(Repository[SessionRecord], BranchChains):
    """Keeps audit sessions; steps are only ever added, never changed or taken back."""

    _table = sessions

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._steps = StepWriter(database)

    def create(
        self, fields: SessionFields, spans: Sequence[Span] = (), root_path: str = "0", root_name: str = ""
    ) -> SessionRecord:
        """Store a new session with all spans of its prompt and an empty root branch, which is its active one."""
        now = utc_now()
        with self._database.writing() as connection:
            columns = field_values(fields, SessionFields, leave_out=("batch",))
            key = add_row(connection, sessions, **columns, created_at=now, updated_at=now)
            if spans:
                rows = [
                    {"session_id": key, "position": position, **field_values(span, Span)}
                    for position, span in enumerate(spans)
                ]
                connection.execute(insert(session_spans), rows)
            if fields.batch is not None:
                claim_row(connection, fields.batch, key)
            root = add_row(connection, branches, session_id=key, path=root_path, name=root_name, created_at=now)
            change_row(connection, sessions, key, active_branch_id=root)
            return session_record(connection, key)

    def delete(self, key: int, /) -> None:
        """Delete a session with its branches, steps and verdicts."""
        super().delete(key)

    def list(self, search: str | None = None, limit: int = 100, offset: int = 0) -> list[SessionSummary]:
        """Return sessions, last changed first; ``search`` asks for a text in name, prompt or model, in any case."""
        query = (
            select(*fields_in(SessionSummary, sessions), active_length().label("steps"))
            .where(*_found(search))
            .order_by(sessions.c.updated_at.desc(), sessions.c.id.desc())
            .limit(limit)
            .offset(offset)
        )
        return self._read(SessionSummary, query)

    def count(self, search: str | None = None) -> int:
        """Return how many sessions :meth:`list` would give without a limit."""
        return self._scalar(int, select(func.count()).select_from(sessions).where(*_found(search))) or 0

    def rename(self, session_id: int, name: str) -> SessionRecord:
        """Change a session's name."""
        with self._database.writing() as connection:
            require_own(connection, session_id)
            change_row(connection, sessions, session_id, name=name, updated_at=utc_now())
            return session_record(connection, session_id)

    def origin(self, session_id: int) -> SessionOrigin | None:
        """Return where a session came from; None where it was made here."""
        with self._database.reading() as connection:
            return session_origin(connection, session_id)

    def require_own(self, session_id: int) -> None:
        """Refuse to change what was imported."""
        with self._database.reading() as connection:
            require_own(connection, session_id)

    def add_computation(self, session_id: int, computation: JsonObject) -> None:
        """Add a way in which steps of a session were computed, unless it is there; nothing else changes."""
        with self._database.writing() as connection:
            settings = find(connection, sessions, session_id, lock=True).policy_settings
            known = [*settings.get("computed", ())]
            if computation not in known:
                changed = {**settings, "computed": [*known, computation]}
                change_row(connection, sessions, session_id, policy_settings=changed)

    def set_active_branch(self, session_id: int, branch_id: int) -> SessionRecord:
        """Choose the branch that the session reopens with."""
        with self._database.writing() as connection:
            find(connection, sessions, session_id)
            own_branch(connection, session_id, branch_id)
            change_row(connection, sessions, session_id, active_branch_id=branch_id, updated_at=utc_now())
            return session_record(connection, session_id)

    def add_branch(self, session_id: int, parent_id: int, fork_step: int, path: str, name: str = "") -> BranchRecord:
        """Store a new branch that departs from a parent; the active branch stays as it is."""
        with self._database.writing() as connection:
            require_own(connection, session_id)
            parent = own_branch(connection, session_id, parent_id)
            length = chain_length(connection, parent.id, parent.fork_step)
            if not 0 <= fork_step <= length:
                raise ConflictError(
                    f"A branch cannot depart at step {fork_step} of branch {parent_id}, "
                    f"which has {length} steps; choose a step from 0 to {length}."
                )
            taken = select(branches.c.id).where(branches.c.session_id == session_id, branches.c.path == path)
            if connection.execute(taken).first() is not None:
                raise ConflictError(f"Audit session {session_id} already has the branch {path}; open that one.")
            owner = find(connection, sessions, session_id)
            require_calibration(owner.calibration_id, owner.calibration_label)
            row = {"session_id": session_id, "parent_id": parent_id, "fork_step": fork_step, "path": path, "name": name}
            key = add_row(connection, branches, **row, created_at=utc_now())
            touch(connection, session_id)
            return branch_record(connection, key)

    def branch(self, branch_id: int) -> BranchRecord:
        """Return a branch."""
        with self._database.reading() as connection:
            return branch_record(connection, branch_id)

    def active_branch(self, session_id: int) -> BranchRecord:
        """Return the branch with which a session reopens."""
        with self._database.reading() as connection:
            return active_branch_record(connection, session_id)

    def branches(self, session_id: int) -> Sequence[BranchRecord]:
        """Return the branches of a session, the root first."""
        query = select(branches).where(branches.c.session_id == session_id).order_by(branches.c.id)
        with self._database.reading() as connection:
            find(connection, sessions, session_id)
            return [BranchRecord(**row._asdict()) for row in connection.execute(query)]

    def set_finished(self, branch_id: int, finished: str | None) -> BranchRecord:
        """Write why a branch ended, or None to let it go on."""
        with self._database.writing() as connection:
            branch = branch_record(connection, branch_id)
            require_own(connection, branch.session_id)
            change_row(connection, branches, branch_id, finished=finished)
            branch = branch_record(connection, branch_id)
            touch(connection, branch.session_id)
            return branch

    def _one(self, connection: Connection, key: int) -> SessionRecord:
        return session_record(connection, key)


def _found(search: str | None) -> list[ColumnElement[bool]]:
    """The condition on sessions that have a text; none without a text."""
    return [names_it(search.strip())] if search and search.strip() else []
