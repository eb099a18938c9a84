"""The verdict logs of sessions: append-only and hash-chained, so that a report can show how a verdict came about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, select

from db.audits import branches, imported_sessions, own_branch, require_own, sessions
from db.tables import Store, add_row, change_row, columns, field_values, fields_in, find, numbered_table, project_column
from db.types import ConflictError, JsonObject, utc_now

FORMAT = 1
"""Version of what goes into a digest; it never changes for entries that are written."""

FIRST = "0" * 64
"""Stands for the digest before the first entry."""

LogContent = Mapping[str, str | int | bool | None]
"""What an entry says, in JSON's types."""


@dataclass(frozen=True, slots=True)
class LogBreak:
    """The first place at which a log does not hold together."""

    entry: int
    reason: str


def entry_digest(content: LogContent, previous: str) -> str:
    """Digest of an entry."""
    text = json.dumps(
        {**content, "format": FORMAT, "previous": previous}, sort_keys=True, ensure_ascii=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def next_link(last: Any) -> dict[str, Any]:
    """What the entry after another one begins with, before its digest is known."""
    entry, previous = (1, FIRST) if last is None else (last.entry + 1, last.digest)
    return {"id": 0, "entry": entry, "created_at": utc_now(), "previous": previous, "digest": ""}


def first_break(entries: Sequence[tuple[LogContent, str, str]]) -> LogBreak | None:
    """The first broken link of a log; None if it is whole."""
    last = FIRST
    for number, (content, previous, digest) in enumerate(entries, 1):
        if content["entry"] != number:
            return LogBreak(number, f"Entry {number} is missing: entry {content['entry']} stands in its place.")
        if previous != last:
            return LogBreak(number, f"Entry {number} does not follow the entry before it: one of them was replaced.")
        if entry_digest(content, previous) != digest:
            return LogBreak(number, f"Entry {number} was changed after it was written: its digest does not fit.")
        last = digest
    return None


Verdict = Literal["fair", "unfair", "unclear"]
"""What a reviewer may say of a session, branch, span of steps or step."""

LogKind = Literal["verdict", "adjudication", "review_started", "review_finished", "comment"]
"""Kinds of entries of a verdict log."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a verdict is about."""

    branch: str | None = None
    branch_id: int | None = None
    first_step: int | None = None
    last_step: int | None = None

    @property
    def kind(self) -> str:
        """``session``, ``branch``, ``token`` or ``span``."""
        if self.branch is None:
            return "session"
        if self.first_step is None:
            return "branch"
        return "token" if self.first_step == self.last_step else "span"

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells targets of one session apart; sorts from the whole to its parts, then by position."""
        return (
            self.branch or "",
            -1 if self.first_step is None else self.first_step,
            -1 if self.last_step is None else self.last_step,
        )

    @property
    def label(self) -> str:
        """The target in words; steps count from 1."""
        return self.named(f"branch {self.branch}")

    def named(self, branch: str) -> str:
        """The target in words with another name for its branch; no name leaves the branch out."""
        if self.kind == "session":
            return "the whole session"
        if self.first_step is None or self.last_step is None:
            return branch or "the whole chain"
        steps = f"step {self.first_step + 1}"
        if self.kind == "span":
            steps = f"steps {self.first_step + 1}\N{EN DASH}{self.last_step + 1}"
        return f"{steps} of {branch}" if branch else steps

    def covers(self, branch: str, step: int) -> bool:
        """Whether it is about a step of a branch, alone or among others."""
        if self.branch != branch or self.first_step is None or self.last_step is None:
            return False
        return self.first_step <= step <= self.last_step


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationFields:
    """What the caller says of one entry of a session's verdict log."""

    session_id: int
    reviewer: str = ""
    kind: LogKind = "verdict"
    branch_id: int | None = None
    step_index: int | None = None
    last_step_index: int | None = None
    verdict: Verdict | None = None
    note: str = ""
    tag: str = ""
    blind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRecord(AnnotationFields):
    """A stored entry of a session's verdict log."""

    id: int
    branch_path: str | None
    entry: int
    created_at: datetime
    previous: str
    digest: str
    source_session_id: int | None = None

    @property
    def target(self) -> Target:
        """What it is about."""
        return Target(self.branch_path, self.branch_id, self.step_index, self.last_step_index)

    @property
    def judges(self) -> bool:
        """Whether it is a verdict on its target or a decision; other entries are comments, or begin and end reviews."""
        return self.kind in ("verdict", "adjudication")

    @property
    def speaks(self) -> bool:
        """Whether it says something of its target, be it a comment; other entries begin and end reviews."""
        return self.judges or self.kind == "comment"

    @property
    def content(self) -> LogContent:
        """What its digest covers: nothing that only this store knows, so that a copy can be checked elsewhere."""
        return {
            "session": self.session_id if self.source_session_id is None else self.source_session_id,
            "entry": self.entry,
            "kind": self.kind,
            "branch": self.branch_path,
            "first_step": self.step_index,
            "last_step": self.last_step_index,
            "verdict": self.verdict,
            "note": self.note,
            "tag": self.tag,
            "reviewer": self.reviewer,
            "blind": self.blind,
            "at": self.created_at.astimezone(UTC).isoformat(),
        }


log_entries = numbered_table(
    "annotations",
    "annotation",
    *columns(
        AnnotationRecord,
        branch_path=None,
        source_session_id=None,
        session_id=ForeignKey("audit_sessions.id", ondelete="CASCADE"),
        branch_id=ForeignKey("branches.id", ondelete="CASCADE"),
    ),
    Index(None, "session_id", "branch_id", "step_index"),
    Index(None, "branch_id"),
    UniqueConstraint("session_id", "entry"),
    CheckConstraint(
        "kind IN ('verdict', 'adjudication', 'review_started', 'review_finished', 'comment')", name="known_kind"
    ),
    CheckConstraint("verdict IN ('fair', 'unfair', 'unclear')", name="known_verdict"),
    CheckConstraint("step_index IS NULL OR branch_id IS NOT NULL", name="step_has_branch"),
    CheckConstraint("(step_index IS NULL) = (last_step_index IS NULL)", name="span_has_ends"),
    CheckConstraint("last_step_index >= step_index", name="span_in_order"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What a deleted session leaves of its verdict log; the store writes it by itself."""

    id: int
    session_id: int
    entries: int
    head: str
    deleted_at: datetime

    @property
    def line(self) -> str:
        """What it says, on one line."""
        return f"session {self.session_id}  {self.entries:>4} entries  {self.deleted_at:%Y-%m-%d %H:%M}  {self.head}"

    @property
    def plain(self) -> JsonObject:
        """What it says, as plain JSON."""
        return {**asdict(self), "deleted_at": self.deleted_at.isoformat()}


tombstones = numbered_table(
    "verdict_tombstones",
    "tombstone",
    *columns(Tombstone),
    project_column(),
    UniqueConstraint("session_id"),
)

entries = (
    select(
        *fields_in(AnnotationRecord, log_entries),
        branches.c.path.label("branch_path"),
        imported_sessions.c.source_session_id,
    )
    .join_from(log_entries, branches, branches.c.id == log_entries.c.branch_id, isouter=True)
    .join(imported_sessions, imported_sessions.c.session_id == log_entries.c.session_id, isouter=True)
)
"""Reads the fields of :class:`AnnotationRecord`."""


NOT_STORED = ("id", "branch_path", "source_session_id")
"""Fields of an entry that other tables or the store itself tell."""


class AnnotationsRepository(Store):
    """Adds to and reads verdict logs; nothing is ever changed or removed singly, which triggers of the store hold."""

    def add(self, fields: AnnotationFields) -> AnnotationRecord:
        """Add an entry at the end of a session's log."""
        if fields.step_index is not None and fields.branch_id is None:
            raise ConflictError("A verdict on a step needs the branch that the step is on; give both.")
        with self._database.writing() as connection:
            # Two writers must not both follow the same entry; the session's row is what they wait for.
            session_id = find(connection, sessions, fields.session_id, lock=True).id
            require_own(connection, session_id)
            path = None if fields.branch_id is None else own_branch(connection, session_id, fields.branch_id).path
            of_session = log_entries.c.session_id == session_id
            newest = select(log_entries).where(of_session).order_by(log_entries.c.entry.desc()).limit(1)
            last = connection.execute(newest).one_or_none()
            draft = AnnotationRecord(**field_values(fields, AnnotationFields), branch_path=path, **next_link(last))
            entry = replace(draft, digest=entry_digest(draft.content, draft.previous))
            key = add_row(connection, log_entries, **field_values(entry, AnnotationRecord, NOT_STORED))
            change_row(connection, sessions, session_id, updated_at=entry.created_at)
            return replace(entry, id=key)

    def history(self, session_id: int) -> Sequence[AnnotationRecord]:
        """Return a session's whole log, oldest entry first."""
        query = entries.where(log_entries.c.session_id == session_id).order_by(log_entries.c.entry)
        with self._database.reading() as connection:
            find(connection, sessions, session_id)
            return [AnnotationRecord(**row._asdict()) for row in connection.execute(query)]

    def histories(self) -> Mapping[int, Sequence[AnnotationRecord]]:
        """Return all logs by session, oldest entry first; sessions without an entry are left out."""
        query = entries.order_by(log_entries.c.session_id, log_entries.c.entry)
        found = self._read(AnnotationRecord, query)
        return {session: list(log) for session, log in groupby(found, key=attrgetter("session_id"))}

    def tombstones(self) -> Sequence[Tombstone]:
        """Return what deleted sessions left of their logs, in the order of deletion."""
        return self._read(Tombstone, select(*fields_in(Tombstone, tombstones)).order_by(tombstones.c.id))

    def reviewers(self) -> Sequence[str]:
        """Return everybody who has written into a log, sorted."""
        query = select(log_entries.c.reviewer).distinct().order_by(log_entries.c.reviewer)
        return self._scalars(query)
