"""Projects: only members see what belongs to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from db.accounts import AccountRecord, accounts
from db.scope import DEFAULT
from db.tables import METADATA, Records, add_row, change_row, columns, fields_in, find, numbered_table, one_writer
from db.types import AnyText, ConflictError, NotFoundError, UtcDateTime, utc_now

DEFAULT_NAME = "Default"
_NAMES_LOCK = 0x70726F6A


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRecord:
    """What sessions, calibrations, lists, batches and the like belong to."""

    id: int
    name: str
    created_at: datetime


projects = numbered_table(
    "projects",
    "project",
    *columns(ProjectRecord),
    sa.UniqueConstraint("name"),
)

lowered_name = sa.func.lower(projects.c.name, type_=AnyText())

members = sa.Table(
    "project_members",
    METADATA,
    sa.Column("project_id", sa.Integer, sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("account_id", sa.Integer, sa.ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("added_at", UtcDateTime, nullable=False),
    sa.Index(None, "account_id"),
)
"""Which accounts see a project; what they may do there is what their roles allow."""


class ProjectsRepository(Records[ProjectRecord]):
    """Keeps projects and their members; :class:`db.project_contents.ProjectContents` deletes one with its contents."""

    _table, _kind = projects, ProjectRecord
    _query = sa.select(*fields_in(ProjectRecord, projects)).order_by(projects.c.id != DEFAULT, projects.c.name)

    def add(self, name: str) -> ProjectRecord:
        """Store a new project without members."""
        with self._database.writing() as connection:
            self._require_free(connection, name)
            return self._one(connection, add_row(connection, projects, name=name, created_at=utc_now()))

    def rename(self, key: int, name: str) -> ProjectRecord:
        """Change a project's name."""
        with self._database.writing() as connection:
            self._require_free(connection, name, key)
            change_row(connection, projects, key, name=name)
            return self._one(connection, key)

    def named(self, name: str) -> ProjectRecord:
        """Return the project of a name, in whatever case."""
        found = self._found(lowered_name == name.lower())
        if found is None:
            raise NotFoundError(f"There is no project {name!r:.100}.")
        return found

    def list(self) -> Sequence[ProjectRecord]:
        """Return all projects, the first one before the others by name."""
        return self._listed(self._query)

    def of_account(self, account_id: int) -> Sequence[ProjectRecord]:
        """Return the projects that an account is a member of, in the same order."""
        own = sa.select(members.c.project_id).where(members.c.account_id == account_id)
        return self._listed(self._query.where(projects.c.id.in_(own)))

    def members(self, key: int) -> Sequence[AccountRecord]:
        """Return the members of a project by name, disabled ones too."""
        query = (
            sa.select(*fields_in(AccountRecord, accounts))
            .join_from(accounts, members, members.c.account_id == accounts.c.id)
            .where(members.c.project_id == key)
            .order_by(accounts.c.name)
        )
        return self._read(AccountRecord, query)

    def add_member(self, key: int, account_id: int) -> bool:
        """Let an account see a project; False where it does already."""
        same = members.c.project_id == key, members.c.account_id == account_id
        with self._database.writing() as connection:
            find(connection, projects, key, lock=True)
            if connection.execute(sa.select(members.c.account_id).where(*same)).first() is not None:
                return False
            row = {"project_id": key, "account_id": account_id, "added_at": utc_now()}
            connection.execute(sa.insert(members).values(**row))
            return True

    def remove_member(self, key: int, account_id: int) -> bool:
        """Let an account see a project no longer, from its next request on; False where it did not."""
        same = members.c.project_id == key, members.c.account_id == account_id
        return bool(self._run(sa.delete(members).where(*same)))

    def _require_free(self, connection: sa.Connection, name: str, key: int | None = None) -> None:
        # Two writers must not both find a name free that differs in case alone.
        one_writer(connection, _NAMES_LOCK)
        same = connection.execute(sa.select(projects.c.id).where(lowered_name == name.lower())).first()
        if same is not None and same.id != key:
            raise ConflictError(f"There is a project {name!r} already; choose another name.")
