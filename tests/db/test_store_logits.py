"""Packed logits are stored as they are, with the matrix that they are read with, once for all steps."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from coft_core.stored_logits import StoredLogits
from db.database import Database, build_engine, downgrade, parse_url
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
        # Another program, which does not know that the store has it.
        LogitBases(database).keep(PACKED)
        assert SessionsRepository(database).logits(branch) == {0: PLAIN.to_bytes(), 1: PACKED.data, 2: PACKED.data}
        assert LogitBases(database).read("d1") == b"matrix"
        with database.reading() as connection:
            assert connection.scalar(select(func.count()).select_from(logit_bases)) == 1


def test_an_older_version_finds_the_logits_that_it_can_read_and_none_that_it_cannot(store_url, branch):
    engine = build_engine(parse_url(store_url))
    downgrade(engine, "0019")
    engine.dispose()
    with Database(store_url) as database:
        assert SessionsRepository(database).logits(branch) == {0: PLAIN.to_bytes()}
        assert len(SessionsRepository(database).chain(branch)) == 3


def test_a_lost_matrix_is_named_and_nothing_is_guessed(database):
    with pytest.raises(StoreError, match="put back the table logit_bases"):
        LogitBases(database).read("d1")
