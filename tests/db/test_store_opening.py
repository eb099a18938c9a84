"""Opening a store: where it lives, how it is set up, and what is refused."""

from __future__ import annotations

import stat

import pytest
from sqlalchemy import text

from db.database import Database, default_database_url
from db.jobs import JobsRepository
from db.sessions import SessionsRepository
from db.types import ConflictError, StoreError
from tests.db.conftest import new_session


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


def test_what_was_stored_is_there_after_reopening(store_url):
    with Database(store_url) as database:
        job = JobsRepository(database).add("calibrate", "title", {"a": [1, None]})
    with Database(store_url) as database:
        assert JobsRepository(database).get(job.id) == job


def test_an_error_inside_a_session_undoes_all_of_it(database):
    session_id = SessionsRepository(database).create(new_session()).id

    def change_and_fail():
        with database.writing() as session:
            session.execute(text("UPDATE audit_sessions SET name = 'changed'"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_fail()
    assert SessionsRepository(database).get(session_id).name == "Night shift"


def test_a_reading_session_cannot_write_and_the_next_session_can(database):
    with pytest.raises(StoreError, match=r"readonly|read-only"), database.reading() as session:
        session.execute(text("DELETE FROM jobs"))
    assert JobsRepository(database).add("calibrate", "title").status == "queued"


def test_broken_constraints_are_conflicts(database):
    nowhere = "INSERT INTO branches (session_id, path, name, created_at) VALUES (404, '0', '', '2026-01-01 00:00:00')"
    with pytest.raises(ConflictError, match="refused"), database.writing() as session:
        session.execute(text(nowhere))


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
