"""What several repositories write inside one block is kept as a whole or not at all."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from db.database import Database
from db.jobs import JobsRepository
from db.prompt_sets import PromptSetsRepository
from db.sessions import SessionsRepository
from db.types import ConflictError
from tests.db.conftest import new_session


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
