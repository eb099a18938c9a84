"""An evaluation that is killed at any moment and resumed keeps what an uninterrupted one keeps, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sqlalchemy import select

from app.bootstrap import services
from app.settings import Settings
from app.shared.jobs import JobService
from db.evaluations import calibrations, contents, items
from tests.app.evaluate.made_up import evaluations_of
from tests.app.evaluate.test_evaluations import Reading, request
from tests.conftest import load_tiny

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
from app.bootstrap import services
from app.settings import Settings
from app.shared.jobs import JobService
from coft_core.suites.reading import Reader
from tests.app.evaluate.made_up import evaluations_of
from tests.app.evaluate.test_evaluations import request
from tests.conftest import load_tiny

class Telling(Reader):
    def read(self, *arguments):
        print("reading", flush=True)
        return super().read(*arguments)

settings = Settings(database_url=sys.argv[1], pipeline="none")
with services(settings, owns_store=True, loader=load_tiny) as wired:
    evaluations = evaluations_of(wired, Telling)
    number = 1 if evaluations.list() else evaluations.submit(request())
    job = evaluations.view(number).job.id
    wired[JobService].wait(job if evaluations.view(number).running else evaluations.resume(number))
"""


def killed_after(url, batches):
    """Run the evaluation in a process of its own, which is killed while it does one more batch."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(batches):
        assert process.stdout.readline() == "reading\n"
    process.kill()
    process.communicate()


def kept(wired):
    """Everything that is kept of the items, with the outcomes themselves, and the keys of the thresholds."""
    order = (items.c.suite, items.c.method, items.c.seed, items.c.place)
    query = select(items, contents.c.content).join(contents, contents.c.key == items.c.key).order_by(*order)
    with wired.database.reading() as connection:
        return [tuple(row) for row in connection.execute(query)], {
            tuple(row) for row in connection.execute(select(calibrations.c.suite, calibrations.c.key))
        }


def opened(path):
    settings = Settings(database_url=f"sqlite:///{path}", pipeline="none")
    return services(settings, owns_store=True, loader=load_tiny)


def test_a_killed_evaluation_goes_on_and_keeps_the_same_bytes(tmp_path):
    for batches in (2, 4):
        killed_after(f"sqlite:///{tmp_path / 'killed.db'}", batches)
    reading = Reading()
    with opened(tmp_path / "killed.db") as wired:
        evaluations = evaluations_of(wired, reading)
        before = evaluations.view(1)
        assert (before.job.status, before.resumable) == ("interrupted", True)
        assert 0 < before.done < before.planned
        rows = {row[:-1] for row in kept(wired)[0]}
        assert wired[JobService].wait(evaluations.resume(1)).status == "done"
        resumed = kept(wired)
    read = sum(len(asks) * policies for asks, policies in reading.asks)
    assert read <= before.planned - before.done
    assert rows <= {row[:-1] for row in resumed[0]}
    with opened(tmp_path / "whole.db") as wired:
        evaluations = evaluations_of(wired)
        number = evaluations.submit(request())
        assert wired[JobService].wait(evaluations.view(number).job.id).status == "done"
        assert kept(wired) == resumed
