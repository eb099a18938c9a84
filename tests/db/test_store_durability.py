"""A step that was shown is kept, writers wait for each other, and a block is kept whole or not at all."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from coft_core.stored_logits import StoredLogits
from coft_core.types import Candidate
from db.database import Database
from db.jobs import JobsRepository
from db.prompt_sets import PromptSetsRepository
from db.sessions import SessionsRepository
from db.types import ConflictError, NotFoundError, StoreError, UnstorableValueError
from tests.db.conftest import new_session, new_step, statements

ROOT = Path(__file__).resolve().parents[2]

APPENDER = """
import sys
from dataclasses import replace
from itertools import count
import pytest

from db.database import Database
from db.jobs import JobsRepository
from db.sessions import SessionsRepository

sessions = SessionsRepository(Database(sys.argv[1]).open())
branch = int(sys.argv[2])
step = sessions.chain(branch)[0]
for index in count(1):
    sessions.append_step(branch, replace(step, index=index, token=f"t{index}"))
    print(index, flush=True)
"""


def test_no_shown_step_is_lost_when_the_process_is_killed(store_url):
    with Database(store_url) as database:
        session = SessionsRepository(database).create(new_session())
        first = new_step(0)
        SessionsRepository(database).append_step(session.active_branch_id, first)
    child = subprocess.Popen(
        [sys.executable, "-c", APPENDER, store_url, str(session.active_branch_id)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    shown = [int(child.stdout.readline()) for _ in range(10)]
    child.send_signal(signal.SIGKILL)
    shown += [int(line) for line in child.stdout]
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL

    with Database(store_url) as database:
        sessions = SessionsRepository(database)
        chain = sessions.chain(sessions.get(session.id).active_branch_id)
        # One more step may have been committed whose line was not printed any more.
        assert len(chain) in (len(shown) + 1, len(shown) + 2)
        assert [step.index for step in chain] == list(range(len(chain)))
        assert [step.token for step in chain[1:]] == [f"t{index}" for index in range(1, len(chain))]
        assert all(step.candidates == first.candidates for step in chain)
        sessions.append_step(session.active_branch_id, new_step(len(chain)))


def test_two_writers_and_a_reader_do_not_lock_each_other_out(database):
    sessions = SessionsRepository(database)
    branches = [sessions.create(new_session()).active_branch_id for _ in range(2)]
    together = Barrier(3)

    def write(branch):
        together.wait()
        for index in range(12):
            sessions.append_step(branch, new_step(index))

    def read():
        together.wait()
        for _ in range(12):
            chain = sessions.chain(branches[0])
            assert all(len(step.candidates) == 2 for step in chain)
            sessions.list()

    with ThreadPoolExecutor(3) as threads:
        work = [threads.submit(write, branch) for branch in branches] + [threads.submit(read)]
        for item in work:
            item.result()
    assert [len(sessions.chain(branch)) for branch in branches] == [12, 12]


def test_of_two_writers_of_the_same_step_exactly_one_wins(database):
    sessions = SessionsRepository(database)
    branch = sessions.create(new_session()).active_branch_id
    together = Barrier(2)

    def write(name):
        won = []
        for index in range(8):
            together.wait()
            try:
                sessions.append_step(branch, new_step(index, token=name))
            except ConflictError:
                continue
            won.append(index)
        return won

    with ThreadPoolExecutor(2) as threads:
        left, right = threads.map(write, ("left", "right"))
    assert sorted(left + right) == list(range(8))
    assert [step.token == "left" for step in sessions.chain(branch)] == [index in left for index in range(8)]


def _add_and_unlink(jobs, file):
    jobs.add("calibrate", "lost", {})
    file.unlink()


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
def test_nothing_is_answered_once_a_file_of_the_store_is_gone_or_another_one(tmp_path, empty_file, ending):
    for way in ("gone", "gone while writing", "another one"):
        path = Path(shutil.copyfile(empty_file, tmp_path / f"{way}.db"))
        file = path.with_name(path.name + ending)
        with Database(f"sqlite:///{path}") as database:
            jobs = JobsRepository(database)
            kept = jobs.add("calibrate", "kept", {})
            if way == "another one":
                shutil.copyfile(file, tmp_path / "copy")
                (tmp_path / "copy").replace(file)
            elif way == "gone":
                file.unlink()
            else:
                with pytest.raises(StoreError), database.together():
                    _add_and_unlink(jobs, file)
            with pytest.raises(StoreError):
                jobs.add("calibrate", "lost", {})
            with pytest.raises(StoreError):
                jobs.list()
        if (way, ending) == ("gone", "-wal"):
            with Database(f"sqlite:///{path}") as database:
                assert list(JobsRepository(database).list()) == [kept]


SECONDS = 60


class Gate:
    """Holds every transaction of a store back until it is opened, and counts those that began."""

    def __init__(self, database, monkeypatch):
        self.opened, self.entered, self.transactions = threading.Event(), threading.Event(), 0
        self.refusal: Exception | None = None
        make = database.writing

        @contextmanager
        def writing():
            self.entered.set()
            assert self.opened.wait(SECONDS)
            if self.refusal is not None:
                raise self.refusal
            self.transactions += 1
            with make() as connection:
                yield connection

        monkeypatch.setattr(database, "writing", writing)


class Appender(threading.Thread):
    """Appends a step and keeps what came of it."""

    def __init__(self, sessions, branch, step):
        super().__init__(daemon=True)
        self._append: Callable[[], None] = lambda: sessions.append_step(branch, step)
        self.error: BaseException | None = None
        self.start()

    def run(self):
        try:
            self._append()
        except BaseException as error:
            self.error = error


@pytest.fixture
def branches(sessions):
    return [sessions.create(new_session(name=f"audit {n}")).active_branch_id for n in range(5)]


@pytest.fixture
def gate(database, monkeypatch, branches):
    return Gate(database, monkeypatch)


def wait_until(condition):
    for _ in range(SECONDS * 1000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not happen")


def append_at_once(sessions, gate, steps):
    """The first one's transaction is held back until all others wait."""
    first = Appender(sessions, *steps[0])
    assert gate.entered.wait(SECONDS)
    others = [Appender(sessions, *own) for own in steps[1:]]
    wait_until(lambda: len(sessions._steps._waiting) == len(steps))
    gate.opened.set()
    for thread in (first, *others):
        thread.join(SECONDS)
        assert not thread.is_alive()
    return (first, *others)


def test_steps_that_come_while_one_is_written_share_the_next_transaction(sessions, gate, branches):
    logits = [StoredLogits(("factual",), 1, 1.0, "float32", bytes([n] * 4)) for n in range(5)]
    steps = [new_step(0, token=f"own {n}", logits=logits[n]) for n in range(5)]
    done = append_at_once(sessions, gate, list(zip(branches, steps, strict=True)))
    assert gate.transactions == 2
    assert [own.error for own in done] == [None] * 5
    for branch, step, kept in zip(branches, steps, logits, strict=True):
        assert sessions.chain(branch) == (step,)
        assert StoredLogits.from_bytes(sessions.logits(branch)[0]) == kept
    assert [item.steps for item in sessions.list()] == [1] * 5


def test_a_step_that_cannot_be_stored_leaves_the_others_theirs(sessions, gate, branches):
    nan = Candidate(1, "x", math.nan, -1.0, -1.0, True)
    steps = [new_step(0), new_step(3), new_step(0), new_step(0, candidates=(nan,)), new_step(0)]
    gone = [*branches[:2], 404, *branches[3:]]
    done = append_at_once(sessions, gate, list(zip(gone, steps, strict=True)))
    kinds = [type(own.error) for own in done]
    assert kinds == [type(None), ConflictError, NotFoundError, UnstorableValueError, type(None)]
    assert "next step of branch" in str(done[1].error)
    assert [len(sessions.chain(branch)) for branch in branches] == [1, 0, 0, 0, 1]


def test_where_no_transaction_can_begin_everybody_is_told_so_at_once(sessions, gate, branches):
    gate.refusal = StoreError("The store could not do that: the disk is full.")
    done = append_at_once(sessions, gate, [(branch, new_step(0)) for branch in branches])
    assert all(own.error is gate.refusal for own in done)
    gate.refusal = None
    sessions.append_step(branches[2], new_step(0))
    assert len(sessions.chain(branches[2])) == 1


def test_an_interrupted_writer_leaves_the_others_to_the_next(sessions, gate, branches, monkeypatch):
    writer = sessions._steps
    write = writer._write
    interrupted: list[Any] = []

    def interrupted_once(taken):
        if len(taken) > 1 and not interrupted:
            interrupted.append(taken)
            raise SystemExit
        write(taken)

    monkeypatch.setattr(writer, "_write", interrupted_once)
    done = append_at_once(sessions, gate, [(branch, new_step(0)) for branch in branches])
    assert [type(own.error) for own in done].count(SystemExit) == 1
    stored = [branch for branch, own in zip(branches, done, strict=True) if own.error is None]
    assert [len(sessions.chain(branch)) for branch in stored] == [1] * 4
    assert not writer._waiting


def test_a_step_takes_the_same_few_statements_however_long_its_chain_is(sessions, database, branches):
    counts = []
    for index in range(20):
        with statements(database) as executed:
            sessions.append_step(branches[0], new_step(index))
        counts.append(len([sql for sql in executed if sql.split()[0] in ("SELECT", "INSERT", "UPDATE")]))
    assert set(counts) == {4}


def fail() -> None:
    raise ZeroDivisionError


def counts(database: Database) -> tuple[int, int]:
    return SessionsRepository(database).count(), len(JobsRepository(database).list())


def test_an_error_takes_back_what_all_repositories_wrote_and_runs_what_undoes_it(database):
    said = []

    def write():
        with database.together():
            SessionsRepository(database).create(new_session())
            JobsRepository(database).add("kind", "title")
            database.afterwards(lambda: said.append("begun"), lambda: said.append("undone"))
            assert counts(database) == (1, 1)
            fail()

    with pytest.raises(ZeroDivisionError):
        write()
    assert counts(database) == (0, 0)
    assert said == ["undone"]


def test_what_follows_begins_only_when_the_rows_are_there_for_all(database):
    seen = []
    with database.together():
        SessionsRepository(database).create(new_session())
        with database.together():
            JobsRepository(database).add("kind", "title")
            database.afterwards(lambda: seen.append(counts(database)), lambda: None)
        other = Thread(target=lambda: seen.append(counts(database)))
        other.start()
        other.join()
    assert seen == [(0, 0), (1, 1)]


def test_an_error_that_is_caught_inside_leaves_nothing_of_what_it_came_from(database):
    sessions = SessionsRepository(database)

    def half():
        with database.together():
            JobsRepository(database).add("kind", "title")
            fail()

    with database.together():
        kept = sessions.create(new_session())
        with pytest.raises(ConflictError):
            sessions.create(new_session(calibration_id=99))
        with pytest.raises(ZeroDivisionError):
            half()
    assert [item.id for item in sessions.list()] == [kept.id]
    assert counts(database) == (1, 0)


def test_another_thread_writes_after_the_block_and_not_into_it(database):
    begun, added = Event(), []

    def write():
        begun.set()
        added.append(PromptSetsRepository(database).add("other", "o.csv", "d", ()).id)

    with database.together():
        SessionsRepository(database).create(new_session())
        thread = Thread(target=write)
        thread.start()
        begun.wait()
        assert not added
        assert not PromptSetsRepository(database).list()
    thread.join()
    assert len(added) == 1
