"""Steps of many branches that are appended at once: fewer transactions, and each branch's step is its own affair."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from coft_core.stored_logits import StoredLogits
from coft_core.types import Candidate
from db.types import ConflictError, NotFoundError, StoreError, UnstorableValueError
from tests.db.conftest import new_session, new_step, statements

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
