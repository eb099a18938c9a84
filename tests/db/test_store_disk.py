"""What accounts have in the store is kept as a sum, and agrees with what stands in the tables."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import JSON, LargeBinary, String, text

from app.accounts.disk import PARTS
from coft_core.types import Example
from db.audits import sessions
from db.database import Database
from db.disk import COUNTED, NUMBER_BYTES, ROW_BYTES, DiskRepository, recount
from db.jobs import JobsRepository
from db.library import LibraryRepository
from db.projects import ProjectsRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.scope import OWNERS, PROJECT, counted_to, in_every_project, in_project
from db.sessions import SessionsRepository
from db.tables import METADATA, Rewritten
from db.types import AnyText, CompressedBytes
from db.verdicts import AnnotationFields, AnnotationsRepository
from tests.db.conftest import extend, new_calibration, new_session, new_step, statements
from tests.db.test_store_projects import fill

ANNA, BEN = 7, 8
LONG = (AnyText, String, JSON, Rewritten, LargeBinary, CompressedBytes)


@pytest.fixture
def disk(database):
    ProjectsRepository(database).add("Other")
    return DiskRepository(database)


def walked(database: Database, account: int) -> int:
    """The same by reading every value of every row."""
    total = 0
    with in_every_project(), database.reading() as connection:
        contents = dict(connection.execute(text("SELECT key, length(content) FROM evaluation_contents")).tuples().all())
        rows = {
            name: connection.execute(text(f"SELECT * FROM {name}")).mappings().all()
            for name, owner in OWNERS.items()
            if owner is not None and name != "verdict_tombstones"
        }
    for name, listed in rows.items():
        for row in listed:
            if _maker(rows, name, row) == account:
                total += ROW_BYTES + sum(_bytes(METADATA.tables[name].c[key], row[key]) for key in row)
                total += contents.get(row.get("key"), 0) if name.startswith("evaluation_") else 0
    return total


def _maker(rows: Any, name: str, row: Any) -> int | None:
    """The account of a row of a table, or of what it hangs on."""
    while (owner := OWNERS[name]) != PROJECT:
        above = next(iter(METADATA.tables[name].c[owner].foreign_keys)).column.table.name
        row = next(one for one in rows[above] if one["id"] == row[owner])
        name = above
    return row["account_id"]


def _bytes(column: Any, value: Any) -> int:
    if not isinstance(column.type, LONG):
        return NUMBER_BYTES
    if value is None or isinstance(value, (bytes, memoryview)):
        return len(value or b"")
    return len((value if isinstance(value, str) else json.dumps(value)).encode())


def test_each_account_has_what_stands_in_the_tables_of_what_it_made(database, disk):
    repository = SessionsRepository(database)
    with in_project(1), counted_to(ANNA):
        fill(database)
        session = repository.create(new_session())
        extend(repository, session.active_branch_id, [new_step(index) for index in range(5)])
        repository.add_branch(session.id, session.active_branch_id, 2, "0/2:418", "fork")
    with in_project(2), counted_to(BEN):
        fill(database)
    with in_project(1):
        PromptSetsRepository(database).add("nobody's", "a.csv", "d", [PromptRow(2, Example("p" * 1000))])
    for account in (ANNA, BEN):
        # Tags, assignments and a bundle that the test itself wrote are small, and not counted one by one.
        assert disk.of_account(account) == pytest.approx(walked(database, account), rel=0.1), account
    found = disk.by_account()
    assert set(found) == {ANNA, BEN, None}
    assert found[None].keys() == {"prompt_sets"}
    assert found[BEN].keys() == set(COUNTED)


def test_what_steps_forks_and_entries_add_is_what_a_count_of_the_session_finds(database, disk):
    repository = SessionsRepository(database)
    with in_project(1), counted_to(ANNA):
        session = repository.create(new_session(prompt="Élan \N{SNOWMAN}"))
        root = session.active_branch_id
        extend(
            repository, root, [new_step(index, families=() if index else new_step(0).families) for index in range(4)]
        )
        fork = repository.add_branch(session.id, root, 2, "0/2:418", "ein Zweig – é")
        extend(repository, fork.id, [new_step(2)])
        AnnotationsRepository(database).add(AnnotationFields(session_id=session.id, reviewer="Ä", note="n" * 500))
        grown = disk.of_account(ANNA)
        with database.writing() as connection:
            recount(connection, sessions, session.id)
        assert disk.of_account(ANNA) == grown
        LibraryRepository(database).prune(session.id, fork.id)
        assert disk.of_account(ANNA) < grown


def test_what_is_deleted_is_counted_no_more_and_steps_of_others_count_to_whom_the_session_is(database, disk):
    repository, jobs = SessionsRepository(database), JobsRepository(database)
    with in_project(1), counted_to(ANNA):
        session = repository.create(new_session())
        before = disk.of_account(ANNA)
        job = jobs.add("paths", "t")
        jobs.finish(job.id, "done", progress=1.0, message="", result={"long": "x" * 10_000})
        assert disk.by_account()[ANNA]["jobs"] > 10_000
        jobs.delete(job.id)
    with in_project(1), counted_to(BEN):
        repository.append_step(session.active_branch_id, new_step(0))
        assert disk.of_account(BEN) == 0
        assert disk.of_account(ANNA) > before
        repository.delete(session.id)
    assert disk.by_account() == {}


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_what_accounts_have_is_read_without_any_row_of_theirs(database, disk):
    """Indexes alone say it: otherwise the sum would take as long as the store is large."""
    with statements(database) as asked:
        disk.of_account(ANNA)
    (query,) = [one for one in asked if "UNION" in one]
    with database.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", (*("x", ANNA) * len(COUNTED),)).all()
    searched = [row[3] for row in plan if row[3].startswith("SEARCH")]
    assert len(searched) == len(COUNTED)
    assert all("COVERING INDEX" in one for one in searched)


def test_a_calibration_is_counted_where_no_other_feature_was_read(sqlite_url):
    """As a server does that starts: features that it has not read yet have tables that others name."""
    program = (
        "import db.audits\n"
        "from db.calibrations import CalibrationFields, CalibrationsRepository\n"
        "from db.database import Database\n"
        f"fields = CalibrationFields(**{dataclasses.asdict(new_calibration())!r})\n"
        f"with Database({sqlite_url!r}) as database:\n"
        "    CalibrationsRepository(database).add(fields, (), b'v')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_table_of_projects_says_whose_its_rows_are_and_what_they_are_called():
    assert all({"account_id", "stored_bytes"} <= set(METADATA.tables[name].c.keys()) for name in COUNTED)
    assert set(PARTS) == set(COUNTED)
