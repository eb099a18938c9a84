"""Sessions that move between projects, on both kinds of database."""

from __future__ import annotations

import pytest

from coft_core.types import UserTerm
from db.calibrations import BinRecord, CalibrationsRepository
from db.moving import MovingRepository
from db.projects import ProjectsRepository
from db.scope import in_project
from db.sessions import SessionsRepository
from db.types import NotFoundError
from db.user_lists import UserListsRepository
from db.verdicts import AnnotationFields, AnnotationsRepository, first_break
from tests.db.conftest import extend, new_calibration, new_session, new_step

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
