"""Column types return exactly what was stored, or refuse it."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coft_core.types import Candidate
from db.jobs import JobsRepository, jobs
from db.sessions import SessionsRepository
from db.tables import change_row
from db.types import UnstorableValueError, escape_text, unescape_text
from tests.db.conftest import new_session, new_step

HOSTILE = "\x00\x10\\0 \x100000 \x10d800 é \U0001d54f\ufeff\r\n\t"
HOSTILE_IN_JSON = "\x00\x10\\u0000\\ud800 \U0001d54f"
anything = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\x00\x100123456789abcdef")))


@given(anything)
def test_escaping_is_reversible_and_leaves_text_that_every_database_takes(value):
    stored = escape_text(value)
    assert unescape_text(stored) == value
    assert "\x00" not in stored
    stored.encode("utf-8")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00\x10")))
def test_ordinary_text_is_stored_as_it_is(value):
    assert escape_text(value) == value


def test_hostile_text_survives_in_every_text_column_of_a_step(database):
    sessions = SessionsRepository(database)
    session = sessions.create(
        new_session(prompt=HOSTILE, warnings=(HOSTILE_IN_JSON,), policy_settings={"a": HOSTILE_IN_JSON})
    )
    candidate = Candidate(1, HOSTILE, -1.0, -1.0, -1.0, True)
    step = new_step(0, token=HOSTILE, policy_token=HOSTILE, candidates=(candidate,))
    sessions.append_step(session.active_branch_id, step)

    reopened = sessions.get(session.id)
    assert (reopened.prompt, reopened.warnings) == (HOSTILE, (HOSTILE_IN_JSON,))
    assert reopened.policy_settings == {"a": HOSTILE_IN_JSON}
    (stored,) = sessions.chain(session.active_branch_id)
    assert (stored.token, stored.policy_token) == (HOSTILE, HOSTILE)
    assert stored.candidates == (candidate,)


def test_half_of_a_character_is_refused_in_text_and_json_and_the_sentence_shows_where(database):
    sessions = SessionsRepository(database)
    for half in ("\ud800", "\udc00 \ud800"):
        where = re.escape(f"(U+{ord(half[0]):04X},")
        with pytest.raises(UnstorableValueError, match=where) as refused:
            sessions.create(new_session(name=f"Night {half} shift"))
        assert "“Night \ufffd" in str(refused.value)
        str(refused.value).encode("utf-8")
        for kept in ({"whitelist": [half]}, {half: 1}):
            with pytest.raises(UnstorableValueError, match=where):
                sessions.create(new_session(policy_settings=kept))
    assert sessions.list() == []


def test_a_job_and_a_row_of_a_batch_end_with_a_mended_sentence_whatever_it_quotes(database):
    jobs = JobsRepository(database)
    job = jobs.add("calibrate", "title")
    jobs.finish(job.id, "failed", progress=0.0, message="", error="“\ud800” is no word.")
    assert jobs.get(job.id).error == "“\ufffd” is no word."


def test_infinite_thresholds_and_smallest_doubles_survive(database):
    sessions = SessionsRepository(database)
    branch = sessions.create(new_session()).active_branch_id
    step = new_step(
        0, log_tau=-math.inf, margin=math.inf, log_p_masked=-math.inf, log_p_factual=-5e-324, log_ratio=0.1 + 0.2
    )
    sessions.append_step(branch, step)
    (stored,) = sessions.chain(branch)
    assert (stored.log_tau, stored.diagnostics.margin, stored.log_p_masked) == (-math.inf, math.inf, -math.inf)
    assert (stored.log_p_factual, stored.diagnostics.log_ratio) == (-5e-324, 0.1 + 0.2)


def test_nan_is_refused_and_nothing_of_the_step_is_stored(database):
    sessions = SessionsRepository(database)
    branch = sessions.create(new_session()).active_branch_id
    nan = Candidate(1, "x", math.nan, 0.0, 0.0, True)
    for changes in ({"log_tau": math.nan}, {"tv_bound": math.nan}, {"candidates": (nan,)}):
        with pytest.raises(UnstorableValueError, match="NaN"):
            sessions.append_step(branch, new_step(0, **changes))
    assert sessions.chain(branch) == ()


def test_json_that_no_other_database_reads_is_refused(database):
    for value in (math.inf, math.nan, object()):
        with pytest.raises(UnstorableValueError, match="JSON"):
            JobsRepository(database).add("calibrate", "title", {"value": value})


def test_moments_come_back_in_utc_whatever_zone_they_were_given_in_and_need_one(database):
    job = JobsRepository(database).add("calibrate", "title")
    moment = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=timezone(timedelta(hours=-7)))
    with database.writing() as connection:
        change_row(connection, jobs, job.id, started_at=moment)
    stored = JobsRepository(database).get(job.id).started_at
    assert stored == moment
    assert stored.tzinfo is UTC
    with pytest.raises(UnstorableValueError, match="no timezone"), database.writing() as connection:
        change_row(connection, jobs, job.id, started_at=datetime(2026, 1, 1))
