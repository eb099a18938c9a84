"""A project goes whole or not at all, leaves what single deletions leave, and takes nothing of another one along."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from db.accounts import AccountsRepository, TokensRepository
from db.evaluations import contents
from db.jobs import JobsRepository
from db.project_contents import ProjectContents
from db.projects import ProjectsRepository, members
from db.schema import roots
from db.scope import DEFAULT, SHARED, in_every_project, in_project
from db.sessions import SessionsRepository
from db.tables import METADATA
from db.types import ConflictError, NotFoundError, utc_now
from db.verdicts import tombstones
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
