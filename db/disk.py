"""What the rows of each account take in the store: measured when somebody asks.

Whatever is made in a project has one row that all else of it hangs on: a session has branches, steps and a log, a
prompt set has rows. That row says whose it is. An outcome that several evaluations name is counted to each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import JSON, ColumnElement, LargeBinary, Select, String, Table, cast, func, literal, select
from sqlalchemy.types import TypeDecorator

from db.schema import every_table
from db.scope import ACCOUNT, PROJECT, SHARED, WHOLE, owner_of, referred
from db.tables import Store

ROW_BYTES = 100
"""What a row takes beside its texts and bytes: its header, its numbers, and its entries in indexes."""


class DiskRepository(Store):
    """Says what accounts have in the store, all projects together."""

    @property
    def of_all(self) -> int:
        """Bytes of the whole store, as :attr:`Database.used_bytes` has them."""
        return self._database.used_bytes

    def of_account(self, account_id: int) -> int:
        """Return the bytes of everything that an account made."""
        return sum(self._measured(account_id).get(account_id, {}).values())

    def by_account(self) -> Mapping[int | None, Mapping[str, int]]:
        """Return bytes by account and table; under None what was made where nobody was signed in."""
        return self._measured()

    def _measured(self, account_id: int | None = None) -> dict[int | None, dict[str, int]]:
        found: defaultdict[int | None, dict[str, int]] = defaultdict(dict)
        with self._database.reading() as connection:
            for root, query in _sums(connection.dialect.name):
                if account_id is not None:
                    query = query.where(root.c[ACCOUNT] == account_id)
                for owner, total in connection.execute(query):
                    found[owner][root.name] = found[owner].get(root.name, 0) + int(total)
        return dict(found)


def _sums(dialect: str) -> Iterator[tuple[Table, Select[int | None, int]]]:
    """For each table of projects: the one that its rows hang on, and their bytes by the account of that row."""
    tables = every_table()
    contents = tables["evaluation_contents"]
    for name in sorted({*tables} - SHARED - {"verdict_tombstones"}):
        rows, size, links = tables[name], _size(dialect, tables[name]), []
        if name.startswith("evaluation_"):
            size = size + _length(dialect, contents.c.content)
            links.append(contents.c.key == rows.c.key)
        root = rows
        while (owner := owner_of(root)) is not None and owner.name != PROJECT:
            links.append(owner == referred(owner))
            root = referred(owner).table
        query = select(root.c[ACCOUNT], func.sum(size)).where(*links).group_by(root.c[ACCOUNT])
        yield root, query.execution_options(**WHOLE)


def _size(dialect: str, rows: Table) -> ColumnElement[int]:
    """What one row takes."""
    size: ColumnElement[int] = literal(ROW_BYTES)
    for column in rows.c:
        kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
        if isinstance(kind, (String, JSON, LargeBinary)):
            size = size + func.coalesce(_length(dialect, column), 0)
    return size


def _length(dialect: str, column: ColumnElement[Any]) -> ColumnElement[int]:
    """How many bytes a text, JSON or bytes take; of bytes nothing is read that lies apart from its row."""
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    if dialect == "postgresql":
        return func.octet_length(column if isinstance(kind, LargeBinary) else cast(column, String))
    return func.length(column if isinstance(kind, LargeBinary) else cast(column, LargeBinary))
