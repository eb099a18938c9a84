"""What belongs to a project is neither seen nor changed from another one, in whatever table."""

from __future__ import annotations

import shutil
from contextlib import ExitStack

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, delete, exists, func, insert, select, text, update

from coft_core.types import Example, Span, UserTerm
from db.assignments import AssignmentsRepository, ReadingsRepository
from db.audits import branches, imported_sessions, sessions
from db.batches import BatchesRepository
from db.calibrations import BinRecord, CalibrationsRepository
from db.chains import steps
from db.comparisons import ComparisonsRepository
from db.controls import ControlsRepository, ControlsRow
from db.database import Database
from db.decisions import DecisionRunsRepository
from db.evaluations import EvaluationCalibrationRecord, EvaluationItemRecord, EvaluationsRepository
from db.jobs import JobsRepository, LedgersRepository
from db.library import LibraryRepository, SessionFilter
from db.projects import ProjectsRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.schema import every_table
from db.scope import PROJECT, SHARED, in_every_project, in_project, owner_of, referred
from db.sessions import SessionsRepository
from db.swaps import SwapsRepository
from db.tables import METADATA
from db.types import ConflictError, NotFoundError, StoreError, utc_now
from db.user_lists import UserListsRepository
from db.verdicts import AnnotationFields, AnnotationsRepository
from tests.db.conftest import KINDS, new_calibration, new_session, new_step

FIRST, OTHER = 1, 2
GUARDED = ("annotations", "verdict_tombstones")
"""What PostgreSQL refuses to change for anybody, whatever rows are meant."""


def fill(database: Database) -> int:
    """A row in every table that belongs to projects, and the number of a session."""
    repository, log = SessionsRepository(database), AnnotationsRepository(database)
    prompts = PromptSetsRepository(database).add("set", "a.csv", "d", [PromptRow(2, Example("p"))])
    job = JobsRepository(database).add("calibration", "t")
    LedgersRepository(database).save(job.id, prompts.id, b"ledger")
    found = BinRecord(
        position=0, first_step=0, last_step=7, log_tau=-3.5, state="calibrated", contexts=40, rank=4, low=0.8, high=0.9
    )
    CalibrationsRepository(database).add(new_calibration(embedded=False), [found], b"v")
    session = repository.create(new_session(), [Span(0, 3, "race", "lexicon", "x", True)])
    repository.append_step(session.active_branch_id, new_step(0))
    log.add(AnnotationFields(session_id=session.id, reviewer="A", verdict="fair"))
    LibraryRepository(database).add_tag([session.id], "tag")
    AssignmentsRepository(database).assign([session.id], ["A"], "B")
    ReadingsRepository(database).note(session.id, "A", 1)
    batch = BatchesRepository(database).add("batch", prompts.id, {}, [2])
    ComparisonsRepository(database).add("comparison", prompts.id, [batch.id])
    UserListsRepository(database).add("list", "d", [UserTerm("term", "race", False)])
    SwapsRepository(database).add({}, b"data")
    DecisionRunsRepository(database).add("decisions", "a.csv", "d", {}, 1, b"rows")
    ControlsRepository(database).keep(session.active_branch_id, ControlsRow("key", 1.0, [], b"data"))
    evaluations = EvaluationsRepository(database)
    evaluation = evaluations.add("evaluation", {}, {})
    item = EvaluationItemRecord(suite="s", method="m", seed=1, place=0, item="i", key="key")
    evaluations.keep(evaluation.id, [item], {"key": b"outcome"})
    fitted = EvaluationCalibrationRecord(suite="s", method="m", seed=1, key="fit", summary={})
    evaluations.keep_calibration(evaluation.id, fitted, b"values")
    gone = repository.create(new_session())
    log.add(AnnotationFields(session_id=gone.id, reviewer="A", verdict="fair"))
    repository.delete(gone.id)
    with database.writing() as connection:
        told = {"source_file": "a.zip", "bundle_digest": "d", "signers": (), "program": "1", "bundle": b"b"}
        told |= {"session_id": session.id, "source_session_id": 1, "imported_at": utc_now()}
        connection.execute(insert(imported_sessions).values(**told))
    return session.id


@pytest.fixture(scope="module")
def full_stores(request, tmp_path_factory):
    """Makes a store with a row in every table, once of each kind: where it is, and the number of its session."""
    made = {}

    def make(kind):
        if kind not in made:
            if kind == "sqlite":
                where = tmp_path_factory.mktemp("full") / "audit.db"
                shutil.copyfile(request.getfixturevalue("empty_file"), where)
                url = f"sqlite:///{where}"
            else:
                server = request.getfixturevalue("postgresql")
                where = server.create(request.getfixturevalue("empty_template"))
                url = server.url(where)
            with Database(url) as database, in_project(FIRST):
                ProjectsRepository(database).add("Other")
                made[kind] = where, fill(database)
        return made[kind]

    return make


@pytest.fixture(params=KINDS)
def full(request, full_stores, tmp_path):
    """A copy of such a store, open, and the number of its session."""
    where, session = full_stores(request.param)
    with ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{shutil.copyfile(where, tmp_path / 'audit.db')}"
        else:
            url = stack.enter_context(request.getfixturevalue("postgresql").fresh(where))
        yield stack.enter_context(Database(url)), session


def test_every_table_says_to_whom_its_rows_belong():
    assert set(METADATA.tables) > SHARED
    for name in {*every_table()} - SHARED:
        owner = owner_of(METADATA.tables[name])
        if owner.name != PROJECT:
            assert owner_of(referred(owner).table) is not None, name


def test_a_table_that_says_nothing_cannot_be_read_in_a_project(database):
    strange = Table("strange", MetaData(), Column("id", Integer))
    with in_project(FIRST), pytest.raises(StoreError, match="rows of strange"), database.reading() as connection:
        connection.execute(select(strange))


def test_no_row_of_any_table_is_seen_changed_or_deleted_from_another_project(full):
    database, _ = full
    owned = [table for name, table in METADATA.tables.items() if name not in SHARED]
    for table in owned:
        count = select(func.count()).select_from(table)
        aliased = select(func.count()).select_from(table.alias())
        within = select(func.count()).select_from(select(table).subquery())
        some = next((column for column in table.c if not column.foreign_keys), None)
        with in_project(FIRST), database.reading() as connection:
            assert [connection.scalar(query) for query in (count, aliased, within)] >= [1, 1, 1], table.name
        with in_project(OTHER):
            with database.reading() as connection:
                seen = [connection.scalar(query) for query in (count, aliased, within)]
                assert seen == [0, 0, 0], table.name
                assert not connection.scalar(select(exists().select_from(table))), table.name
            if table.name in GUARDED:
                continue
            with database.writing() as connection:
                if some is not None:
                    assert connection.execute(update(table).values({some.name: some})).rowcount == 0, table.name
                assert connection.execute(delete(table)).rowcount == 0, table.name
        with in_every_project(), database.reading() as connection:
            assert connection.scalar(count) >= 1, table.name


def test_what_is_made_in_a_project_belongs_to_it_and_cannot_name_what_is_not_seen(full):
    database, filled = full
    for table in METADATA.tables.values():
        for column in table.c:
            owned = [key.column for key in column.foreign_keys if key.column.table.name not in SHARED]
            if not owned:
                continue
            with in_project(OTHER), pytest.raises(NotFoundError), database.writing() as connection:
                connection.execute(insert(table), [{column.name: filled}])
            with in_project(OTHER), pytest.raises(NotFoundError), database.writing() as connection:
                connection.execute(update(table).values({column.name: filled}))
    with in_project(OTHER):
        fill(database)
    with in_project(OTHER), database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(steps)) == 1
        assert len(SessionsRepository(database).list()) == 1
    with in_every_project():
        assert len(SessionsRepository(database).list()) == 2


def test_names_limits_joined_rows_and_counts_do_not_tell_of_other_projects(full):
    database, filled = full
    lists, evaluations = UserListsRepository(database), EvaluationsRepository(database)
    library, repository = LibraryRepository(database), SessionsRepository(database)
    with in_project(OTHER):
        assert library.count(SessionFilter()) == library.folded_count(SessionFilter()) == 0
        assert library.choices().tags == ()
        for refused in (lambda: repository.get(filled), lambda: library.add_tag([filled], "mine")):
            with pytest.raises(NotFoundError):
                refused()
        assert lists.find("list") is None
        other = lists.add("list", "d", [])
        with pytest.raises(ConflictError):
            lists.add("list", "d", [])
        evaluation = evaluations.add("same", {}, {})
        item = EvaluationItemRecord(suite="s", method="m", seed=1, place=0, item="i", key="key")
        assert evaluations.link(evaluation.id, [item]) == []
        evaluations.delete(evaluation.id)
        assert JobsRepository(database).unfinished_of(None) == 1
    with in_project(FIRST):
        assert lists.find("list").id != other.id
        (kept,) = evaluations.list()
        assert evaluations.outcomes(kept.id, "s")[1] == {"key": b"outcome"}
        assert [entry.step_count for entry in library.search(SessionFilter())] == [1]
        empty = repository.create(new_session()).active_branch_id
    joined = select(branches.c.id, steps.c.token).outerjoin(steps, steps.c.branch_id == branches.c.id)
    for project, found in ((FIRST, [(empty, None)]), (OTHER, [])):
        with in_project(project), database.reading() as connection:
            assert connection.execute(joined.where(branches.c.id == empty)).all() == found
    # Steps of several projects are written together, and each only by its own.
    with in_project(OTHER), pytest.raises(NotFoundError):
        repository.append_step(empty, new_step(0))
    with in_project(FIRST):
        repository.append_step(empty, new_step(0))
        assert len(repository.chain(empty)) == 1


def test_a_store_by_projects_refuses_where_nobody_has_said_which(store_url):
    with Database(store_url, by_project=True) as database:
        assert [project.name for project in ProjectsRepository(database).list()] == ["Default"]
        with pytest.raises(StoreError, match="Nobody"):
            SessionsRepository(database).list()
        with in_project(FIRST):
            assert SessionsRepository(database).list() == []
            with pytest.raises(StoreError, match="about one project"), database.together(), in_every_project():
                SessionsRepository(database).list()
        with in_project(0), pytest.raises(StoreError, match="no project"):
            SessionsRepository(database).create(new_session())


def test_what_comes_with_the_program_is_seen_in_every_project_and_changed_in_none(database):
    runs = CalibrationsRepository(database)
    ProjectsRepository(database).add("Other")
    embedded = runs.add(new_calibration(embedded=True), (), b"v")
    with in_project(OTHER):
        assert runs.list() == [embedded]
        with pytest.raises(NotFoundError):
            runs.delete(embedded.id)
        own = runs.add(new_calibration(embedded=True), (), b"w")
    with in_project(FIRST):
        assert runs.list() == [embedded]
        assert own not in runs.list()


def test_projects_have_names_and_members(database):
    projects = ProjectsRepository(database)
    made = projects.add("Credit scoring")
    assert [project.name for project in projects.list()] == ["Default", "Credit scoring"]
    assert projects.named("credit SCORING") == made
    for name in ("default", "CREDIT scoring"):
        with pytest.raises(ConflictError, match="already"):
            projects.add(name)
    assert projects.rename(made.id, "credit scoring").name == "credit scoring"
    with database.writing() as connection:
        connection.execute(text(
            "INSERT INTO accounts (id, name, role, created_at) VALUES (7, 'Mia', 'viewer', '2026-01-01 00:00:00')"
        ))  # fmt: skip
    assert projects.of_account(7) == []
    assert projects.add_member(made.id, 7)
    assert not projects.add_member(made.id, 7)
    assert [account.name for account in projects.members(made.id)] == ["Mia"]
    assert [project.id for project in projects.of_account(7)] == [made.id]
    assert projects.remove_member(made.id, 7)
    assert projects.of_account(7) == []
    assert sessions.c.project_id.server_default is not None
