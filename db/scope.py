"""Which project's rows a statement sees: the one place that keeps projects apart.

Every table belongs to projects in one of three ways (:func:`owner_of`): by a column of its own, by the row that a
foreign key names, or not at all. While a project is present (:func:`in_project`), that condition is added to every
table of every statement when it is compiled, however deep it is nested, and a row that names another one is only
written if that one is seen. New rows get the project's number and that of the account that makes them
(:func:`counted_to`). No repository needs to think of projects.

The number of the project is bound when a statement is executed, so that statements are compiled once for all projects.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import BindParameter
from sqlalchemy.sql.selectable import Alias, FromClause, Join

from db.types import NotFoundError, StoreError

Scope = int | Literal["every"] | None
"""The number of a project; ``every`` for all of them together; None where nobody has said."""

DEFAULT, NOWHERE = 1, 0
"""The project that every store begins with; and that of an account that is a member of none."""

PROJECT, ACCOUNT = "project_id", "account_id"
"""The columns of a row that belongs to a project, and is counted to the account that made it."""

SHARED = frozenset((
    "account_attempts", "account_sign_ins", "account_tokens", "accounts", "audit_trail", "evaluation_contents",
    "project_members", "projects",
))  # fmt: skip
"""Tables whose rows belong to no project: who is a member of what, and contents that are asked for by their digest."""

WHOLE = {"coft_whole": True}
"""Execution options of a statement that is about all projects, whoever asks: counts for limits, and what is in use."""

_present: ContextVar[Scope] = ContextVar("project", default=None)
_account: ContextVar[int | None] = ContextVar("account", default=None)


def present_project() -> Scope:
    """The project whose rows are seen at the moment."""
    return _present.get()


@contextmanager
def in_project(scope: Scope) -> Iterator[None]:
    """Let a block see one project's rows, and write into it."""
    token = _present.set(scope)
    try:
        yield
    finally:
        _present.reset(token)


def in_every_project() -> Any:
    """Let a block see all rows; what it adds goes to the first project."""
    return in_project("every")


def counted_account() -> int | None:
    """The number of the account that new rows of projects are counted to; None where nobody is signed in."""
    return _account.get()


@contextmanager
def counted_to(account_id: int | None) -> Iterator[None]:
    """Count to an account what a block adds to a project."""
    token = _account.set(account_id)
    try:
        yield
    finally:
        _account.reset(token)


def owner_of(table: sa.Table[Any]) -> Any:
    """The column by which rows of a table belong to projects: their own, or a key of what they are part of; or None."""
    if table.name in SHARED:
        return None
    if PROJECT in table.c:
        return table.c[PROJECT]
    for column in table.c:
        if not column.nullable and any(key.ondelete == "CASCADE" for key in column.foreign_keys):
            return column
    raise StoreError(f"Nothing says to which project the rows of {table.name} belong.")


def referred(column: sa.ColumnElement[Any]) -> sa.Column[Any]:
    """The column that a foreign key names."""
    return next(iter(column.foreign_keys)).column


def written_project() -> int:
    """The number of the project that a new row goes to."""
    project = _present.get()
    if project == NOWHERE:
        raise StoreError("You are a member of no project, so that nothing can be kept. Ask an admin of this server.")
    return project if isinstance(project, int) else DEFAULT


def _seen() -> int:
    """The number of the project that a statement is executed for."""
    scope = _present.get()
    if not isinstance(scope, int):
        raise StoreError("Nobody has said for which project the store is asked.")
    return scope


def _visible(rows: FromClause, table: sa.Table[Any], shared: bool) -> sa.ColumnElement[bool] | None:
    """The condition under which rows of a table are seen; None for all of them."""
    owner = owner_of(table)
    if owner is None:
        return None
    column = rows.c[owner.name]
    if owner.name == PROJECT:
        own = column == sa.bindparam("project", callable_=_seen, type_=sa.Integer, unique=True)
        return sa.or_(own, column.is_(None)) if shared and owner.nullable else own
    target = referred(owner)
    above = target.table.alias()
    condition = _visible(above, target.table, shared)
    assert condition is not None
    query = sa.select(sa.literal_column("1")).select_from(above).where(above.c[target.name] == column, condition)
    return query.correlate_except(above).execution_options(**WHOLE).exists()


def _tables(part: FromClause) -> Iterator[tuple[FromClause, sa.Table[Any]]]:
    """The tables whose rows a part of FROM begins with; what is joined to them has its condition in the join."""
    if isinstance(part, Join):
        yield from _tables(part.left)
    elif isinstance(part, sa.Table):
        yield part, part
    elif isinstance(part, Alias) and isinstance(part.element, sa.Table):
        yield part, part.element


def _conditions(parts: Iterable[FromClause], shared: bool = True) -> list[sa.ColumnElement[bool]]:
    """What narrows parts of FROM to the present project."""
    found = (_visible(rows, table, shared) for part in parts for rows, table in _tables(part))
    return [condition for condition in found if condition is not None]


def _narrows(compiler: Any, statement: Any) -> bool:
    """Whether a statement is to see one project only."""
    return getattr(compiler.dialect, "narrows", False) and not statement.get_execution_options().get("coft_whole")


@compiles(sa.Select)
def _select(statement: Any, compiler: Any, **options: Any) -> str:
    if _narrows(compiler, statement):
        statement = statement.where(*_conditions(statement.get_final_froms()))
    return str(compiler.visit_select(statement, **options))


@compiles(Join)
def _join(join: Any, compiler: Any, **options: Any) -> str:
    if getattr(compiler.dialect, "narrows", False) and (conditions := _conditions([join.right])):
        if join.full:
            raise StoreError("A full join cannot be told apart by projects.")
        join = Join(join.left, join.right, sa.and_(join.onclause, *conditions), isouter=join.isouter)
    return str(compiler.visit_join(join, **options))


@compiles(sa.Update)
@compiles(sa.Delete)
def _change(statement: Any, compiler: Any, **options: Any) -> str:
    if _narrows(compiler, statement):
        statement = statement.where(*_conditions([statement.table], shared=False))
    visit = compiler.visit_update if isinstance(statement, sa.Update) else compiler.visit_delete
    return str(visit(statement, **options))


def narrowed_engine(engine: sa.Engine) -> sa.Engine:
    """An engine that keeps projects apart, over the connections of another one."""
    dialect: Any = copy.copy(engine.dialect)
    dialect.narrows = True
    narrowed = sa.Engine(engine.pool, dialect, engine.url)
    sa.event.listen(narrowed, "before_execute", _require_seen_references)
    return narrowed


def _require_seen_references(
    connection: sa.Connection, statement: Any, many: Sequence[Mapping[str, Any]], one: Mapping[str, Any], _options: Any
) -> None:
    """Before a statement is executed: refuse to write a row that names one which is not seen."""
    if not isinstance(statement, (sa.Insert, sa.Update)) or not isinstance(statement.table, sa.Table):
        return
    if isinstance(statement, sa.Insert) and PROJECT in statement.table.c and statement.table.name not in SHARED:
        _require_project(connection)
    given = [*many, *([one] if one else []), _constants(statement)]
    for column in statement.table.c:
        if not column.foreign_keys or owner_of(referred(column).table) is None:
            continue
        wanted = {row[column.name] for row in given if row.get(column.name) is not None}
        if wanted:
            _require(connection, referred(column), wanted)


def _require_project(connection: sa.Connection) -> None:
    """Refuse to add what would belong to nobody; a deletion of the project waits until this transaction has ended."""
    _seen()
    held = " FOR KEY SHARE" if connection.dialect.name == "postgresql" else ""
    project = written_project()
    if connection.execute(sa.text(f"SELECT 1 FROM projects WHERE id = :id{held}"), {"id": project}).first() is None:
        raise NotFoundError("This project has been deleted, so that nothing can be kept in it; choose another one.")


def _constants(statement: sa.Insert | sa.Update) -> dict[str, Any]:
    """What a statement itself, and not what it is executed with, writes into columns that name other rows."""
    written: Mapping[Any, Any] = getattr(statement, "_values", None) or {}
    found = {}
    for name, value in written.items():
        column = statement.table.c[getattr(name, "name", name)]
        if column.foreign_keys and not isinstance(value, BindParameter):
            raise StoreError(f"What {column} gets is computed, so that its project cannot be told.")
        found[column.name] = getattr(value, "effective_value", None)
    return found


def _require(connection: sa.Connection, target: sa.Column[Any], wanted: set[Any]) -> None:
    found = set(connection.scalars(sa.select(target).where(target.in_(wanted))))
    if lacking := sorted(wanted - found, key=str):
        called = target.table.info.get("called", target.table.name)
        raise NotFoundError(f"There is no {called} with the id {lacking[0]}; it may have been deleted.")
