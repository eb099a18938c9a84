"""A store, a clock that stands still, and a runner on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.jobs.service import JobService
from db.database import Database
from db.jobs import JobsRepository


class Clock:
    """Monotonic seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An open, empty store."""
    with Database(f"sqlite:///{tmp_path / 'audit.db'}") as opened:
        yield opened


@pytest.fixture
def jobs(database: Database) -> JobsRepository:
    """The rows of jobs."""
    return JobsRepository(database)


@pytest.fixture
def clock() -> Clock:
    """The runner's clock."""
    return Clock()


@pytest.fixture
def runner(database: Database, clock: Clock) -> Iterator[JobService]:
    """A runner of one job at a time."""
    with JobService(database, clock=clock) as made:
        yield made
