"""Tables whose columns are the fields of records, and what every repository does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import sqlalchemy as sa
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator, TypeEngine

from db.database import Database
from db.scope import ACCOUNT, DEFAULT, PROJECT, counted_account, written_project
from db.types import AnyText, CompressedBytes, NotFoundError, RealNumber, UtcDateTime

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

NEVER_REUSED: dict[str, Any] = {"sqlite_autoincrement": True}
"""Option of a table: without it SQLite hands a deleted row's id out again, and an old link opens a stranger."""

_TYPES: dict[type, TypeEngine[Any]] = {
    int: sa.Integer(),
    str: AnyText(),
    float: RealNumber(),
    bool: sa.Boolean(),
    datetime: UtcDateTime(),
    bytes: CompressedBytes(),
    dict: sa.JSON(none_as_null=True),
}


class Rewritten(TypeDecorator[Any]):
    """A value that is JSON once it is rewritten; None stays None, and is NULL."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, write: Callable[[Any], Any], read: Callable[[Any], Any], absent: Any = None) -> None:
        """Say how a value is written and read."""
        super().__init__(none_as_null=True)
        self.write, self.read, self.absent = write, read, absent

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Rewrite on the way in."""
        return None if value is None or value == self.absent else self.write(value)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """Read on the way out."""
        return self.absent if value is None else self.read(value)


def columns(
    kind: type,
    names: Mapping[str, type] | None = None,
    /,
    **given: sa.Column[Any] | TypeEngine[Any] | sa.ForeignKey | None,
) -> Iterator[sa.Column[Any]]:
    """A column for each field of a record, of the type that its annotation calls for; ``id`` is the primary key."""
    hints = get_type_hints(kind, localns=names)
    for field in fields(kind):
        options = given.get(field.name, ())
        if isinstance(options, sa.Column):
            yield options
        elif options is not None:
            plain, nullable = _plain(hints[field.name])
            type_ = options if isinstance(options, TypeEngine) else _TYPES[plain]
            keys = [options] if isinstance(options, sa.ForeignKey) else []
            yield sa.Column(field.name, type_, *keys, primary_key=field.name == "id", nullable=nullable)


def numbered_table(name: str, called: str, *parts: SchemaItem) -> sa.Table:
    """A table whose rows have numbers that links use; ``called`` names such a row in sentences."""
    return sa.Table(name, METADATA, *parts, info={"called": called}, **NEVER_REUSED)


def project_table(name: str, called: str, *parts: SchemaItem, shared: bool = False) -> sa.Table:
    """A table whose rows belong to projects, and are counted to accounts; ``shared`` lets some be seen in all."""
    own = [part for part in parts if isinstance(part, sa.Column)]
    others = [part for part in parts if not isinstance(part, sa.Column)]
    return numbered_table(name, called, *own, project_column(shared), *counted_columns(), *others)


def project_column(shared: bool = False) -> sa.Column[Any]:
    """The column of a table whose rows belong to a project, the first one unless another is present."""
    return sa.Column(PROJECT, sa.Integer, nullable=shared, default=written_project, server_default=str(DEFAULT))


def counted_columns() -> Iterator[sa.Column[Any] | sa.Index]:
    """The columns of a table whose rows are counted to the account that made them."""
    yield sa.Column(ACCOUNT, sa.Integer, default=counted_account)
    # Stores of this version have the column; nothing is written into it.
    yield sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0")
    yield sa.Index(None, ACCOUNT, "stored_bytes")


def _plain(hint: Any) -> tuple[Any, bool]:
    """The type that an annotation names, and whether it allows None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = next(option for option in options if option is not NoneType)
    return str if get_origin(kind) is Literal else get_origin(kind) or kind, NoneType in options


def fields_in(kind: type, table: sa.Table) -> list[sa.Column[Any]]:
    """The columns of a table that a record has fields for."""
    return [table.c[field.name] for field in fields(kind) if field.name in table.c]


def field_values(record: Any, kind: type, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of ``kind`` in a record, by name."""
    return {field.name: getattr(record, field.name) for field in fields(kind) if field.name not in leave_out}


def find(connection: sa.Connection, table: sa.Table, key: int, lock: bool = False) -> sa.Row[Any]:
    """The row with an id; with ``lock`` no other transaction changes it before this one ends."""
    query = sa.select(table).where(table.c.id == key)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise missing(table, key)
    return row


def missing(table: sa.Table, key: int) -> NotFoundError:
    """Say that no row of a table has an id."""
    return NotFoundError(f"There is no {table.info['called']} with the id {key}; it may have been deleted.")


def add_row(connection: sa.Connection, table: sa.Table, **values: Any) -> int:
    """Store a row and return its id."""
    key: Any = connection.execute(sa.insert(table).values(**values)).inserted_primary_key
    return int(key[0])


def change_row(connection: sa.Connection, table: sa.Table, key: int, **values: Any) -> None:
    """Change columns of the row with an id."""
    if connection.execute(sa.update(table).where(table.c.id == key).values(**values)).rowcount == 0:
        raise missing(table, key)


def one_writer(connection: sa.Connection, key: int) -> None:
    """Let no other transaction past a call with the same key before this one ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


Record = TypeVar("Record")
Value = TypeVar("Value")


class Store:
    """What every repository has: the database that it works on."""

    def __init__(self, database: Database) -> None:
        """Work on an open store; nothing is read yet."""
        self._database = database

    def together(self) -> AbstractContextManager[None]:
        """Make all that this thread writes inside a block one transaction, as :meth:`Database.together` does."""
        return self._database.together()

    def _read(self, kind: type[Record], query: sa.Select[*tuple[Any, ...]]) -> list[Record]:
        """The rows of a query as records."""
        with self._database.reading() as connection:
            return [kind(**row._asdict()) for row in connection.execute(query)]

    def _scalar(self, kind: type[Value], query: sa.Select[*tuple[Any, ...]]) -> Value | None:
        """The one value of a query; None where there is no row."""
        with self._database.reading() as connection:
            found: Value | None = connection.scalar(query)
        return found

    def _scalars(self, query: sa.Select[*tuple[Any, ...]]) -> list[Any]:
        """The values of a query for one column."""
        with self._database.reading() as connection:
            return list(connection.scalars(query))

    def _run(self, statement: sa.Executable) -> int:
        """Execute what writes, and return how many rows it changed."""
        with self._database.writing() as connection:
            return connection.execute(statement).rowcount


class Records(Store, Generic[Record]):
    """Gives the rows of a table as frozen records."""

    _table: ClassVar[sa.Table]
    _kind: ClassVar[type[Any]]
    _query: ClassVar[sa.Select[*tuple[Any, ...]]]
    """Reads the fields of the records; :meth:`_records` adds those that it does not."""

    def get(self, key: int, /) -> Record:
        """Return what has an id."""
        with self._database.reading() as connection:
            return self._one(connection, key)

    def _one(self, connection: sa.Connection, key: int) -> Record:
        records = self._records(connection, self._query.where(self._table.c.id == key))
        if not records:
            raise missing(self._table, key)
        return records[0]

    def _found(self, *where: sa.ColumnElement[bool]) -> Record | None:
        """The first record for which conditions hold; None where there is none."""
        return next(iter(self._listed(self._query.where(*where))), None)

    def _listed(self, query: sa.Select[*tuple[Any, ...]]) -> list[Record]:
        with self._database.reading() as connection:
            return self._records(connection, query)

    def _records(self, connection: sa.Connection, query: sa.Select[*tuple[Any, ...]]) -> list[Record]:
        return [self._kind(**row._asdict()) for row in connection.execute(query)]

    def _change(self, key: int, **values: Any) -> Record:
        with self._database.writing() as connection:
            change_row(connection, self._table, key, **values)
            return self._one(connection, key)


class Repository(Records[Record]):
    """Keeps the rows of a table, which may be deleted."""

    def delete(self, key: int, /) -> None:
        """Delete what has an id, with all that is part of it; what only refers to it stays."""
        with self._database.writing() as connection:
            if connection.execute(sa.delete(self._table).where(self._table.c.id == key)).rowcount == 0:
                raise missing(self._table, key)
