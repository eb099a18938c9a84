"""Opening a store: what is made and refused, and column types that keep every value or refuse it."""

from __future__ import annotations

import math
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint, inspect, text

from coft_core.types import Candidate
from db.database import Database, default_database_url
from db.jobs import JobsRepository, jobs
from db.prompt_sets import PromptSetsRepository
from db.sessions import SessionsRepository
from db.tables import METADATA, change_row
from db.types import StoreError, UnstorableValueError, escape_text, unescape_text
from tests.db.conftest import new_session, new_step


def test_sqlite_is_set_up_for_durability_and_integrity(sqlite_url, stores_as_shipped):
    with Database(sqlite_url) as database, database.engine.connect() as connection:
        found = {
            name: connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    full = 2
    assert found == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": full, "busy_timeout": 30_000}


def test_a_new_database_file_is_readable_by_its_owner_alone(tmp_path):
    path = tmp_path / "new folder" / "audit.db"
    with Database(f"sqlite:///{path}"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_default_store_lies_in_a_private_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setattr("db.database.user_data_dir", lambda name, appauthor: str(tmp_path / "it's" / name))
    url = default_database_url()
    folder = tmp_path / "it's" / "coft-audit"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with Database(url):
        assert (folder / "coft-audit.sqlite3").exists()
    assert default_database_url() == url
    # One that cannot be made is named.
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("db.database.user_data_dir", lambda name, appauthor: str(tmp_path / "file" / name))
    with pytest.raises(StoreError, match="file/coft-audit"):
        default_database_url()


def test_a_url_that_cannot_be_used_is_refused_and_a_password_hidden():
    for url, complaint in (
        ("", "cannot be read"), ("audit.db", "cannot be read"), ("sqlite://", "keeps nothing"),
        ("sqlite:///:memory:", "keeps nothing"), ("mysql://user@host/name", "mysql"),
    ):  # fmt: skip
        with pytest.raises(StoreError, match=complaint):
            Database(url)
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        database = Database(f"{scheme}://reviewer:secret@host:5433/audits")
        assert database.url == "postgresql+psycopg://reviewer:***@host:5433/audits"


def test_a_missing_driver_is_named_with_the_way_to_install_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(StoreError, match="pip install"):
        Database("postgresql://host/audits").open()


def test_a_file_that_is_not_a_database_is_refused_and_left_alone_and_a_folder_too(tmp_path):
    path = tmp_path / "report.csv"
    path.write_text("session_id,step\n" * 100)
    for wrong in (path, tmp_path):
        with pytest.raises(StoreError, match="cannot be opened"):
            Database(f"sqlite:///{wrong}").open()
    assert path.read_text() == "session_id,step\n" * 100


def test_a_closed_store_says_so(store_url):
    database = Database(store_url)
    with pytest.raises(StoreError, match="not open"):
        JobsRepository(database).list()
    database.open()
    assert database.open() is database
    database.close()
    database.close()
    with pytest.raises(StoreError, match="not open"):
        JobsRepository(database).list()


def test_a_reading_session_cannot_write_and_the_next_session_can(database):
    with pytest.raises(StoreError, match=r"readonly|read-only"), database.reading() as session:
        session.execute(text("DELETE FROM jobs"))
    assert JobsRepository(database).add("calibrate", "title").status == "queued"


def test_where_all_of_a_file_is_read_an_intact_one_is_opened_and_a_damaged_one_refused(sqlite_url, tmp_path):
    with Database(sqlite_url) as database:
        for number in range(60):
            SessionsRepository(database).create(new_session(name=f"{number}" * 100))
    with Database(sqlite_url, checked=True) as database:
        assert SessionsRepository(database).count() == 60
    path = tmp_path / "audit.db"
    assert list(tmp_path.iterdir()) == [path]
    # As a failing disk does: bytes of the second half become others.
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data), 97):
        data[place] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"audit\.db is damaged .*backup"), Database(sqlite_url, checked=True):
        pass


TRIGGERS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
}
GUARDS = {
    "sqlite": {
        f"{name}_{what}" for name in ("annotations", "verdict_tombstones", "audit_trail") for what in ("keep", "stay")
    },
    "postgresql": {"annotations_keep", "annotations_whole", "verdict_tombstones_keep", "audit_trail_keep"},
}


def test_a_store_has_every_table_column_and_guard(database):
    inspector = inspect(database.engine)
    for name, table in METADATA.tables.items():
        assert {column["name"] for column in inspector.get_columns(name)} == set(table.columns.keys()), name
    with database.engine.connect() as connection:
        found = set(connection.scalars(text(TRIGGERS[database.engine.dialect.name])))
    assert found == GUARDS[database.engine.dialect.name] | {"audit_sessions_leave"}


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("version", ["0016", "9999"])
def test_a_store_of_another_version_is_refused_and_left_alone(store_url, version):
    with Database(store_url) as database, database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
        connection.execute(text("DROP TABLE swaps"))
    for checked in (False, True):
        with pytest.raises(StoreError, match=f"another version.*{version}.*nothing was changed"):
            Database(store_url, checked=checked).open()


def test_of_servers_that_open_a_new_store_at_once_one_makes_it_and_all_can_use_it(sqlite_url, postgresql):
    with postgresql.fresh() as other:
        for url in (sqlite_url, other):
            with ThreadPoolExecutor(4) as threads:
                opened = list(threads.map(lambda _, url=url: Database(url).open(), range(4)))
            for number, database in enumerate(opened):
                PromptSetsRepository(database).add(str(number), "a.csv", "d", [])
            assert len(PromptSetsRepository(opened[0]).list()) == 4
            for database in opened:
                database.close()


def test_a_store_whose_making_was_killed_is_made_by_the_next_one(tmp_path):
    url = f"sqlite:///{tmp_path / 'audit.db'}"
    dies = (
        "import os, db.schema as schema\n"
        "from db.database import Database\n"
        "schema._guards = lambda dialect: os._exit(9)\n"
        f"Database({url!r}).open()\n"
    )
    assert subprocess.run([sys.executable, "-c", dies], check=False).returncode == 9
    with Database(url) as database:
        assert PromptSetsRepository(database).list() == []


def test_ids_that_links_use_are_never_given_twice(sqlite_url):
    with Database(sqlite_url) as database, database.engine.connect() as connection:
        definitions = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'table'")).all()
    linked = {
        "prompt_sets", "calibration_runs", "audit_sessions", "branches", "annotations", "jobs", "user_lists",
        "batches", "comparisons", "evaluations", "verdict_tombstones", "swaps", "decision_runs",
        "accounts", "account_tokens", "account_sign_ins", "account_attempts", "audit_trail", "projects",
    }  # fmt: skip
    assert {name for name, sql in definitions if "AUTOINCREMENT" in (sql or "")} == linked


def test_every_foreign_key_is_indexed():
    """Deleting a parent would otherwise read the whole child table."""
    for table in METADATA.sorted_tables:
        leading = {next(iter(index.columns)).name for index in table.indexes}
        leading |= {
            next(iter(item.columns)).name
            for item in table.constraints
            if isinstance(item, UniqueConstraint | PrimaryKeyConstraint)
        }
        for key in table.foreign_keys:
            assert key.parent.name in leading, f"{table.name}.{key.parent.name} has no index"


HOSTILE = "\x00\x10\\0 \x100000 \x10d800 é \U0001d54f\ufeff\r\n\t"
HOSTILE_IN_JSON = "\x00\x10\\u0000\\ud800 \U0001d54f"
anything = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\x00\x100123456789abcdef")))


@given(anything)
def test_escaping_is_reversible_and_leaves_text_that_every_database_takes(value):
    stored = escape_text(value)
    assert unescape_text(stored) == value
    assert "\x00" not in stored
    assert (stored == value) is not any(odd in value for odd in "\x00\x10")
    stored.encode("utf-8")


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
