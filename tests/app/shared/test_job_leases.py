"""Servers that share a store leave each other's living jobs alone, and take over those whose lease has run out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from threading import Barrier, Event

import pytest
from sqlalchemy import update

from app.bootstrap import services
from app.jobs.service import LEASE, JobContext, JobService
from app.settings import Settings
from coft_core.types import Example
from db.batches import BatchesRepository
from db.database import Database
from db.evaluations import EvaluationsRepository
from db.jobs import JobsRepository, jobs
from db.projects import ProjectsRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.scope import in_every_project, in_project
from db.types import ConflictError, utc_now

ROOT = Path(__file__).resolve().parents[3]
LONG = 30.0
"""Seconds after which a test gives up on a thread; never reached when the code is right."""

SERVER = """
import sys
from dataclasses import replace
from threading import Event
from app.jobs import service as jobs
from db.database import Database

database = Database(sys.argv[1]).open()
runner = jobs.JobService(database)
# As if it were another computer, into whose processes nobody can look.
runner._process = replace(runner._process, host="desk-7", machine="another computer")
entered, released = Event(), Event()

def work(context):
    context.check_cancelled()
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
    with in_every_project(), database.writing() as connection:
        connection.execute(update(jobs).values(heartbeat_at=utc_now() - since))


def test_a_living_job_of_another_server_is_left_alone_and_taken_over_when_its_lease_has_run_out(url: str) -> None:
    later = [timedelta(0)]

    def now() -> datetime:
        return utc_now() + later[0]

    with Database(url) as database, JobService(database, now=now) as runner, other_server(url) as other:
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


def test_a_sign_of_life_between_looking_and_marking_saves_a_job_and_a_cancelled_one_stays_so(url: str) -> None:
    with Database(url) as database, JobService(database) as runner:
        store, elsewhere = JobsRepository(database), {**runner._process.json, "machine": "another computer"}
        job = store.add("batch", "t", process=elsewhere)
        silent(database, 2 * LEASE)
        seen = store.get(job.id)
        assert store.renew([job.id], elsewhere) == {job.id: False}
        assert runner._interrupt([seen]) == []
        assert store.get(job.id).status == "queued"
        assert store.renew([job.id], runner._process.json) == {}
        # A job that was to be cancelled counts as cancelled where its server ended before.
        asked = store.add("batch", "t", process=elsewhere).id
        store.ask_to_cancel(asked)
        silent(database, 2 * LEASE)
        assert runner.recover() == [job.id, asked]
        found = [store.get(number) for number in (job.id, asked)]
        assert [(job.status, job.error is None) for job in found] == [("interrupted", False), ("cancelled", True)]


def test_a_job_is_cancelled_by_whichever_server_is_asked(url: str) -> None:
    released, entered = Event(), Event()

    def work(context: JobContext) -> None:
        entered.set()
        while not released.wait(0.01):
            context.check_cancelled()

    with Database(url) as here, Database(url) as elsewhere, JobService(here) as holder, JobService(elsewhere) as other:
        running, queued, third = (holder.submit("batch", title, work) for title in ("running", "queued", "third"))
        assert entered.wait(30)
        for job in (running, queued):
            other.cancel(job)
        assert set(holder.renew()) == {running, queued}
        assert [holder.wait(job, 30).status for job in (running, queued)] == ["cancelled", "cancelled"]
        released.set()
        assert holder.wait(third, 30).status == "done"
        # Nothing is left of asking too late.
        other.cancel(third)
        assert other.get(third).status == "done"


def begins(kind: str, database: Database, subject: int) -> Callable[[int], object]:
    if kind == "batch":
        return lambda job: BatchesRepository(database).begin(subject, job)
    if kind == "evaluation":
        return lambda job: EvaluationsRepository(database).begin(subject, job)
    return lambda job: JobsRepository(database).take_up(subject, job)


def interrupted(kind: str, database: Database) -> int:
    """The number of work of a kind that can be resumed."""
    if kind == "batch":
        prompts = PromptSetsRepository(database).add("set", "set.csv", "0", [PromptRow(2, Example("He said"))])
        return BatchesRepository(database).add("batch", prompts.id, {}, [2]).id
    if kind == "evaluation":
        return EvaluationsRepository(database).add("suites", {}, {}).id
    ended = JobsRepository(database).add("calibration", "ended").id
    JobsRepository(database).finish(ended, "interrupted", progress=0.5, message="")
    return ended


def test_of_two_servers_that_resume_the_same_work_at_once_exactly_one_does(url: str) -> None:
    with Database(url) as first, Database(url) as second:
        for kind in ("batch", "evaluation", "calibration") * 3:
            subject, together = interrupted(kind, first), Barrier(2)
            before = len(JobsRepository(first).list(limit=None))

            def resume(database: Database, barrier: Barrier = together, kind: str = kind, number: int = subject) -> str:
                take = begins(kind, database, number)
                barrier.wait()
                try:
                    with database.together():
                        take(JobsRepository(database).add(kind, "resumed").id)
                except ConflictError:
                    return "refused"
                return "resumed"

            with ThreadPoolExecutor(2) as servers:
                assert sorted(servers.map(resume, (first, second))) == ["refused", "resumed"]
            assert len(JobsRepository(first).list(limit=None)) == before + 1


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers give signs of life as often as they can."""
    monkeypatch.setattr("app.jobs.service.RENEWAL_SECONDS", 0.01)


def test_with_accounts_a_server_heeds_another_one_and_renews_its_leases(at_once: None, tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'shared.db'}", pipeline="none", accounts="on")
    with services(settings, owns_store=True) as holder, services(settings, owns_store=True) as other:
        store, renewed = holder[JobsRepository], Event()
        with in_every_project():
            other_project = ProjectsRepository(holder.database).add("Other").id

        def work(context: JobContext) -> None:
            silent(holder.database, 2 * LEASE)
            while not renewed.wait(0.01) and not context.stop.is_set():
                if utc_now() - (store.get(context.job_id).heartbeat_at or utc_now() - LEASE) < LEASE:
                    renewed.set()
            assert context.stop.wait(LONG)
            context.check_cancelled()

        for project in (1, other_project):
            renewed.clear()
            with in_project(project):
                running = holder[JobService].submit("batch", "running", work)
                assert renewed.wait(LONG)
                other[JobService].cancel(running)
                assert holder[JobService].wait(running, LONG).status == "cancelled"


def test_what_fails_in_renewing_leases_is_tried_again(
    at_once: None, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Event()

    def fails_once() -> None:
        monkeypatch.setattr(runner, "renew", tried.set)
        raise RuntimeError("the store is away")

    with JobService(database) as runner:
        monkeypatch.setattr(runner, "renew", fails_once)
        with ThreadPoolExecutor(1) as thread:
            watching = thread.submit(runner.keep_leases)
            assert tried.wait(LONG)
            runner.shutdown()
            watching.result(LONG)
