"""Migrations lead to exactly the models' schema, on both kinds of database, and back."""

from __future__ import annotations

import io
import math
import shutil
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint, create_engine, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from coft_core.stored_logits import StoredLogits
from coft_core.types import Example, Span
from db.calibrations import CalibrationsRepository
from db.comparisons import ComparisonsRepository
from db.database import MIGRATIONS, Database, build_engine, downgrade, draft, make_config, parse_url, upgrade
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.sessions import SessionsRepository
from db.tables import METADATA
from db.types import StoreError
from db.verdicts import AnnotationFields, AnnotationsRepository, first_break
from tests.db.conftest import new_calibration, new_session, new_step

WITHOUT_RANGE = {"set_size_low": None, "set_size_high": None, "noise": None}
"""What a step of a store says that was written before set sizes were ranges."""

GUARD_OFF_AND_ON = {
    "sqlite": (
        "DROP TRIGGER annotations_keep",
        "CREATE TRIGGER annotations_keep BEFORE UPDATE ON annotations BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    ),
    "postgresql": (
        "ALTER TABLE annotations DISABLE TRIGGER annotations_keep",
        "ALTER TABLE annotations ENABLE TRIGGER annotations_keep",
    ),
}
"""What lets a test change the log as its owner could, and what guards it again."""


@pytest.fixture
def engine(store_url):
    built = build_engine(parse_url(store_url))
    yield built
    built.dispose()


@pytest.fixture
def sqlite_engine(sqlite_url):
    built = build_engine(parse_url(sqlite_url))
    yield built
    built.dispose()


def tables(engine):
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


def constraints(engine):
    """Everything that Alembic's own comparison leaves out: checks, and what a key does on deletion."""
    inspector = inspect(engine)
    return {
        table: {
            "checks": sorted((item["name"], item["sqltext"]) for item in inspector.get_check_constraints(table)),
            "keys": sorted((item["name"], str(item)) for item in inspector.get_foreign_keys(table)),
            "primary": inspector.get_pk_constraint(table),
        }
        for table in METADATA.tables
    }


def test_the_migrated_schema_is_the_models_schema(database):
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_migrated_constraints_are_the_models_constraints(engine, request, tmp_path):
    """Alembic made the one schema and SQLAlchemy makes the other, without a migration."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'direct.db'}"
        if engine.dialect.name == "postgresql":
            url = stack.enter_context(request.getfixturevalue("postgresql").fresh())
        direct = create_engine(parse_url(url))
        stack.callback(direct.dispose)
        METADATA.create_all(direct)
        assert constraints(engine) == constraints(direct)


def test_ids_that_links_use_are_never_given_twice(sqlite_engine):
    upgrade(sqlite_engine)
    with sqlite_engine.connect() as connection:
        definitions = dict(
            connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'table'")).tuples().all()
        )
    linked = {
        "prompt_sets", "calibration_runs", "audit_sessions", "branches", "annotations", "jobs", "user_lists",
        "batches", "comparisons", "evaluations", "verdict_tombstones", "swaps",
        "accounts", "account_tokens", "account_sign_ins", "account_attempts", "audit_trail", "projects",
    }  # fmt: skip
    assert {name for name, sql in definitions.items() if sql and "AUTOINCREMENT" in sql} == linked


def test_upgrading_twice_changes_nothing(engine):
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO prompt_sets (id, row_count, name, filename, digest, created_at) "
                "VALUES (1, 3, 'kept', 'a.csv', 'digest', '2026-01-01 00:00:00')"
            )
        )
    upgrade(engine)
    assert tables(engine) == set(METADATA.tables)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT name FROM prompt_sets")) == "kept"


def test_downgrading_removes_every_table_and_upgrading_brings_them_back(engine):
    downgrade(engine)
    assert tables(engine) == set()
    upgrade(engine)
    assert tables(engine) == set(METADATA.tables)


def test_a_store_whose_log_lost_its_guard_can_still_be_downgraded(engine):
    with engine.begin() as connection:
        connection.execute(text("DROP TRIGGER annotations_keep" + (" ON annotations" * (engine.name == "postgresql"))))
    downgrade(engine, "0013")
    upgrade(engine)
    assert tables(engine) == set(METADATA.tables)


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_filled_store_comes_up_from_every_version_with_its_audits_and_a_whole_log(store_url, engine):
    """The newest first: what a version cannot hold is lost to the versions before it, and to no later one.

    Of SQLite a store of each version is kept, see ``tests/contracts``.
    """
    with Database(store_url) as database:
        sessions, log = SessionsRepository(database), AnnotationsRepository(database)
        session = sessions.create(new_session(), [Span(0, 3, "race", "lexicon", "x", True)])
        for index in range(3):
            sessions.append_step(session.active_branch_id, new_step(index, token=f"t{index}"))
        written = [
            log.add(AnnotationFields(session_id=session.id, reviewer="A", verdict="fair", note=note)) for note in "ab"
        ]
    versions = [script.revision for script in ScriptDirectory.from_config(make_config()).walk_revisions()]
    assert len(versions) > 16
    for version in versions[1:]:
        downgrade(engine, version)
        with Database(store_url) as database:
            sessions, log = SessionsRepository(database), AnnotationsRepository(database)
            tokens = [step.token for step in sessions.chain(session.active_branch_id)]
            assert tokens == ["t0", "t1", "t2"], version
            entries = log.history(session.id)
            assert [entry.note for entry in entries] == ["a", "b"], version
            assert first_break([(entry.content, entry.previous, entry.digest) for entry in entries]) is None, version
            assert version < "0005" or entries == written, version


def test_spans_of_an_older_store_read_back_without_a_score_and_not_suggested(store_url, engine):
    with Database(store_url) as database:
        session = SessionsRepository(database).create(new_session(), [Span(0, 3, "race", "lexicon", "x", True)])
    downgrade(engine, "0001")
    with Database(store_url) as database:
        assert SessionsRepository(database).get(session.id).spans == (
            Span(0, 3, "race", "lexicon", "x", True, score=None, suggested=False),
        )


def test_calibrations_and_steps_of_an_older_store_have_one_masked_branch(store_url, engine):
    with Database(store_url) as database:
        run = CalibrationsRepository(database).add(new_calibration(), (), b"v")
        sessions = SessionsRepository(database)
        branch = sessions.create(new_session()).active_branch_id
        sessions.append_step(branch, new_step(0))
        prompts = PromptSetsRepository(database).add("a", "a", "d", [PromptRow(2, Example("p"), 2.0)])
    downgrade(engine, "0002")
    with Database(store_url) as database:
        assert CalibrationsRepository(database).get(run.id) == replace(run, mask_layout="joint")
        (step,) = SessionsRepository(database).chain(branch)
        assert step.families == ()
        assert [candidate.refused_by for candidate in step.candidates] == [(), ()]
        assert PromptSetsRepository(database).rows(prompts.id) == [PromptRow(2, Example("p"))]


def test_steps_of_an_older_store_have_neither_logits_nor_a_divergence_from_vanilla_nor_costs(store_url, engine):
    with Database(store_url) as database:
        sessions = SessionsRepository(database)
        branch = sessions.create(new_session()).active_branch_id
        logits = StoredLogits(("factual",), 1, 1.0, "float32", b"kept")
        sessions.append_step(branch, new_step(0, logits=logits), seconds=0.5, peak_bytes=9)
    downgrade(engine, "0003")
    with Database(store_url) as database:
        sessions = SessionsRepository(database)
        assert sessions.chain(branch) == (new_step(0, **WITHOUT_RANGE, kl_fused_factual=None, tv_fused_factual=None),)
        assert sessions.logits(branch) == {}
        (measured,) = ComparisonsRepository(database).branch_steps(branch)
        assert (measured.seconds, measured.peak_bytes) == (None, None)


@pytest.mark.parametrize(
    ("policy", "log_p_factual", "log_tau", "margin", "tv_bound", "certified_in"),
    [
        ("coft", -1.0, -3.0, 0.25, 0.5, "both"),
        ("coft-single-branch", -1.0, -3.0, 2.0, None, "factual"),
        ("dtcd", -4.0, -3.0, -1.0, None, "factual"),
        ("dtcd", -4.0, -math.inf, math.inf, None, "factual"),
        ("coft-single-branch", -math.inf, -math.inf, 0.0, None, "factual"),
    ],
)
def test_steps_of_an_older_store_are_told_by_which_readings_their_policy_certified_them(
    store_url, engine, policy, log_p_factual, log_tau, margin, tv_bound, certified_in
):
    """Their margins were of the joint support, which decided nothing where the factual reading alone certified."""
    numbers = {"log_p_factual": log_p_factual, "log_tau": log_tau}
    with Database(store_url) as database:
        sessions = SessionsRepository(database)
        branch = sessions.create(replace(new_session(), policy=policy)).active_branch_id
        sessions.append_step(branch, new_step(0, margin=0.25, tv_bound=0.5, **numbers))
    downgrade(engine, "0007")
    told = {**numbers, **WITHOUT_RANGE, "margin": margin, "tv_bound": tv_bound, "certified_in": certified_in}
    with Database(store_url) as database:
        assert SessionsRepository(database).chain(branch) == (new_step(0, **told),)


def test_halves_of_characters_of_an_older_store_are_mended_and_its_logs_chained_anew(store_url, engine):
    """Earlier versions stored them escaped, in plain text and in JSON alike; the pages could then not be sent."""
    with Database(store_url) as database:
        sessions, log = SessionsRepository(database), AnnotationsRepository(database)
        broken, whole = (sessions.create(new_session(policy_settings={"keep": ["\U0001f642"]})).id for _ in range(2))
        for session_id in (broken, whole):
            for number in range(3):
                log.add(AnnotationFields(session_id=session_id, reviewer="A", verdict="fair", note=f"note {number}"))
        before = log.history(whole)
    downgrade(engine, "0008")
    with engine.begin() as connection:
        off, on = GUARD_OFF_AND_ON[engine.dialect.name]
        connection.execute(text(off))
        half = {"half": "Night \x10d83d shift", "json": '{"keep": ["\\ud83d", "\\ud83d\\ude42"]}', "id": broken}
        connection.execute(text("UPDATE audit_sessions SET name = :half, policy_settings = :json WHERE id = :id"), half)
        connection.execute(text("UPDATE annotations SET note = :half WHERE session_id = :id AND entry = 2"), half)
        connection.execute(text(on))
    with Database(store_url) as database:
        sessions, log = SessionsRepository(database), AnnotationsRepository(database)
        record = sessions.get(broken)
        assert (record.name, record.policy_settings) == ("Night \ufffd shift", {"keep": ["\ufffd", "\U0001f642"]})
        entries = log.history(broken)
        assert [entry.note for entry in entries] == ["note 0", "Night \ufffd shift", "note 2"]
        assert first_break([(entry.content, entry.previous, entry.digest) for entry in entries]) is None
        assert log.history(whole) == before
        with pytest.raises(StoreError, match="append-only"), database.writing() as session:
            session.execute(text("UPDATE annotations SET note = 'other'"))


def test_sessions_of_an_older_store_do_not_say_what_their_model_read(store_url, engine):
    read = {"chat": True, "at": "2026-03-02T09:00:00", "texts": [{"text": "he", "ids": [1], "offsets": [[0, 2]]}]}
    with Database(store_url) as database:
        made = SessionsRepository(database).create(new_session(rendering=read))
        assert SessionsRepository(database).get(made.id).rendering == read
    downgrade(engine, "0009")
    with Database(store_url) as database:
        assert SessionsRepository(database).get(made.id) == replace(made, rendering=None)


@pytest.mark.parametrize(
    ("numbers", "state", "certified"),
    [
        ({"state": "uninformative", "log_tau": -math.inf, "set_size": 9}, "uninformative", False),
        ({"state": "calibrated", "log_tau": -16.5, "set_size": 20, "certified_mass": 0.9}, "uninformative", False),
        ({"state": "calibrated", "log_tau": -5.0, "set_size": 616, "certified_mass": 0.9}, "uninformative", False),
        ({"state": "inherited", "log_tau": -5.0, "set_size": 120, "certified_mass": 0.995}, "uninformative", False),
        ({"state": "calibrated", "log_tau": -5.0, "set_size": 2, "certified_mass": 0.999}, "calibrated", True),
        ({"state": "inherited", "log_tau": -5.0, "set_size": 120, "certified_mass": 0.9}, "inherited", True),
    ],
)  # fmt: skip
def test_steps_of_an_older_store_certify_nothing_where_their_threshold_says_nothing(
    store_url, engine, numbers, state, certified
):
    with Database(store_url) as database:
        sessions = SessionsRepository(database)
        branch = sessions.create(new_session()).active_branch_id
        sessions.append_step(branch, new_step(0, certified=True, **numbers))
    downgrade(engine, "0010")
    told = {**numbers, **WITHOUT_RANGE, "state": state, "certified": certified}
    with Database(store_url) as database:
        assert SessionsRepository(database).chain(branch) == (new_step(0, **told),)


def test_foreign_keys_are_enforced_again_after_migrating(sqlite_engine):
    upgrade(sqlite_engine)
    with sqlite_engine.connect() as connection:
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1


def test_a_row_that_points_at_nothing_stops_the_migration_and_undoes_it(sqlite_engine):
    upgrade(sqlite_engine)
    with sqlite_engine.connect() as connection:
        # The pragma is void inside a transaction, so it goes to the driver before one begins.
        connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")
        connection.execute(text("INSERT INTO prompt_rows (prompt_set_id, line, prompt) VALUES (77, 1, 'orphan')"))
        connection.commit()
    with pytest.raises(StoreError, match="prompt_rows"):
        upgrade(sqlite_engine)


def test_a_store_of_a_newer_version_is_refused_and_left_alone(store_url, engine):
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="newer"):
        Database(store_url).open()
    assert tables(engine) == set(METADATA.tables)


def test_migrations_can_be_written_as_sql_for_postgresql():
    config = make_config()
    config.output_buffer = io.StringIO()
    command.upgrade(config, "head", sql=True)
    sql = config.output_buffer.getvalue()
    for table in METADATA.tables:
        assert f"CREATE TABLE {table} (" in sql
    assert "ALTER TABLE audit_sessions ADD CONSTRAINT fk_audit_sessions_active_branch_id_branches" in sql
    assert "TIMESTAMP WITH TIME ZONE" in sql
    assert "BYTEA" in sql


def test_models_compile_for_postgresql():
    dialect = postgresql.dialect()
    for table in METADATA.sorted_tables:
        sql = str(CreateTable(table).compile(dialect=dialect))
        assert "DOUBLE PRECISION" in sql or "log_tau" not in table.columns
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect)).startswith("CREATE INDEX ix_")


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


def test_a_drafted_migration_finds_nothing_to_change(tmp_path):
    """Drafting works, and the newest migration is not behind the models."""
    location = tmp_path / "migrations 100%"
    shutil.copytree(MIGRATIONS, location, ignore=shutil.ignore_patterns("__pycache__"))
    with redirect_stdout(io.StringIO()):
        newest = ScriptDirectory.from_config(make_config()).get_current_head()
        written = draft("nothing", location)
    assert written.parent == location / "versions"
    source = written.read_text(encoding="utf-8")
    assert f"down_revision = '{newest}'" in source
    assert "op.create" not in source
    assert "op.alter" not in source
    assert "batch_op" not in source
    compile(source, str(written), "exec")
