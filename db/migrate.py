"""Bringing the schema to where the models are, without an ``alembic.ini``.

Migrations live in ``db/migrations/versions`` and run whenever a store is opened. After a change of
the models, ``python -m db.migrate "what changed"`` drafts the next one from the difference; read
and complete the draft before committing it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, text

from db.engine import build_engine, parse_url
from db.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"

_MIGRATION_LOCK = 0x636F6674


def make_config(location: Path = MIGRATIONS) -> Config:
    """Return Alembic's configuration for the migrations in a folder."""
    config = Config()
    # A per cent sign in a path would be taken for interpolation.
    config.set_main_option("script_location", str(location).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Run all outstanding migrations in one transaction; a second call changes nothing.

    Raises:
        StoreError: The database was written by a newer version of the program, or rows break a
            reference after migrating (nothing is changed then).
    """
    with _migrating(engine) as config:
        try:
            command.upgrade(config, revision)
        except CommandError as error:
            raise StoreError(
                f"The database's schema is unknown to this version of the program ({error}); "
                "it was probably written by a newer one: use that, or another database."
            ) from error


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Undo migrations down to a revision; ``"base"`` removes every table of the store."""
    with _migrating(engine) as config:
        command.downgrade(config, revision)


def draft(message: str, location: Path = MIGRATIONS) -> Path:
    """Write the migration that leads from the newest revision to the models.

    Args:
        message: What changes, in a few words; becomes part of the file name.
        location: The folder that holds ``env.py`` and ``versions``.

    Returns:
        The file written.
    """
    with tempfile.TemporaryDirectory() as folder:
        engine = build_engine(parse_url(f"sqlite:///{folder}/draft.db"))
        try:
            with engine.begin() as connection:
                config = make_config(location)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                script = command.revision(config, message, autogenerate=True)
        finally:
            engine.dispose()
    if script is None or isinstance(script, list):
        raise StoreError("The migrations have no single newest revision; merge them first.")
    return Path(script.path)


@contextmanager
def _migrating(engine: Engine) -> Iterator[Config]:
    """Hand out a configuration bound to one transaction, committed at the end."""
    sqlite = engine.dialect.name == "sqlite"
    with engine.connect() as connection:
        try:
            if sqlite:
                # SQLite changes a table by copying and dropping it; with keys enforced, the drop would
                # cascade to its children. The pragma only works outside a transaction.
                _set_foreign_keys(connection, enforced=False)
            with connection.begin():
                if not sqlite:
                    # Two processes that start at once must not both create the tables.
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                config = make_config()
                config.attributes["connection"] = connection
                yield config
                if sqlite:
                    _check_references(connection)
        finally:
            if sqlite:
                _set_foreign_keys(connection, enforced=True)


def _set_foreign_keys(connection: Connection, *, enforced: bool) -> None:
    cursor = connection.connection.cursor()
    cursor.execute(f"PRAGMA foreign_keys={'ON' if enforced else 'OFF'}")
    cursor.close()


def _check_references(connection: Connection) -> None:
    broken = connection.execute(text("PRAGMA foreign_key_check")).first()
    if broken is not None:
        raise StoreError(f"A migration left a row of table {broken[0]} pointing at nothing; it was undone.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit('usage: python -m db.migrate "what changed"')
    print(draft(sys.argv[1]))
