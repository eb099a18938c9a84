"""Steps and branches of sessions: they come back whole, chains run through forks, and nothing is rewritten."""

from __future__ import annotations

import math

import pytest

from coft_core.stored_logits import StoredLogits
from coft_core.types import FamilyStep
from db.calibrations import CalibrationsRepository
from db.comparisons import ComparisonsRepository
from db.sessions import SessionsRepository
from db.types import CalibrationDeletedError, ConflictError, NotFoundError, UnstorableValueError, utc_now
from tests.db.conftest import extend, new_calibration, new_session, new_step, statements


def test_a_step_comes_back_with_every_field_and_its_candidates_in_order(database, sessions):
    branch = sessions.create(new_session()).active_branch_id
    step = new_step(0)
    bare = new_step(1, tv_on_set=None, tv_bound=None, candidates=(), families=(), noise=None)
    before = utc_now()
    sessions.append_step(branch, step, seconds=0.025, peak_bytes=12_345_678_901)
    sessions.append_step(branch, bare)
    assert sessions.chain(branch) == (step, bare)
    assert sessions.chain(branch, first=1) == (bare,)
    measured = ComparisonsRepository(database).branch_steps(branch)
    assert [(own.seconds, own.peak_bytes) for own in measured] == [(0.025, 12_345_678_901), (None, None)]
    times = sessions.times(sessions.branch(branch).session_id)
    assert list(times) == [(branch, 0), (branch, 1)]
    assert before <= times[branch, 0] <= times[branch, 1] <= utc_now()


def test_logits_of_steps_are_read_only_when_they_are_asked_for(sessions, database):
    branch = sessions.create(new_session()).active_branch_id
    kept, bare = new_step(0, logits=StoredLogits(("factual",), 1, 1.0, "float32", b"kept")), new_step(1)
    for step in (kept, bare):
        sessions.append_step(branch, step)
    assert {index: StoredLogits.from_bytes(data) for index, data in sessions.logits(branch).items()} == {0: kept.logits}
    assert sessions.logits(branch, first=1) == {}
    with statements(database) as asked:
        assert sessions.chain(branch) == (kept, bare)
        assert sessions.chain(branch)[0].logits is None
    assert asked
    assert not any("logits" in statement for statement in asked)


def test_only_the_next_step_can_be_appended_and_none_with_nan(sessions):
    branch = sessions.create(new_session()).active_branch_id
    part = FamilyStep("gender", math.nan, -1.0, -2.0, True, "calibrated")
    with pytest.raises(UnstorableValueError, match="NaN"):
        sessions.append_step(branch, new_step(0, families=(part,)))
    assert sessions.chain(branch) == ()
    extend(sessions, branch, [new_step(0), new_step(1)])
    for index in (0, 1, 3, 10):
        with pytest.raises(ConflictError, match="index 2"):
            sessions.append_step(branch, new_step(index))
    assert [step.index for step in sessions.chain(branch)] == [0, 1]


def test_a_chain_runs_through_its_ancestors_and_ignores_what_they_grew_later(sessions):
    session = sessions.create(new_session())
    root = session.active_branch_id
    extend(sessions, root, [new_step(i, token=f"root{i}") for i in range(6)])
    child = sessions.add_branch(session.id, root, 3, "0/3:417", "with she").id
    assert [step.token for step in sessions.chain(child)] == ["root0", "root1", "root2"]
    extend(sessions, child, [new_step(i, token=f"child{i}") for i in range(3, 6)])
    late = sessions.add_branch(session.id, child, 5, "0/3:417/5:9").id
    extend(sessions, late, [new_step(5, token="late5")])
    # Departs before its parent's own first step, so nothing of the parent is left.
    early = sessions.add_branch(session.id, late, 1, "0/3:417/5:9/1:8").id
    extend(sessions, early, [new_step(1, token="early1")])
    extend(sessions, root, [new_step(6, token="root6")])

    chains = {branch: [step.token for step in sessions.chain(branch)] for branch in (root, child, late, early)}
    assert chains == {
        root: ["root0", "root1", "root2", "root3", "root4", "root5", "root6"],
        child: ["root0", "root1", "root2", "child3", "child4", "child5"],
        late: ["root0", "root1", "root2", "child3", "child4", "late5"],
        early: ["root0", "early1"],
    }
    assert all(len(step.candidates) == 2 for step in sessions.chain(late))
    with pytest.raises(ConflictError, match="index 6"):
        sessions.append_step(late, new_step(5))


def test_reading_a_chain_takes_the_same_few_queries_however_long_it_is(database, sessions):
    branch = sessions.create(new_session()).active_branch_id
    counts = []
    for length in (1, 5):
        extend(sessions, branch, [new_step(i) for i in range(len(sessions.chain(branch)), length)])
        with statements(database) as asked:
            assert len(sessions.chain(branch)) == length
        counts.append(sum(sql.lstrip().startswith("SELECT") for sql in asked))
    assert counts == [3, 3]


def test_a_branch_departs_only_from_an_existing_step_of_its_own_session(sessions):
    session, other = sessions.create(new_session()), sessions.create(new_session())
    root = session.active_branch_id
    extend(sessions, root, [new_step(0), new_step(1)])
    for fork_step in (-1, 3):
        with pytest.raises(ConflictError, match="from 0 to 2"):
            sessions.add_branch(session.id, root, fork_step, f"0/{fork_step}:1")
    with pytest.raises(ConflictError, match="not a branch of"):
        sessions.add_branch(other.id, root, 1, "0/1:1")
    with pytest.raises(NotFoundError, match="404"):
        sessions.add_branch(session.id, 404, 1, "0/1:1")
    assert sessions.add_branch(session.id, root, 2, "0/2:1").fork_step == 2
    with pytest.raises(ConflictError, match="0/2:1"):
        sessions.add_branch(session.id, root, 2, "0/2:1")
    assert sessions.add_branch(other.id, other.active_branch_id, 0, "0/2:1").path == "0/2:1"
    assert [branch.path for branch in sessions.branches(session.id)] == ["0", "0/2:1"]


def test_the_active_branch_is_kept_and_counts_for_the_length_of_the_session(sessions):
    session, other = sessions.create(new_session()), sessions.create(new_session())
    extend(sessions, session.active_branch_id, [new_step(i) for i in range(5)])
    fork = sessions.add_branch(session.id, session.active_branch_id, 2, "0/2:1").id

    def length():
        return next(item.steps for item in sessions.list() if item.id == session.id)

    assert length() == 5
    assert sessions.set_active_branch(session.id, fork).active_branch_id == fork
    assert sessions.get(session.id).active_branch_id == fork
    assert length() == 2
    sessions.append_step(fork, new_step(2))
    assert length() == 3
    assert next(item.steps for item in sessions.list() if item.id == other.id) == 0
    with pytest.raises(ConflictError, match="not a branch of"):
        sessions.set_active_branch(other.id, fork)


def test_a_session_whose_calibration_is_deleted_takes_no_further_step(database):
    calibrations, sessions = CalibrationsRepository(database), SessionsRepository(database)
    run = calibrations.add(new_calibration(), (), b"v")
    branch = sessions.create(new_session(calibration_id=run.id, calibration_label="BBQ")).active_branch_id
    sessions.append_step(branch, new_step(0))
    calibrations.delete(run.id)
    with pytest.raises(CalibrationDeletedError, match="BBQ"):
        sessions.append_step(branch, new_step(1))
    assert len(sessions.chain(branch)) == 1
