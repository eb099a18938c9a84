"""Reviewers' word lists and their terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from db.database import Database
from db.rows import find, to_columns, to_record
from db.tables import UserList, UserTerm
from db.types import ConflictError, utc_now


@dataclass(frozen=True, slots=True)
class UserTermRecord:
    """One term of a word list: its attribute family, and whether it stays visible instead of being masked."""

    term: str
    family: str = "other"
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserListRecord:
    """A stored word list without its terms.

    Attributes:
        id: Its id.
        name: Its name; no two lists share one.
        digest: Digest of its terms.
        created_at: When it was stored.
        term_count: Number of its terms.
    """

    id: int
    name: str
    digest: str
    created_at: datetime
    term_count: int


class UserListsRepository:
    """Adds, lists and deletes word lists; a stored list never changes."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(
        self, name: str, digest: str, terms: Sequence[UserTermRecord], replaces: int | None = None
    ) -> UserListRecord:
        """Store a word list whole.

        Args:
            name: Its name.
            digest: Digest of its terms.
            terms: Its terms, in the order in which they are shown.
            replaces: A list to delete in the same transaction, so that its name is free.

        Raises:
            ConflictError: There is a list of this name already.
            NotFoundError: There is no list to be replaced.
        """
        with self._database.session() as session:
            if replaces is not None:
                session.delete(find(session, UserList, replaces))
                session.flush()
            if _named(session, name) is not None:
                raise ConflictError(f"There is a word list “{name}” already; choose another name.")
            row = UserList(name=name, digest=digest, created_at=utc_now(), term_count=len(terms))
            session.add(row)
            session.flush()
            if terms:
                session.execute(insert(UserTerm), [_columns(row.id, at, term) for at, term in enumerate(terms)])
            return to_record(UserListRecord, row)

    def get(self, user_list_id: int) -> UserListRecord:
        """Return a word list.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.reading() as session:
            return to_record(UserListRecord, find(session, UserList, user_list_id))

    def find(self, name: str) -> UserListRecord | None:
        """Return the word list of a name, if there is one."""
        with self._database.reading() as session:
            row = _named(session, name)
            return None if row is None else to_record(UserListRecord, row)

    def list(self) -> list[UserListRecord]:
        """Return all word lists in the order of their names."""
        with self._database.reading() as session:
            rows = session.scalars(select(UserList).order_by(UserList.name))
            return [to_record(UserListRecord, row) for row in rows]

    def terms(self, user_list_id: int) -> Sequence[UserTermRecord]:
        """Return the terms of a word list in the order in which they were given.

        Raises:
            NotFoundError: There is no such list.
        """
        query = select(UserTerm).where(UserTerm.user_list_id == user_list_id).order_by(UserTerm.position)
        with self._database.reading() as session:
            find(session, UserList, user_list_id)
            return [to_record(UserTermRecord, row) for row in session.scalars(query)]

    def delete(self, user_list_id: int) -> None:
        """Delete a word list and its terms.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            session.delete(find(session, UserList, user_list_id))


def _named(session: Session, name: str) -> UserList | None:
    return session.scalars(select(UserList).where(UserList.name == name)).first()


def _columns(user_list_id: int, position: int, term: UserTermRecord) -> dict[str, object]:
    return {"user_list_id": user_list_id, "position": position, **to_columns(term, UserTermRecord)}
