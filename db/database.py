"""The one way in: opening the store, and the transactions through which all reading and writing goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError, SQLAlchemyError, StatementError
from sqlalchemy.orm import Session, sessionmaker

from db.engine import ACCESS, build_engine, parse_url
from db.errors import ConflictError, StoreError, UnstorableValueError
from db.migrate import upgrade

Access = Literal["read", "write"]
ACCESSES: tuple[Access, ...] = ("read", "write")
NOT_OPEN = "The store is not open; call open() before using it."


class Database:
    """A store at a URL; one object serves all threads of a process.

    Each repository method runs one transaction. A transaction that has ended is durable: SQLite
    runs in WAL mode with ``synchronous=FULL``, so that neither a killed process nor a power cut
    loses it; PostgreSQL gives the same by default.

    Example:
        >>> with Database("sqlite:///audit.db") as database:  # doctest: +SKIP
        ...     sessions = SessionsRepository(database)
    """

    def __init__(self, url: str) -> None:
        """Remember where the store is; nothing is opened yet.

        Args:
            url: ``sqlite:///file`` or ``postgresql://user:password@host/name``.

        Raises:
            StoreError: The URL cannot be used; see :func:`db.engine.parse_url`.
        """
        self._url = parse_url(url)
        self._engine: Engine | None = None
        self._binds: dict[Access, Engine] = {}

    @property
    def url(self) -> str:
        """The URL with its password hidden, fit to be shown."""
        return self._url.render_as_string(hide_password=True)

    @property
    def engine(self) -> Engine:
        """The engine of the open store.

        Raises:
            StoreError: The store is not open.
        """
        if self._engine is None:
            raise StoreError(NOT_OPEN)
        return self._engine

    def open(self) -> Self:
        """Connect and bring the schema up to date; opening an open store does nothing.

        Raises:
            StoreError: The database cannot be reached, is no database, or was written by a newer version.
        """
        if self._engine is not None:
            return self
        engine = build_engine(self._url)
        try:
            upgrade(engine)
        except SQLAlchemyError as error:
            engine.dispose()
            raise StoreError(f"The database {self.url} cannot be opened: {_reason(error)}.") from error
        except StoreError:
            engine.dispose()
            raise
        # An engine with options of its own is built once: it costs more than a small transaction.
        self._binds = {access: _bound(engine, access) for access in ACCESSES}
        self._engine = engine
        return self

    def close(self) -> None:
        """Close every connection; closing twice does nothing."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine, self._binds = None, {}

    def __enter__(self) -> Self:
        """Open the store."""
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Give a session for reading and writing: committed at the end, rolled back on an error.

        On SQLite it holds the only write lock from its first statement on, so do not open a second
        one inside it.

        Raises:
            ConflictError: A constraint refuses the change.
            UnstorableValueError: A value is NaN, a time without a zone, half of a character, or not JSON.
            StoreError: The store is not open, or the database refuses.
        """
        make = sessionmaker(self._bind("write"), expire_on_commit=False)
        with _plain_errors(), make.begin() as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session that sees one state of the store, never waits for a writer and cannot write.

        Raises:
            StoreError: The store is not open, or the database refuses.
        """
        with _plain_errors(), Session(self._bind("read"), expire_on_commit=False) as session:
            yield session

    @contextmanager
    def statements(self, access: Access) -> Iterator[Connection]:
        """Give a connection in a transaction, as :meth:`session` or :meth:`reading` does, for statements on tables.

        What is read and written at every step goes this way: nothing has to find out what has changed.

        Args:
            access: ``"write"`` commits at the end and rolls back on an error; ``"read"`` cannot write.

        Raises:
            ConflictError: A constraint refuses the change.
            UnstorableValueError: A value is NaN, a time without a zone, half of a character, or not JSON.
            StoreError: The store is not open, or the database refuses.
        """
        bind = self._bind(access)
        with _plain_errors(), bind.begin() if access == "write" else bind.connect() as connection:
            yield connection

    def _bind(self, access: Access) -> Engine:
        if access not in self._binds:
            raise StoreError(NOT_OPEN)
        return self._binds[access]


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
    except IntegrityError as error:
        raise ConflictError(f"The store refused the change: {_reason(error)}.") from error
    except SQLAlchemyError as error:
        if isinstance(error, StatementError) and isinstance(error.orig, UnstorableValueError):
            raise error.orig from error
        raise StoreError(f"The store could not do that: {_reason(error)}.") from error


def _reason(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    return " ".join(str(cause).split()).rstrip(".")
