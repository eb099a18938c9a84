"""Projects that are deleted, and sessions that move between them: whole or not at all."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from coft_core.types import UserTerm
from db.accounts import AccountsRepository, TokensRepository
from db.calibrations import BinRecord, CalibrationsRepository
from db.evaluations import contents
from db.jobs import JobsRepository
from db.moving import MovingRepository
from db.project_contents import ProjectContents
from db.projects import ProjectsRepository, members
from db.schema import roots
from db.scope import DEFAULT, SHARED, in_every_project, in_project
from db.sessions import SessionsRepository
from db.tables import METADATA
from db.types import ConflictError, NotFoundError, utc_now
from db.user_lists import UserListsRepository
from db.verdicts import AnnotationFields, AnnotationsRepository, first_break, tombstones
from tests.db.conftest import extend, new_calibration, new_session, new_step
from tests.db.test_store_projects import fill


@pytest.fixture
def other(database):
    """A second project with a row in every table, none of whose jobs is at work, as the first one has."""
    made = ProjectsRepository(database).add("Other")
    for project in (DEFAULT, made.id):
        with in_project(project):
            fill(database)
            for job in JobsRepository(database).unfinished():
                JobsRepository(database).finish(job.id, "done", progress=1.0, message="")
    return made


def rows(database, project):
    """How many rows of each table a project has."""
    with in_project(project), database.reading() as connection:
        return {
            name: connection.scalar(select(func.count()).select_from(table))
            for name, table in METADATA.tables.items()
            if name not in SHARED
        }


def test_a_project_goes_whole_or_not_at_all_and_the_other_one_keeps_every_row(database, other, monkeypatch):
    contents_of = ProjectContents(database)
    extent = contents_of.extent(other.id)
    assert (extent.sessions, extent.verdicts, extent.running) == (1, 1, 0)
    assert set(extent.rows) == set(roots())
    before, kept = rows(database, DEFAULT), rows(database, other.id)
    # Nothing goes where one statement of its deletion fails.
    with monkeypatch.context() as patch:
        patch.setattr("db.project_contents.sweep_contents", full)
        with pytest.raises(ConflictError):
            contents_of.delete(other.id)
    assert rows(database, other.id) == kept
    assert ProjectsRepository(database).get(other.id) == other
    contents_of.delete(other.id)
    assert rows(database, DEFAULT) == before
    left = rows(database, other.id)
    # The embedded calibration only is everybody's; the test's own is not.
    assert {name for name, number in left.items() if number} == {"verdict_tombstones"}
    with in_every_project(), database.reading() as connection:
        # Outcomes that the first project names as well stay.
        assert connection.scalar(select(func.count()).select_from(contents)) == 2
    with pytest.raises(NotFoundError):
        ProjectsRepository(database).get(other.id)
    # A request that was under way adds nothing to it.
    with in_project(other.id), pytest.raises(NotFoundError, match="deleted"):
        JobsRepository(database).add("paths", "t")
    assert contents_of.extent(other.id).rows == {}


def full(_database):
    raise ConflictError("The disk is full.")


def test_a_job_at_work_keeps_the_whole_project_and_logs_leave_what_a_single_deletion_leaves(database, other):
    with in_project(other.id):
        job = JobsRepository(database).add("paths", "t")
    before = rows(database, other.id)
    with pytest.raises(ConflictError, match="Other"):
        ProjectContents(database).delete(other.id)
    assert rows(database, other.id) == before
    with in_project(other.id):
        JobsRepository(database).finish(job.id, "cancelled", progress=0.5, message="")
    repository = SessionsRepository(database)
    with in_project(DEFAULT):
        (single,) = [entry.id for entry in repository.list()]
        repository.delete(single)
    ProjectContents(database).delete(other.id)
    left = ProjectContents(database).left()
    assert [one.entries for one in left] == [1, 1]
    with in_every_project(), database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(tombstones)) == 4
    assert all(len(one.head) == 64 for one in left)


def test_members_lose_it_tokens_of_it_are_revoked_and_the_first_project_stays(database, other):
    account = AccountsRepository(database).add("Mia", "lead", None)
    projects, tokens = ProjectsRepository(database), TokensRepository(database)
    projects.add_member(other.id, account.id)
    bound = tokens.add(account.id, "bound", "d1", None, other.id)
    free = tokens.add(account.id, "free", "d2", None)
    ProjectContents(database).delete(other.id)
    assert projects.of_account(account.id) == []
    with database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(members)) == 0
    assert tokens.holding("d1", utc_now()) is None
    assert tokens.holding("d2", utc_now()) == free
    assert [one.id for one in tokens.list(account.id)] == [bound.id, free.id]
    with pytest.raises(ConflictError, match="first project"):
        ProjectContents(database).delete(DEFAULT)


HERE, THERE = 1, 2


def test_a_session_goes_with_its_rows_and_finds_its_calibration_and_list_where_it_goes(database):
    ProjectsRepository(database).add("There")
    repository, log = SessionsRepository(database), AnnotationsRepository(database)
    calibrations, lists = CalibrationsRepository(database), UserListsRepository(database)
    part = BinRecord(position=0, first_step=0, last_step=None, log_tau=-3.5, state="calibrated", contexts=40)
    with in_project(HERE):
        run = calibrations.add(new_calibration(embedded=False), [part], b"values")
        words = lists.add("ward", "d", [UserTerm("rounds", "race", False)])
        settings = {"settings": {"calibration_id": run.id, "user_list_id": words.id, "lam": 0.6}}
        numbers = [
            repository.create(new_session(calibration_id=run.id, calibration_label="BBQ", policy_settings=settings)).id
            for _ in range(2)
        ]
        root = repository.get(numbers[0]).active_branch_id
        extend(repository, root, [new_step(index) for index in range(3)])
        log.add(AnnotationFields(session_id=numbers[0], reviewer="A", verdict="fair"))
        log.add(AnnotationFields(session_id=numbers[0], reviewer="B", verdict="unfair"))
        before = repository.get(numbers[0])
    assert MovingRepository(database).move(numbers, THERE) == 2
    assert MovingRepository(database).move(numbers, THERE) == 0
    with in_project(THERE):
        (there,), (listed,) = calibrations.list(), lists.list()
        assert (there.bins, calibrations.values(there.id)) == ((part,), b"values")
        assert [term.term for term in lists.terms(listed.id)] == ["rounds"]
        moved = repository.get(numbers[0])
        assert (moved.calibration_id, moved.policy_settings) == (
            there.id,
            {"settings": {"calibration_id": there.id, "user_list_id": listed.id, "lam": 0.6}},
        )
        assert (moved.created_at, moved.updated_at) == (before.created_at, before.updated_at)
        # It can be gone on with, and its log is whole.
        repository.append_step(root, new_step(3))
        assert len(repository.chain(root)) == 4
        history = log.history(numbers[0])
        assert first_break([(entry.content, entry.previous, entry.digest) for entry in history]) is None
        assert len(history) == 2
    with in_project(HERE):
        assert repository.list() == []
        assert [one.id for one in calibrations.list()] == [run.id]
        with pytest.raises(NotFoundError):
            repository.append_step(root, new_step(4))
    with pytest.raises(NotFoundError):
        MovingRepository(database).move(numbers, 99)
