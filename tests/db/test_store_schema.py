"""A new store gets every table with what guards it; a store of another version is refused and left alone."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint, inspect, text

from db.database import Database
from db.prompt_sets import PromptSetsRepository
from db.tables import METADATA
from db.types import StoreError

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
        "batches", "comparisons", "evaluations", "verdict_tombstones", "swaps",
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
