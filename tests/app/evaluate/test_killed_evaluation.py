"""An evaluation that is killed at any moment and resumed keeps what an uninterrupted one keeps, byte for byte."""

from __future__ import annotations

import sys
from contextlib import contextmanager

from sqlalchemy import select

from app.bootstrap import services
from app.jobs.service import JobService
from app.settings import Settings
from coft_core.suites.reading import Reader
from db.evaluations import calibrations, contents, items
from tests.app.children import child
from tests.app.evaluate.made_up import evaluations_of
from tests.app.evaluate.test_evaluations import Reading, request
from tests.conftest import load_tiny

ASKED = request(seeds=(0,))


class Telling(Reader):
    def read(self, *arguments):
        print("reading", flush=True)
        sys.stdin.readline()
        return super().read(*arguments)


def evaluating(path):
    """Start the evaluation, or resume it."""
    with opened(path) as wired:
        evaluations = evaluations_of(wired, Telling)
        if evaluations.list():
            evaluations.resume(1)
        else:
            evaluations.submit(ASKED)
        wired[JobService].wait(evaluations.view(1).job.id)


@contextmanager
def running_until(path, batches):
    """A process that runs the evaluation, and has begun so many batches; the last one waits."""
    with child(lambda: evaluating(path)) as other:
        for batch in range(batches):
            if batch:
                other.stdin.write("\n")
            assert other.stdout.readline() == "reading\n"
        yield other.process


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
    return services(settings, loader=load_tiny)


def test_a_killed_evaluation_goes_on_and_keeps_the_same_bytes(tmp_path):
    for batches in (2, 3):
        with running_until(tmp_path / "killed.db", batches):
            pass
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
        number = evaluations.submit(ASKED)
        assert wired[JobService].wait(evaluations.view(number).job.id).status == "done"
        assert kept(wired) == resumed
