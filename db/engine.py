"""Building the SQLAlchemy engine: URL checks, SQLite pragmas and transaction modes."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from db.errors import StoreError, UnstorableValueError
from db.types import require_whole

ACCESS = "store_access"
"""Execution option of a connection: ``"write"`` takes SQLite's write lock at once, ``"read"`` never does."""

BUSY_TIMEOUT_MS = 30_000


def parse_url(text: str) -> URL:
    """Read a database URL, fixing the PostgreSQL driver to psycopg.

    Args:
        text: A ``sqlite:///file`` or ``postgresql://user@host/name`` URL.

    Raises:
        StoreError: The URL is malformed, names another kind of database, or an in-memory one
            (whose content no second connection would see).
    """
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreError(
            "The database URL cannot be read; write sqlite:///path/to/file or postgresql://user@host/name."
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(f"A {url.get_backend_name()} database is not supported; use SQLite or PostgreSQL.")
    if url.get_backend_name() == "sqlite" and (url.database or ":memory:") == ":memory:":
        raise StoreError("An in-memory SQLite database keeps nothing; give a file, as in sqlite:///audit.db.")
    return url


def build_engine(url: URL) -> Engine:
    """Create the engine without connecting.

    Raises:
        StoreError: The database driver is not installed, or the SQLite file cannot be created.
    """
    try:
        engine = create_engine(url, json_serializer=_to_json)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"The database URL needs the package {error.name}, which is not installed; "
            f"install it, for example with: pip install '{error.name}[binary]'."
        ) from error
    if engine.dialect.name == "sqlite":
        _create_private_file(Path(url.database or ""))
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin)
    return engine


def _to_json(value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UnstorableValueError(
            f"A value cannot be stored as JSON ({error}); give only finite numbers, text, lists and objects."
        ) from error
    if "\\ud" in text:
        # In ASCII a whole character and half of one both begin like this.
        require_whole(json.dumps(value, ensure_ascii=False))
    return text


def _create_private_file(path: Path) -> None:
    """Create a missing database file readable by its owner alone: prompts and verdicts are confidential."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(
            f"The database file {path} cannot be opened for writing ({error.strerror or error}); "
            "give a path that you may write to."
        ) from error


def _set_pragmas(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    # The driver would begin transactions by itself, too late and always deferred; _begin does it instead.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode=WAL")
    # NORMAL survives the death of the process; FULL survives a power cut too, for one fsync a step,
    # which is small beside a forward pass.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    # SQLite's own lower() knows ASCII only, so that a search for "élan" would miss "Élan".
    connection.create_function("lower", 1, _lower, deterministic=True)


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _begin(connection: Connection) -> None:
    reading = connection.get_execution_options().get(ACCESS) == "read"
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if reading else 'OFF'}")
    # A deferred transaction that reads and then writes fails at once when another writer came between,
    # whatever the busy timeout; taking the write lock first waits for it.
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
