"""Servers that share a store leave each other's living jobs alone, and take over those whose lease has run out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from app.shared.jobs import LEASE, RENEWAL_SECONDS, JobRunner
from db.database import Database
from db.jobs import JobsRepository, jobs
from db.types import utc_now

ROOT = Path(__file__).resolve().parents[3]

SERVER = """
import sys
from dataclasses import replace
from threading import Event
from app.shared.jobs import JobRunner
from db.database import Database

database = Database(sys.argv[1]).open()
runner = JobRunner(database)
# As if it were another computer, into whose processes nobody can look.
runner._process = replace(runner._process, host="desk-7", machine="another computer")
entered, released = Event(), Event()

def work(context):
    entered.set()
    while not released.wait(0.01):
        context.check_cancelled()
    return {"by": "desk-7"}

first, queued = runner.submit("batch", "first", work), runner.submit("batch", "queued", work)
entered.wait(30)
print(first, queued, flush=True)
for line in sys.stdin:
    if line.strip() == "renew":
        print(*runner.renew(), flush=True)
    elif line.strip() == "end":
        released.set()
        print(*(runner.wait(job, 30).status for job in (first, queued)), flush=True)
"""


class Server:
    """Another process with a runner of its own on the same store."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def said(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def told(self, word: str) -> list[str]:
        assert self._process.stdin is not None
        print(word, file=self._process.stdin, flush=True)
        return self.said()


@contextmanager
def other_server(url: str) -> Iterator[Server]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
    ) as process:  # fmt: skip
        try:
            yield Server(process)
        finally:
            process.kill()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
        return
    with request.getfixturevalue("postgresql").fresh() as found:
        yield found


def silent(database: Database, since: timedelta) -> None:
    """Let all signs of life be so old, as after a pause of the computers that gave them."""
    with database.writing() as connection:
        connection.execute(update(jobs).values(heartbeat_at=utc_now() - since))


def test_a_lease_is_renewed_often_enough_to_miss_several_signs_of_life() -> None:
    assert timedelta(seconds=4 * RENEWAL_SECONDS) < LEASE


def test_a_living_job_of_another_server_is_left_alone_and_taken_over_when_its_lease_has_run_out(url: str) -> None:
    later = [timedelta(0)]

    def now() -> datetime:
        return utc_now() + later[0]

    with Database(url) as database, JobRunner(database, now=now) as runner, other_server(url) as other:
        store = JobsRepository(database)
        first, queued = map(int, other.said())
        # A server that starts beside it, and looks, before the lease has run out.
        later[0] = LEASE / 2
        assert runner.recover(owns_store=True) == []
        assert [runner.get(job).status for job in (first, queued)] == ["running", "queued"]
        # Signs of life come whatever the job does, and for one that waits for its turn too.
        silent(database, 2 * LEASE)
        later[0] = timedelta(0)
        assert other.told("renew") == []
        assert runner.recover(owns_store=True) == []
        # Without them the lease runs out, and the job is taken over.
        silent(database, 2 * LEASE)
        assert runner.recover() == [first, queued]
        resumed = runner.wait(runner.submit("batch", "first", lambda _: {"by": "here"}), 30)
        assert (resumed.status, resumed.result) == ("done", {"by": "here"})
        # The other server wakes up, learns of it, and stops without a word on the rows.
        assert other.told("renew") == [str(first), str(queued)]
        assert other.told("end") == ["interrupted", "interrupted"]
        assert [store.get(job).result for job in (first, queued)] == [None, None]


def test_a_sign_of_life_between_looking_and_marking_saves_a_job(url: str) -> None:
    with Database(url) as database, JobRunner(database) as runner:
        store = JobsRepository(database)
        job = store.add("batch", "t", process={**runner._process.json, "machine": "another computer"})
        silent(database, 2 * LEASE)
        seen = store.get(job.id)
        assert store.renew([job.id], {**runner._process.json, "machine": "another computer"}) == {job.id}
        assert runner._interrupt([seen]) == []
        assert store.get(job.id).status == "queued"
        assert store.renew([job.id], runner._process.json) == set()
