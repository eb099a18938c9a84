"""A step that was shown survives the death of the process, and writers wait for each other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from db.database import Database
from db.jobs import JobsRepository
from db.sessions import SessionsRepository
from db.types import ConflictError, StoreError
from tests.db.conftest import new_session, new_step

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
