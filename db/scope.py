"""Which project's rows a statement sees: the one place that keeps projects apart.

Every table belongs to projects in one of three ways, which :data:`OWNERS` says: by a column of its own, by the row that
a foreign key names, or not at all. While a project is present (:func:`in_project`), the compiler of
:func:`scoped_dialect` adds that condition to every table of every statement, however deep it is nested, new rows get
the project's number and that of the account that makes them (:func:`counted_to`), and a row that names another one is
only written if that one is seen. No repository needs to think of projects, and a table without a line here cannot be
read at all while a project is present.

The number of the project is bound when a statement is executed, so that statements are compiled once for all projects.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from sqlalchemy import (
    Column,
    ColumnClause,
    ColumnElement,
    Connection,
    Insert,
    Integer,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    literal_column,
    or_,
    select,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import BindParameter
from sqlalchemy.sql.selectable import Alias, FromClause, Join

from db.types import NotFoundError, StoreError

Scope = int | Literal["every"] | None
"""The number of a project; ``every`` for all of them together; None where nobody has said."""

DEFAULT, NOWHERE = 1, 0
"""The project that every store begins with; and that of who is a member of none."""

PROJECT = "project_id"

OWNERS: Mapping[str, str | None] = {
    # By a column of their own.
    **dict.fromkeys(
        (
            "audit_sessions", "batches", "calibration_runs", "comparisons", "evaluations", "jobs", "prompt_sets",
            "swaps", "user_lists", "verdict_tombstones",
        ),
        PROJECT,
    ),
    # By the row that a column names.
    "annotations": "session_id",
    "assignments": "session_id",
    "batch_rows": "batch_id",
    "branches": "session_id",
    "calibration_bins": "run_id",
    "candidates": "step_id",
    "comparison_columns": "comparison_id",
    "evaluation_calibrations": "evaluation_id",
    "evaluation_items": "evaluation_id",
    "imported_sessions": "session_id",
    "job_ledgers": "job_id",
    "prompt_rows": "prompt_set_id",
    "session_logit_bases": "session_id",
    "session_spans": "session_id",
    "session_tags": "session_id",
    "steps": "branch_id",
    "user_terms": "user_list_id",
    "verdict_readings": "session_id",
    # Not at all: what decides who is a member, and contents that only who has their digest can ask for.
    **dict.fromkeys(
        (
            "account_attempts", "account_sign_ins", "account_tokens", "accounts", "audit_trail",
            "evaluation_contents", "logit_bases", "project_members", "projects",
        )
    ),
}  # fmt: skip
"""By a table's name: the column that says to whom its rows belong; None where they belong to no project."""

ROOTS = tuple(name for name, owner in OWNERS.items() if owner == PROJECT and name != "verdict_tombstones")
"""The tables whose rows say whose they are; what a deletion leaves of a verdict log is nobody's."""

WHOLE = {"coft_whole": True}
"""Execution options of a statement that is about all projects, whoever asks: counts for limits, and what is in use."""

ACCOUNT = "account_id"
"""The column of a row that is counted to whoever made it."""

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


def _seen() -> int:
    """The number of the project that a statement is executed for."""
    scope = _present.get()
    if not isinstance(scope, int):
        raise StoreError("Nobody has said for which project the store is asked.")
    return scope


def _written() -> int:
    """The number of the project that a new row goes to."""
    project = _seen()
    if project == NOWHERE:
        raise StoreError("You are a member of no project, so that nothing can be kept. Ask an admin of this server.")
    return project


def _number(given: Any) -> BindParameter[Any]:
    return bindparam("project", callable_=given, type_=Integer, unique=True)


def owner_of(table: Table[Any]) -> str | None:
    """The column by which rows of a table belong to projects."""
    if table.name not in OWNERS:
        raise StoreError(f"Nothing says to which project the rows of {table.name} belong.")
    return OWNERS[table.name]


def referred(column: ColumnElement[Any]) -> Column[Any]:
    """The column that a foreign key names."""
    return next(iter(column.foreign_keys)).column


def _visible(rows: FromClause, table: Table[Any], shared: bool = True) -> ColumnElement[bool] | None:
    """The condition under which rows of a table are seen; None for all of them."""
    owner = owner_of(table)
    if owner is None:
        return None
    column = rows.c[owner]
    if owner == PROJECT:
        own = column == _number(_seen)
        return or_(own, column.is_(None)) if shared and table.c[owner].nullable else own
    target = referred(table.c[owner])
    above = target.table.alias()
    condition = _visible(above, target.table, shared)
    query: Select[Any] = select(literal_column("1")).select_from(above).where(above.c[target.name] == column)
    return query.where(*([] if condition is None else [condition])).correlate_except(above).execution_options(
        **WHOLE
    ).exists()  # fmt: skip


def _tables(part: FromClause) -> Iterator[tuple[FromClause, Table[Any]]]:
    """The tables whose rows a part of FROM begins with; what is joined to them has its condition in the join."""
    if isinstance(part, Join):
        yield from _tables(part.left)
    elif isinstance(part, Table):
        yield part, part
    elif isinstance(part, Alias) and isinstance(part.element, Table):
        yield part, part.element


def _conditions(parts: Iterable[FromClause], shared: bool = True) -> list[ColumnElement[bool]]:
    found = (_visible(rows, table, shared) for part in parts for rows, table in _tables(part))
    return [condition for condition in found if condition is not None]


class _Scoped(SQLCompiler):
    """Part of a compiler that adds the conditions."""

    def visit_select(self, select_stmt: Any, *args: Any, **kwargs: Any) -> str:
        if isinstance(select_stmt, Select) and not select_stmt.get_execution_options().get("coft_whole"):
            select_stmt = select_stmt.where(*_conditions(select_stmt.get_final_froms()))
        return str(super().visit_select(select_stmt, *args, **kwargs))

    def visit_join(self, join: Any, *args: Any, **kwargs: Any) -> str:
        if join.full:
            raise StoreError("A full join cannot be told apart by projects.")
        if conditions := _conditions([join.right]):
            join = Join(join.left, join.right, and_(join.onclause, *conditions), isouter=join.isouter)
        return str(super().visit_join(join, *args, **kwargs))

    def visit_insert(self, insert_stmt: Any, *args: Any, **kwargs: Any) -> str:
        if owner_of(insert_stmt.table) == PROJECT:
            insert_stmt = insert_stmt.values({PROJECT: _number(_written)})
            if ACCOUNT in insert_stmt.table.c:
                insert_stmt = insert_stmt.values({ACCOUNT: _number(counted_account)})
        return str(super().visit_insert(insert_stmt, *args, **kwargs))

    def visit_update(self, update_stmt: Any, *args: Any, **kwargs: Any) -> str:
        narrowed = update_stmt.where(*_conditions([update_stmt.table], shared=False))
        return str(super().visit_update(narrowed, *args, **kwargs))

    def visit_delete(self, delete_stmt: Any, *args: Any, **kwargs: Any) -> str:
        if not delete_stmt.get_execution_options().get("coft_whole"):
            delete_stmt = delete_stmt.where(*_conditions([delete_stmt.table], shared=False))
        return str(super().visit_delete(delete_stmt, *args, **kwargs))


def scoped_dialect(dialect: Dialect) -> Dialect:
    """A dialect that keeps projects apart, over the same connections as another one."""
    scoped = copy.copy(dialect)
    compiler = dialect.statement_compiler
    scoped.statement_compiler = type(f"Scoped{compiler.__name__}", (_Scoped, compiler), {})
    return scoped


def require_seen_references(
    connection: Connection, statement: Any, many: Sequence[Mapping[str, Any]], one: Mapping[str, Any], _options: Any
) -> None:
    """Before a statement is executed: refuse to write a row that names one which is not seen."""
    if not isinstance(statement, (Insert, Update)) or not isinstance(statement.table, Table):
        return
    if isinstance(statement, Insert) and owner_of(statement.table) == PROJECT:
        _require_project(connection)
    given = [*many, *([one] if one else [])]
    for column in statement.table.c:
        if not column.foreign_keys or owner_of(referred(column).table) is None:
            continue
        wanted = {row[column.name] for row in given if row.get(column.name) is not None}
        wanted |= set(_constants(statement, column))
        if wanted:
            _require(connection, referred(column), wanted)


def _require_project(connection: Connection) -> None:
    """Refuse to add what would belong to nobody; whoever deletes the project waits until this transaction has ended."""
    held = " FOR KEY SHARE" if connection.dialect.name == "postgresql" else ""
    project = _written()
    if connection.execute(text(f"SELECT 1 FROM projects WHERE id = :id{held}"), {"id": project}).first() is None:
        raise NotFoundError("This project has been deleted, so that nothing can be kept in it; choose another one.")


def _constants(statement: Insert | Update, column: ColumnClause[Any]) -> Iterator[Any]:
    """What a statement itself, and not what it is executed with, writes into a column."""
    written: Mapping[Any, Any] = getattr(statement, "_values", None) or {}
    for name, value in written.items():
        if getattr(name, "name", name) != column.name:
            continue
        if not isinstance(value, BindParameter):
            raise StoreError(f"What {column} gets is computed, so that its project cannot be told.")
        if value.effective_value is not None:
            yield value.effective_value


def _require(connection: Connection, target: Column[Any], wanted: set[Any]) -> None:
    found = set(connection.scalars(select(target).where(target.in_(wanted))))
    if lacking := sorted(wanted - found, key=str):
        called = target.table.info.get("called", target.table.name)
        raise NotFoundError(f"There is no {called} with the id {lacking[0]}; it may have been deleted.")
