"""What rows take in the store, counted to the accounts that made them.

Whatever is made in a project has one row that all else of it hangs on: a session has branches, steps and a log, a
prompt set has rows. That row says whose it is and how many bytes it takes with all that hangs on it. The number is
written in the transaction that writes the rows, so that a sum over one index says what an account has, and nothing is
walked.

Bytes are those of the values, and :data:`ROW_BYTES` for each row. Matrices of packed logits, one a model, are counted
to nobody; an outcome that several evaluations name is counted to each of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    BindParameter,
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    LargeBinary,
    Select,
    String,
    Table,
    Update,
    bindparam,
    cast,
    column,
    func,
    literal,
    select,
    table,
    union_all,
    update,
)

from db.database import Database
from db.scope import ACCOUNT, OWNERS, PROJECT, WHOLE
from db.tables import METADATA, STORED_BYTES, Rewritten
from db.types import AnyText, CompressedBytes

ROW_BYTES = 16
"""What a row takes beside its values: its header, and its entries in indexes."""
NUMBER_BYTES = 8
COUNTED = tuple(name for name, owner in OWNERS.items() if owner == PROJECT and name != "verdict_tombstones")
"""The tables whose rows say whose they are; what a deletion leaves of a verdict log is nobody's."""

_VARYING = (AnyText, String, JSON, Rewritten, LargeBinary, CompressedBytes)


class DiskRepository:
    """Says what accounts have in the store, all projects together."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def of_all(self) -> int:
        """Bytes of the whole store, as :attr:`Database.used_bytes` has them."""
        return self._database.used_bytes

    def of_account(self, account_id: int) -> int:
        """Return the bytes of everything that an account made."""
        return sum(self._found({"own": account_id}).get(account_id, {}).values())

    def by_account(self) -> Mapping[int | None, Mapping[str, int]]:
        """Return bytes by account and table; under None what was made where nobody was signed in."""
        return self._found({})

    def _found(self, asked: Mapping[str, int]) -> dict[int | None, dict[str, int]]:
        found: defaultdict[int | None, dict[str, int]] = defaultdict(dict)
        with self._database.reading() as connection:
            for name, owner, total in connection.execute(_totals(bool(asked)), asked):
                if total:
                    found[owner][name] = int(total)
        return dict(found)


@cache
def _totals(of_one: bool) -> CompoundSelect[str, Any, Any]:
    """Sums by table and account; these tables' names alone, so that no project narrows them."""

    def of_table(name: str) -> Select[str, Any, Any]:
        rows = table(name, column(ACCOUNT), column(STORED_BYTES))
        query = select(literal(name), rows.c[ACCOUNT], func.sum(rows.c[STORED_BYTES])).group_by(rows.c[ACCOUNT])
        return query.where(rows.c[ACCOUNT] == bindparam("own")) if of_one else query

    return union_all(*map(of_table, COUNTED))


def grow(connection: Connection, root: Table, key: int, added: int) -> None:
    """Count so many more bytes to a row, and so to whoever made it."""
    larger = root.c[STORED_BYTES] + added
    connection.execute(update(root).where(root.c.id == key).values({STORED_BYTES: larger}))


def recount(connection: Connection, root: Table, key: int) -> None:
    """Count a row anew with all that hangs on it, which is walked; what is long grows by :func:`grow` instead."""
    # A table whose module was not read yet has no columns, so that the statement of then says nothing of it.
    known = sum(len(rows_of.c) for rows_of in METADATA.tables.values())
    connection.execute(_recounting(root, connection.dialect.name, known), {"counted": key})


@cache
def _recounting(root: Table, dialect: str, known: int) -> Update:
    """The statement of :func:`recount`, whose many sums take longer to write than to carry out."""
    key: BindParameter[int] = bindparam("counted", type_=root.c.id.type)
    total = _size(dialect, root)
    for below in _hanging_on(root):
        rows = select(func.coalesce(func.sum(_size(dialect, below)), 0)).where(_of(below, root, key))
        total = total + rows.execution_options(**WHOLE).scalar_subquery()
    return update(root).where(root.c.id == key).values({STORED_BYTES: total})


def rows_bytes(rows_of: Table, rows: Iterable[Mapping[str, Any]]) -> int:
    """What rows take that are about to be written, as :func:`recount` counts them afterwards."""
    total, fixed, varying = 0, _fixed(rows_of), _varying(rows_of)
    for row in rows:
        total += fixed
        for item in varying:
            # A step has many rows, whose values are short or empty.
            if value := row.get(item.name):
                total += len(value) if isinstance(value, str) and value.isascii() else _length(item, value)
    return total


def octets(dialect: str, item: ColumnElement[Any]) -> ColumnElement[Any]:
    """How many bytes a text, JSON or bytes take; of bytes nothing is read that lies apart from its row."""
    is_bytes = isinstance(item.type, (LargeBinary, CompressedBytes))
    if dialect == "postgresql":
        return func.octet_length(item if is_bytes else cast(item, String))
    return func.length(item if is_bytes else cast(item, LargeBinary))


def _length(item: Column[Any], value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return len(value)
    # JSON; what is rewritten is empty for nearly all rows, and is NULL then.
    written = item.type.process_bind_param(value, None) if isinstance(item.type, Rewritten) else value
    return 0 if written is None else len(json.dumps(written))


@cache
def _varying(rows_of: Table) -> tuple[Column[Any], ...]:
    """Columns whose values have no fixed size."""
    return tuple(item for item in rows_of.c if isinstance(item.type, _VARYING))


@cache
def _fixed(rows_of: Table) -> int:
    return ROW_BYTES + NUMBER_BYTES * (len(rows_of.c) - len(_varying(rows_of)))


def _size(dialect: str, rows_of: Table) -> ColumnElement[Any]:
    """What one row takes."""
    size: ColumnElement[Any] = literal(_fixed(rows_of))
    for item in _varying(rows_of):
        size = size + func.coalesce(octets(dialect, item), 0)
    return size


def _hanging_on(root: Table) -> list[Table]:
    """The tables whose rows belong to a row of another one, however far off; what no module has filled is not there."""
    return [rows_of for rows_of in METADATA.tables.values() if rows_of is not root and _top(rows_of.name) == root.name]


def _top(name: str) -> str:
    """The table that the rows of another one hang on in the end, by its name: its module may not be read yet."""
    while (owner := OWNERS[name]) not in (None, PROJECT):
        name = next(iter(METADATA.tables[name].c[owner].foreign_keys)).target_fullname.rpartition(".")[0]
    return name


def _of(below: Table, root: Table, key: BindParameter[int]) -> ColumnElement[bool]:
    """Whether rows belong to a row of another table."""
    owner = OWNERS[below.name]
    assert owner is not None
    named = below.c[owner]
    target = next(iter(named.foreign_keys)).column
    if target.table is root:
        return named == key
    return named.in_(select(target).where(_of(target.table, root, key)).execution_options(**WHOLE))
