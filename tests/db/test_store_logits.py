"""Packed logits are stored as they are, with the matrix that they are read with, once for all steps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from sqlalchemy import func, select

from coft_core.stored_logits import StoredLogits
from db.database import Database
from db.logit_bases import LogitBases, PackedLogits, logit_bases
from db.sessions import SessionsRepository
from db.types import StoreError
from tests.db.conftest import new_session, new_step

PLAIN = StoredLogits(("factual",), 1, 1.0, "float32", b"kept")
PACKED = PackedLogits(b"\x02packed", "d1", lambda: b"matrix")


@pytest.fixture
def branch(store_url):
    """A branch with a step of either kind."""
    with Database(store_url) as database:
        sessions = SessionsRepository(database)
        branch = sessions.create(new_session()).active_branch_id
        sessions.append_step(branch, new_step(0, logits=PLAIN))
        for index in (1, 2):
            sessions.append_step(branch, new_step(index, logits=PLAIN), packed=PACKED)
    return branch


def test_logits_are_read_as_they_were_stored_and_their_matrix_is_kept_once(store_url, branch):
    with Database(store_url) as database:
        assert SessionsRepository(database).logits(branch) == {0: PLAIN.to_bytes(), 1: PACKED.data, 2: PACKED.data}
        assert LogitBases(database).read("d1") == b"matrix"
        with database.reading() as connection:
            assert connection.scalar(select(func.count()).select_from(logit_bases)) == 1


def test_a_lost_matrix_is_named_and_nothing_is_guessed(database):
    with pytest.raises(StoreError, match="put back the table logit_bases"):
        LogitBases(database).read("d1")


def matrices(database):
    with database.reading() as connection:
        return list(connection.scalars(select(logit_bases.c.digest)))


def test_a_matrix_goes_with_the_last_session_that_is_read_with_it(store_url, branch):
    with Database(store_url) as here, Database(store_url) as elsewhere:
        first, second = SessionsRepository(here), SessionsRepository(elsewhere)
        other = second.create(new_session())
        second.append_step(other.active_branch_id, new_step(0, logits=PLAIN), packed=PACKED)
        first.delete(first.branch(branch).session_id)
        assert matrices(here) == ["d1"]
        assert second.logits(other.active_branch_id) == {0: PACKED.data}
        first.delete(other.id)
        assert matrices(here) == []
        # A server that had stored it before does not take it for stored now.
        third = second.create(new_session())
        second.append_step(third.active_branch_id, new_step(0, logits=PLAIN), packed=PACKED)
        assert LogitBases(here).read("d1") == b"matrix"


def test_a_matrix_that_another_server_is_about_to_name_is_not_removed(store_url, branch):
    """On PostgreSQL, where writers do not wait for each other: the deletion waits, and the matrix stays."""
    begun, deleted = Barrier(2), Event()
    with Database(store_url) as here, Database(store_url) as elsewhere:
        first, second = SessionsRepository(here), SessionsRepository(elsewhere)
        session, other = first.branch(branch).session_id, second.create(new_session())

        def delete():
            begun.wait()
            first.delete(session)
            deleted.set()

        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(delete)
            with elsewhere.together():
                second.append_step(other.active_branch_id, new_step(0, logits=PLAIN), packed=PACKED)
                begun.wait()
                assert not deleted.wait(0.2)
            done.result()
        assert matrices(here) == ["d1"]
        assert LogitBases(here).read("d1") == b"matrix"
        assert [row.id for row in first.list()] == [other.id]
