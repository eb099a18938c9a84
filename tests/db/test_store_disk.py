"""What accounts have in the store is measured, and follows what they make and delete."""

from __future__ import annotations

import pytest

from app.accounts.disk import PARTS
from coft_core.types import Example
from db.disk import ROW_BYTES, DiskRepository
from db.jobs import JobsRepository
from db.library import LibraryRepository
from db.projects import ProjectsRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.schema import roots
from db.scope import counted_to, in_project
from db.sessions import SessionsRepository
from tests.db.conftest import extend, new_session, new_step
from tests.db.test_store_projects import fill

ANNA, BEN = 7, 8


@pytest.fixture
def disk(database):
    ProjectsRepository(database).add("Other")
    return DiskRepository(database)


def test_each_account_has_what_it_made_in_all_projects(database, disk):
    for project, account in ((1, ANNA), (2, BEN)):
        with in_project(project), counted_to(account):
            fill(database)
    with in_project(1):
        PromptSetsRepository(database).add("nobody's", "a.csv", "d", [PromptRow(2, Example("Ä" * 1000))])
    found = disk.by_account()
    assert set(found) == {ANNA, BEN, None}
    assert found[ANNA] == found[BEN]
    assert found[BEN].keys() == set(roots()) == set(PARTS)
    assert found[None].keys() == {"prompt_sets"}
    assert 2000 + 2 * ROW_BYTES < found[None]["prompt_sets"] < 2200 + 2 * ROW_BYTES
    assert disk.of_account(BEN) == sum(found[BEN].values())
    assert disk.of_account(404) == 0


def test_all_that_hangs_on_a_row_counts_to_whom_the_row_is(database, disk):
    repository, jobs = SessionsRepository(database), JobsRepository(database)
    with in_project(1), counted_to(ANNA):
        session = repository.create(new_session())
    before = disk.of_account(ANNA)
    with in_project(1), counted_to(BEN):
        extend(repository, session.active_branch_id, [new_step(index) for index in range(4)])
        fork = repository.add_branch(session.id, session.active_branch_id, 2, "0/2:418", "fork")
        extend(repository, fork.id, [new_step(2)])
        grown = disk.of_account(ANNA)
        assert grown > before + 5 * 3 * ROW_BYTES
        LibraryRepository(database).prune(session.id, fork.id)
        assert before < disk.of_account(ANNA) < grown
        assert disk.of_account(BEN) == 0
        job = jobs.add("paths", "t")
        jobs.finish(job.id, "done", progress=1.0, message="", result={"long": "x" * 10_000})
        assert disk.by_account()[BEN]["jobs"] > 10_000
        jobs.delete(job.id)
        repository.delete(session.id)
    assert disk.by_account() == {}
