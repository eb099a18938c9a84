"""Audit sessions with their spans, branches and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, select

from db.batches import claim_row
from db.chains import (
    StepWriter,
    active_branch_row,
    branch_row,
    chain_length,
    load_beginnings,
    load_chain,
    load_outlines,
    own_branch,
)
from db.database import Database
from db.library import active_length, names_it
from db.records import (
    BatchPlaceRecord,
    BranchOutlineRecord,
    BranchRecord,
    JsonObject,
    SessionBeginning,
    SessionFields,
    SessionRecord,
    SessionSummary,
    SpanRecord,
    StepRecord,
)
from db.rows import find, missing, require_calibration, to_columns, to_record
from db.tables import AuditSession, BatchRow, Branch, SessionSpan
from db.types import ConflictError, utc_now


def _table(kind: Any) -> Table:
    found: Table = kind.__table__
    return found


_sessions, _spans, _places = _table(AuditSession), _table(SessionSpan), _table(BatchRow)
_SESSION = select(_sessions).where(_sessions.c.id == bindparam("own"))
_SPANS = select(_spans).where(_spans.c.session_id == bindparam("own")).order_by(_spans.c.position)
_PLACE = select(_places.c.batch_id, _places.c.line).where(_places.c.session_id == bindparam("own"))


def session_row(connection: Connection, session_id: int) -> SessionRecord:
    """Return a session with its spans and its place in a batch; pages ask for it at every frame.

    Raises:
        NotFoundError: There is none with this id.
    """
    own = {"own": session_id}
    row = connection.execute(_SESSION, own).one_or_none()
    if row is None:
        raise missing(AuditSession, session_id)
    place = connection.execute(_PLACE, own).one_or_none()
    return to_record(
        SessionRecord,
        row,
        warnings=tuple(row.warnings),
        batch=None if place is None else to_record(BatchPlaceRecord, place),
        spans=tuple(to_record(SpanRecord, span) for span in connection.execute(_SPANS, own)),
    )


def record_of(row: AuditSession) -> SessionRecord:
    """The record of a mapped session."""
    return to_record(
        SessionRecord,
        row,
        warnings=tuple(row.warnings),
        batch=None if row.batch_row is None else to_record(BatchPlaceRecord, row.batch_row),
        spans=tuple(to_record(SpanRecord, span) for span in row.spans),
    )


class SessionsRepository:
    """Keeps audit sessions; steps are only ever added, never changed or taken back."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database
        self._steps = StepWriter(database)

    def create(
        self,
        fields: SessionFields,
        spans: Sequence[SpanRecord] = (),
        root_path: str = "0",
        root_name: str = "",
    ) -> SessionRecord:
        """Store a new session with an empty root branch, which is its active one.

        Args:
            fields: What it is.
            spans: Sensitive spans of the prompt, kept ones included.
            root_path: Path of the root branch, the key of its random draws.
            root_name: What the reviewer calls the root branch.

        Raises:
            NotFoundError: There is no such row of a batch.
            ConflictError: The calibration does not exist, a span is empty, or the row of its batch has had a session.
        """
        now = utc_now()
        columns = to_columns(fields, SessionFields, leave_out=("warnings", "batch"))
        with self._database.session() as session:
            row = AuditSession(**columns, warnings=list(fields.warnings), created_at=now, updated_at=now)
            row.spans = [
                SessionSpan(position=position, **to_columns(span, SpanRecord)) for position, span in enumerate(spans)
            ]
            session.add(row)
            session.flush()
            if fields.batch is not None:
                claim_row(session, fields.batch, row.id)
            root = Branch(session_id=row.id, path=root_path, name=root_name, created_at=now)
            session.add(root)
            session.flush()
            row.active_branch_id = root.id
            return record_of(row)

    def get(self, session_id: int) -> SessionRecord:
        """Return a session with its spans.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.statements("read") as connection:
            return session_row(connection, session_id)

    def list(self, search: str | None = None, limit: int = 100, offset: int = 0) -> list[SessionSummary]:
        """Return sessions, last changed first.

        Args:
            search: Only sessions with this text in their name, prompt or model, in any case.
            limit: At most so many.
            offset: After skipping so many.
        """
        names = [name for name in SessionSummary.__dataclass_fields__ if name != "step_count"]
        columns = [getattr(AuditSession, name) for name in names]
        query = (
            select(*columns, active_length().label("step_count"))
            .order_by(AuditSession.updated_at.desc(), AuditSession.id.desc())
            .limit(limit)
            .offset(offset)
        )
        if search and search.strip():
            query = query.where(names_it(search.strip()))
        with self._database.reading() as session:
            return [to_record(SessionSummary, row) for row in session.execute(query)]

    def count(self, search: str | None = None) -> int:
        """Return how many sessions :meth:`list` would give without a limit."""
        query = select(func.count()).select_from(AuditSession)
        if search and search.strip():
            query = query.where(names_it(search.strip()))
        with self._database.reading() as session:
            return session.scalars(query).one()

    def delete(self, session_id: int) -> None:
        """Delete a session with its branches, steps and annotations.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            session.delete(find(session, AuditSession, session_id))

    def rename(self, session_id: int, name: str) -> SessionRecord:
        """Change a session's name.

        Raises:
            NotFoundError: There is none with this id.
        """
        return self._change(session_id, name=name)

    def set_status(self, session_id: int, status: str) -> SessionRecord:
        """Change where a session stands.

        Raises:
            NotFoundError: There is none with this id.
        """
        return self._change(session_id, status=status)

    def add_computation(self, session_id: int, computation: JsonObject) -> None:
        """Add a way in which steps of a session were computed, unless it is there; nothing else changes.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            row = find(session, AuditSession, session_id)
            known = list(row.policy_settings.get("computed", ()))
            if computation not in known:
                row.policy_settings = {**row.policy_settings, "computed": [*known, computation]}

    def set_active_branch(self, session_id: int, branch_id: int) -> SessionRecord:
        """Choose the branch that the session reopens with.

        Raises:
            NotFoundError: There is no such session or branch.
            ConflictError: The branch belongs to another session.
        """
        with self._database.session() as session:
            row = find(session, AuditSession, session_id)
            row.active_branch_id = own_branch(session, session_id, branch_id).id
            row.updated_at = utc_now()
            return record_of(row)

    def add_branch(self, session_id: int, parent_id: int, fork_step: int, path: str, name: str = "") -> BranchRecord:
        """Store a new branch that departs from a parent; the active branch stays as it is.

        Args:
            session_id: The session.
            parent_id: The branch from whose chain it departs.
            fork_step: Index of the first step of its own, at most the parent's chain length.
            path: Key of its random draws; unique in the session.
            name: What the reviewer calls it.

        Raises:
            NotFoundError: There is no such parent.
            CalibrationDeletedError: The session's calibration is no longer stored.
            ConflictError: The parent belongs to another session, the fork step lies outside its
                chain, or the path is taken.
        """
        with self._database.session() as session:
            parent = own_branch(session, session_id, parent_id)
            length = chain_length(session, parent)
            if not 0 <= fork_step <= length:
                raise ConflictError(
                    f"A branch cannot depart at step {fork_step} of branch {parent_id}, "
                    f"which has {length} steps; choose a step from 0 to {length}."
                )
            taken = session.scalars(select(Branch.id).filter_by(session_id=session_id, path=path)).first()
            if taken is not None:
                raise ConflictError(f"Audit session {session_id} already has the branch {path}; open that one.")
            owner = find(session, AuditSession, session_id)
            require_calibration(owner.calibration_id, owner.calibration_label)
            now = utc_now()
            row = Branch(
                session_id=session_id,
                parent_id=parent_id,
                fork_step=fork_step,
                path=path,
                name=name,
                created_at=now,
            )
            session.add(row)
            owner.updated_at = now
            session.flush()
            return to_record(BranchRecord, row)

    def branch(self, branch_id: int) -> BranchRecord:
        """Return a branch.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.statements("read") as connection:
            return branch_row(connection, branch_id)

    def active_branch(self, session_id: int) -> BranchRecord:
        """Return the branch with which a session reopens.

        Raises:
            NotFoundError: There is no such session.
        """
        with self._database.statements("read") as connection:
            return active_branch_row(connection, session_id)

    def branches(self, session_id: int) -> Sequence[BranchRecord]:
        """Return the branches of a session, the root first.

        Raises:
            NotFoundError: There is no such session.
        """
        with self._database.reading() as session:
            find(session, AuditSession, session_id)
            query = select(Branch).where(Branch.session_id == session_id).order_by(Branch.id)
            return [to_record(BranchRecord, row) for row in session.scalars(query)]

    def outlines(self, session_id: int) -> Mapping[int, BranchOutlineRecord]:
        """Return length and departing token of each branch of a session, by its id; no chain is loaded."""
        with self._database.reading() as session:
            return load_outlines(session, session_id)

    def set_finished(self, branch_id: int, finished: str | None) -> BranchRecord:
        """Write why a branch ended, or None to let it go on.

        Raises:
            NotFoundError: There is no such branch.
        """
        with self._database.session() as session:
            row = find(session, Branch, branch_id)
            row.finished = finished
            find(session, AuditSession, row.session_id).updated_at = utc_now()
            return to_record(BranchRecord, row)

    def append_step(self, branch_id: int, step: StepRecord) -> StepRecord:
        """Store the next step of a branch with its candidates; durable on return.

        Args:
            branch_id: The branch.
            step: The step; its index is the present length of the branch's chain. Its ``id``,
                ``branch_id`` and ``created_at`` are ignored.

        Returns:
            The step with these three filled in.

        Raises:
            NotFoundError: There is no such branch.
            ConflictError: The step is not the next one.
            UnstorableValueError: A number is NaN.
        """
        return self._steps.append(branch_id, step)

    def chain(self, branch_id: int, with_logits: bool = False, first: int = 0) -> Sequence[StepRecord]:
        """Return the chain of a branch, its ancestors' part first, candidates included.

        Args:
            branch_id: The branch.
            with_logits: Whether the steps' logits are read too; they are much larger than all the rest.
            first: Index of the first step that is asked for; 0 gives the whole chain.

        Raises:
            NotFoundError: There is no such branch.
        """
        with self._database.reading() as session:
            return load_chain(session, branch_id, with_logits, first)

    def beginnings(self, calibration_id: int, steps: int) -> Sequence[SessionBeginning]:
        """Return the first steps, at most so many, of each root branch that uses a calibration, oldest first."""
        with self._database.reading() as session:
            return load_beginnings(session, calibration_id, steps)

    def _change(self, session_id: int, **columns: str) -> SessionRecord:
        with self._database.session() as session:
            row = find(session, AuditSession, session_id)
            for name, value in columns.items():
                setattr(row, name, value)
            row.updated_at = utc_now()
            return record_of(row)
