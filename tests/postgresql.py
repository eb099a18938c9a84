"""A PostgreSQL server of the tests' own, on a socket in a temporary folder, and an empty database for each test.

Debian's package ``postgresql`` has its programs. Where they are missing, tests that need them are skipped; where ``CI``
is set they fail instead, since a green run there says that the store works on both kinds of database.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

PROGRAMS = Path("/usr/lib/postgresql")
"""Where Debian keeps them, by version, out of the search path."""

USER = "tests"
MISSING = "PostgreSQL is not installed (apt-get install postgresql); its half of the store's tests is skipped"

CARELESS = (
    "fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off", "shared_buffers=32MB",
    "wal_level=minimal", "max_wal_senders=0", "max_wal_size=128MB",
)  # fmt: skip
"""Nothing of it outlives the tests, and each of them would wait for the disk."""

MEMORY, ROOM = Path("/dev/shm"), 2 << 30
"""A folder in memory, where a database is made in a fraction of the time, and the room that the server wants there."""


def program(name: str) -> str | None:
    """Path of one of PostgreSQL's programs, the newest version's; None where it is not installed."""
    versions = sorted(PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), reverse=True)
    return str(versions[0]) if versions else shutil.which(name)


@dataclass(frozen=True)
class Server:
    """A running server; ``folder`` has its socket."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count, repr=False)

    def url(self, name: str) -> str:
        """The store's URL of a database of this server."""
        return f"postgresql://{USER}@/{name}?host={self.folder}"

    def create(self, template: str = "template0") -> str:
        """Create a database like another one and return its name."""
        name = f"store_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def fresh(self, template: str = "template0") -> Iterator[str]:
        """The URL of a database that lasts as long as this block."""
        name = self.create(template)
        try:
            yield self.url(name)
        finally:
            self.drop(name)

    def _execute(self, statement: str) -> None:
        with psycopg.connect(f"host={self.folder} user={USER} dbname=postgres", autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server for all tests of this process."""
    initialize, control = program("initdb"), program("pg_ctl")
    if initialize is None or control is None:
        if "CI" in os.environ:
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    # PostgreSQL refuses to run as root; a socket's path has at most 107 bytes.
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    folder = Path(tempfile.mkdtemp(prefix="coft-pg-", dir=MEMORY if roomy else None))
    account = "postgres" if os.geteuid() == 0 else None
    if account is not None:
        os.chown(folder, pwd.getpwnam(account).pw_uid, -1)
    data, log = folder / "data", folder / "log"

    def run(*arguments: str) -> None:
        done = subprocess.run(arguments, user=account, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            pytest.fail(f"{arguments[0]} failed: {log.read_text() if log.exists() else 'see above'}")

    try:
        run(initialize, "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        settings = " ".join(f"-c {setting}" for setting in CARELESS)
        options = f"-k {folder} -c listen_addresses='' {settings}"
        run(control, "-D", str(data), "-l", str(log), "-o", options, "-w", "start")
        try:
            yield Server(folder)
        finally:
            run(control, "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
