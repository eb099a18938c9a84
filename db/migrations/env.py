"""Runs migrations on the connection given by :mod:`db.database`, or writes them as PostgreSQL's SQL."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy.types import TypeDecorator

from db.tables import METADATA


def render_plain_types(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:
    """Draft columns with the database's types: a migration must not change when the code's types do."""
    if kind == "type" and isinstance(item, TypeDecorator):
        return f"sa.{item.impl!r}"
    return False


def run() -> None:
    """Configure Alembic and run the migrations that the command asks for."""
    if context.is_offline_mode():
        context.configure(dialect_name="postgresql", target_metadata=METADATA, literal_binds=True)
    else:
        context.configure(
            connection=context.config.attributes["connection"],
            target_metadata=METADATA,
            render_as_batch=True,
            transactional_ddl=True,
            render_item=render_plain_types,
        )
    with context.begin_transaction():
        context.run_migrations()


run()
