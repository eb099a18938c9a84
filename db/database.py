"""The one way in: opening the store, and the transactions through which all reading and writing goes."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from platformdirs import user_data_dir
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry

from db.scope import in_project, narrowed_engine, present_project
from db.types import ConflictError, StoreError, UnstorableValueError, require_whole

DIRECTORY_NAME = "coft-audit"
FILE_NAME = "coft-audit.sqlite3"


def default_database_url() -> str:
    """Return the URL of the per-user SQLite file, creating its folder, which only this user can read (mode 0700)."""
    folder = Path(user_data_dir(DIRECTORY_NAME, appauthor=False))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(
            f"The data folder {folder} cannot be created ({reason}); give a database URL instead."
        ) from error
    return URL.create("sqlite", database=str(folder / FILE_NAME)).render_as_string(hide_password=False)


def store_folder(url: str) -> Path:
    """The folder that a store's SQLite file lies in; for PostgreSQL and an empty URL the per-user data folder."""
    parsed = parse_url(url) if url else None
    if parsed is None or parsed.get_backend_name() != "sqlite":
        return Path(user_data_dir(DIRECTORY_NAME, appauthor=False))
    return Path(parsed.database or "").resolve().parent


ACCESS = "store_access"
"""Execution option of a connection: ``"write"`` takes SQLite's write lock at once, ``"read"`` never does."""

BUSY_TIMEOUT_MS = 30_000


def parse_url(text: str) -> URL:
    """Read a ``sqlite:///file`` or ``postgresql://user@host/name`` URL, fixing the driver to psycopg."""
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
    """Create the engine without connecting."""
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
    """Create a missing database file that only its owner can read: prompts and verdicts are confidential."""
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


def _check_whole(engine: Engine, path: Path) -> None:
    """Read the whole file for damage of its structure; the contents of intact rows are not judged."""
    with engine.connect() as connection:
        found = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    if found != "ok":
        raise _damaged(path, found)


def _damaged(path: Path, found: str) -> StoreError:
    return StoreError(
        f"The database file {path} is damaged ({' '.join(found.split())}); nothing was changed: stop what uses it, "
        "and put its newest backup in its place, or rescue what can be read with “sqlite3 FILE .recover”."
    )


Access = Literal["read", "write"]
NOT_OPEN = "The store is not open; call open() before using it."


@dataclass(frozen=True, slots=True)
class _Together:
    """A transaction that several repositories share: its connection, and what is done after it, or if it fails."""

    connection: Connection
    narrowed: bool
    afterwards: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)


class Database:
    """A store at a URL; one object serves all threads of a process.

    Each repository method runs one transaction. A transaction that has ended is durable: SQLite
    runs in WAL mode with ``synchronous=FULL``, so that neither a killed process nor a power cut
    loses it; PostgreSQL gives the same by default.

    Example:
        >>> with Database("sqlite:///audit.db") as database:  # doctest: +SKIP
        ...     sessions = SessionsRepository(database)
    """

    def __init__(self, url: str, checked: bool = False, by_project: bool = False) -> None:
        """Remember where the store is; nothing is opened yet."""
        self._url = parse_url(url)
        self._checked = checked
        self._by_project = by_project
        self.project: int | None = None
        """The project that is meant where nobody has said; None leaves it at that."""
        self._engine: Engine | None = None
        self._binds: dict[tuple[Access, bool], Engine] = {}
        self._files: Mapping[Path, tuple[int, int] | None] = {}
        self._shared: ContextVar[_Together | None] = ContextVar("together", default=None)

    @property
    def url(self) -> str:
        """The URL with its password hidden, fit to be shown."""
        return self._url.render_as_string(hide_password=True)

    @property
    def engine(self) -> Engine:
        """The engine of the open store."""
        if self._engine is None:
            raise StoreError(NOT_OPEN)
        return self._engine

    @property
    def used_bytes(self) -> int:
        """What the store takes on the disk: of an SQLite file without what deleted rows have left free in it."""
        with self.reading() as connection:
            if self.engine.dialect.name == "postgresql":
                return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
            names = ("page_count", "freelist_count", "page_size")
            pages, free, size = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names)
            return int((pages - free) * size)

    def open(self) -> Self:
        """Connect, and make the tables of a new store; opening an open store does nothing."""
        # The tables of the features are declared over this module.
        from db.schema import make_tables

        if self._engine is not None:
            return self
        engine = build_engine(self._url)
        try:
            if self._checked and engine.dialect.name == "sqlite":
                _check_whole(engine, Path(self._url.database or ""))
            make_tables(engine)
            if engine.dialect.name == "sqlite":
                self._files = _files_of(engine, Path(self._url.database or "").resolve())
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            engine.dispose()
            found = _reason(error) if isinstance(error, SQLAlchemyError) else "a text is not UTF-8"
            if engine.dialect.name == "sqlite" and ("malformed" in found or isinstance(error, UnicodeDecodeError)):
                raise _damaged(Path(self._url.database or ""), found) from error
            raise StoreError(f"The database {self.url} cannot be opened: {found}.") from error
        except StoreError:
            engine.dispose()
            raise
        # An engine with options of its own is built once: it costs more than a small transaction.
        engines = {False: engine, True: narrowed_engine(engine)}
        if engine.dialect.name == "sqlite":
            event.listen(engines[True], "begin", _begin)
        self._binds = {
            (access, narrowed): _bound(one, access) for access in get_args(Access) for narrowed, one in engines.items()
        }
        self._engine = engine
        return self

    def close(self) -> None:
        """Close every connection; closing twice does nothing."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine, self._binds, self._files = None, {}, {}

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection in a transaction: committed at the end, rolled back on an error.

        On SQLite it holds the only write lock, so do not open a second one inside it.
        """
        with self._transaction("write") as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one state of the store, never waits for a writer and cannot write."""
        with self._transaction("read") as connection:
            yield connection

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make all that this thread writes inside the block one transaction, whatever repositories it writes through.

        It holds SQLite's only write lock from its first statement on, so no model runs inside it. What another thread
        is to do with the rows is begun by :meth:`afterwards`.
        """
        outer = self._shared.get()
        with self._transaction("write") as connection:
            shared = _Together(connection, self._is_narrowed())
            token = self._shared.set(shared)
            try:
                yield
            except BaseException:
                for _, undone in shared.afterwards:
                    undone()
                raise
            finally:
                self._shared.reset(token)
        if outer is not None:
            outer.afterwards.extend(shared.afterwards)
            return
        for call, _ in shared.afterwards:
            call()

    def afterwards(self, call: Callable[[], None], undone: Callable[[], None]) -> None:
        """Do something once the rows that this thread has written are there for all: at once outside of a block."""
        shared = self._shared.get()
        if shared is None:
            call()
        else:
            shared.afterwards.append((call, undone))

    @contextmanager
    def _transaction(self, access: Access) -> Iterator[Connection]:
        """A transaction, or a part of the one that this thread shares."""
        unsaid = present_project() is None and self.project is not None
        with in_project(self.project) if unsaid else nullcontext(), _plain_errors():
            if not self._binds:
                raise StoreError(NOT_OPEN)
            self._require_files()
            narrowed, shared = self._is_narrowed(), self._shared.get()
            if shared is None:
                with self._binds[access, narrowed].begin() as connection:
                    yield connection
                if access == "write":
                    self._require_files()
                return
            if shared.narrowed != narrowed:
                raise StoreError("One transaction cannot be about one project and about all of them.")
            # An error that somebody catches inside the block must not leave half of what it came from.
            with shared.connection.begin_nested() if access == "write" else nullcontext():
                yield shared.connection

    def _is_narrowed(self) -> bool:
        """Whether statements see the rows of one project only."""
        return isinstance(present_project(), int) or (present_project() is None and self._by_project)

    def _require_files(self) -> None:
        """Refuse to go on where SQLite's files are no longer those that are open: what it writes would be lost."""
        for path, known in self._files.items():
            if _identity(path) != known:
                raise StoreError(
                    f"The store's file {path} was deleted or replaced while it was in use, so that nothing more is "
                    "stored; stop every program that uses the store, and look whether its newest entries are there "
                    "before you go on."
                )


def _files_of(engine: Engine, path: Path) -> dict[Path, tuple[int, int] | None]:
    """SQLite's file, its log and the log's index with their identities; they stay while a connection is open.

    The pool keeps one open. A new connection would begin a log of its own where the first one is gone.
    """
    with _bound(engine, "read").connect() as connection:
        # The log is opened with the first page that is read.
        connection.exec_driver_sql("PRAGMA schema_version")
        return {one: _identity(one) for one in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))}


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and number of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _bound(engine: Engine, access: Access) -> Engine:
    if access == "write" or engine.dialect.name == "sqlite":
        return engine.execution_options(**{ACCESS: access})
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except OverflowError as error:
        raise UnstorableValueError(
            "A whole number is larger than the store can keep (64 bits); give one between -2^63 and 2^63 - 1."
        ) from error
    except SQLAlchemyError as error:
        if _refused(error):
            raise ConflictError(f"The store refused the change: {_reason(error)}.") from error
        if isinstance(error, StatementError) and isinstance(error.orig, UnstorableValueError):
            raise error.orig from error
        raise StoreError(f"The store could not do that: {_reason(error)}.") from error


RAISED_BY_TRIGGER = "P0001"
"""PostgreSQL's code of what a trigger refuses; SQLite counts that among broken constraints."""


def _refused(error: SQLAlchemyError) -> bool:
    """Whether a constraint or a trigger refuses the change."""
    if isinstance(error, IntegrityError):
        return True
    return isinstance(error, StatementError) and getattr(error.orig, "sqlstate", None) == RAISED_BY_TRIGGER


def _reason(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    # PostgreSQL's own sentence; what its driver adds are the lines of the function that was at work.
    said = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    return " ".join(said.split()).rstrip(".")
