"""Reviewers' word lists and their terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, ForeignKey, Integer, Table, UniqueConstraint, delete, insert, select

from coft_core.types import UserTerm
from db.tables import METADATA, Repository, add_row, columns, field_values, fields_in, find, project_table
from db.types import ConflictError, utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class UserListRecord:
    """A stored word list without its terms; no two lists of a project share a name."""

    id: int
    name: str
    digest: str
    created_at: datetime
    term_count: int


user_lists = project_table(
    "user_lists",
    "word list",
    *columns(UserListRecord),
    UniqueConstraint("project_id", "name"),
)

user_terms = Table(
    "user_terms",
    METADATA,
    Column("user_list_id", Integer, ForeignKey("user_lists.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    *columns(UserTerm),
)


class UserListsRepository(Repository[UserListRecord]):
    """Adds, lists and deletes word lists; a stored list never changes, so that what rests on it stays true."""

    _table, _kind = user_lists, UserListRecord
    _query = select(*fields_in(UserListRecord, user_lists))

    def add(self, name: str, digest: str, terms: Sequence[UserTerm], replaces: int | None = None) -> UserListRecord:
        """Store a word list whole, in the place of the list that it replaces, if any."""
        with self._database.writing() as connection:
            if replaces is not None:
                find(connection, user_lists, replaces)
                connection.execute(delete(user_lists).where(user_lists.c.id == replaces))
            if self._records(connection, self._query.where(user_lists.c.name == name)):
                raise ConflictError(f"There is a word list “{name}” already; choose another name.")
            told = {"name": name, "digest": digest, "created_at": utc_now(), "term_count": len(terms)}
            key = add_row(connection, user_lists, **told)
            if terms:
                rows = [
                    {"user_list_id": key, "position": position, **field_values(term, UserTerm)}
                    for position, term in enumerate(terms)
                ]
                connection.execute(insert(user_terms), rows)
            return self._one(connection, key)

    def find(self, name: str) -> UserListRecord | None:
        """Return the word list of a name, if there is one."""
        return self._found(user_lists.c.name == name)

    def list(self) -> list[UserListRecord]:
        """Return all word lists in the order of their names."""
        return self._listed(self._query.order_by(user_lists.c.name))

    def terms(self, user_list_id: int) -> Sequence[UserTerm]:
        """Return the terms of a word list in the order in which they were given."""
        query = select(*fields_in(UserTerm, user_terms)).where(user_terms.c.user_list_id == user_list_id)
        with self._database.reading() as connection:
            find(connection, user_lists, user_list_id)
            return [UserTerm(*row) for row in connection.execute(query.order_by(user_terms.c.position))]
