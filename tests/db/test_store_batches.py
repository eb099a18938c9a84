"""Batches: every row has at most one session, and what the sessions say is measured from their steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coft_core.types import Candidate, Example
from db.audits import BatchPlace
from db.batches import BatchesRepository
from db.jobs import JobsRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.types import ConflictError, NotFoundError
from tests.db.conftest import new_session, new_step


@pytest.fixture
def batches(database):
    return BatchesRepository(database)


@pytest.fixture
def batch(database, batches):
    rows = [PromptRow(line, Example(f"p{line}")) for line in (2, 3, 5)]
    prompts = PromptSetsRepository(database).add("set", "set.csv", "d", rows)
    return batches.add("hiring", prompts.id, {"lam": 0.5}, [5, 2, 3])


def test_a_row_gets_one_session_in_the_same_transaction_that_makes_it(batches, sessions, batch):
    place = BatchPlace(batch.id, 3)
    batches.fail(batch.id, 3, "too long")
    made = sessions.create(new_session(batch=place))
    assert sessions.get(made.id).batch == made.batch == place
    row = {row.line: row for row in batches.rows(batch.id)}[3]
    assert (row.session_id, row.begun, row.error, row.steps, row.text) == (made.id, True, None, 0, "")
    for refused, error in ((place, ConflictError), (BatchPlace(batch.id, 4), NotFoundError)):
        with pytest.raises(error):
            sessions.create(new_session(batch=refused))
    assert sessions.count() == 1


def test_a_deleted_session_leaves_a_row_that_has_begun_and_is_not_begun_again(batches, sessions, batch):
    made = sessions.create(new_session(batch=BatchPlace(batch.id, 2)))
    sessions.delete(made.id)
    row = batches.rows(batch.id)[0]
    assert (row.line, row.session_id, row.begun, row.certificate) == (2, None, True, None)
    with pytest.raises(ConflictError):
        sessions.create(new_session(batch=BatchPlace(batch.id, 2)))


def test_deleting_a_batch_keeps_its_sessions_and_frees_its_prompts(database, batches, sessions, batch):
    prompts = PromptSetsRepository(database)
    made = sessions.create(new_session(batch=BatchPlace(batch.id, 2)))
    with pytest.raises(ConflictError):
        prompts.delete(batch.prompt_set_id)
    batches.delete(batch.id)
    assert sessions.get(made.id) == replace(made, batch=None)
    prompts.delete(batch.prompt_set_id)
    with pytest.raises(NotFoundError):
        batches.rows(batch.id)


def test_one_job_at_a_time_runs_a_batch(database, batches, batch):
    jobs = JobsRepository(database)
    first, second = jobs.add("batch", "a", {}), jobs.add("batch", "b", {})
    assert batches.begin(batch.id, first.id).job_id == first.id
    assert batches.begin(batch.id, first.id).job_id == first.id
    with pytest.raises(ConflictError, match="already"):
        batches.begin(batch.id, second.id)
    jobs.finish(first.id, "cancelled", progress=0.5, message="")
    assert batches.begin(batch.id, second.id).job_id == second.id


def candidate(token_id, p_fused, certified):
    return Candidate(token_id, "t", -1.0, -1.0, math.log(p_fused), certified)


def test_a_row_is_measured_on_its_root_branch_alone(batches, sessions, batch):
    made = sessions.create(new_session(batch=BatchPlace(batch.id, 5)))
    root = made.active_branch_id
    kept = (candidate(1, 0.6, True), candidate(2, 0.3, False))
    overruled = (candidate(1, 0.3, True), candidate(2, 0.6, False))
    empty = (candidate(1, 0.3, False), candidate(2, 0.6, False))
    for index, (candidates, ratio, margin, certified, fallback) in enumerate(
        [(kept, -2.0, 1.5, True, False), (overruled, 1.0, 0.5, True, False), (empty, 0.0, math.inf, False, True)]
    ):
        sessions.append_step(
            root,
            new_step(
                index, token=f"<{index}>", candidates=candidates, log_ratio=ratio, margin=margin, certified=certified,
                fallback=fallback,
            ),
        )  # fmt: skip
    fork = sessions.add_branch(made.id, root, 1, "0/1:9")
    sessions.append_step(fork.id, new_step(1, log_ratio=50.0, margin=-9.0))
    sessions.set_active_branch(made.id, fork.id)
    sessions.set_finished(root, "length")
    row = batches.rows(batch.id)[2]
    assert (row.root_branch_id, row.finished, row.text) == (root, "length", "<0><1><2>")
    assert (row.steps, row.certified, row.fallbacks, row.overruled) == (3, 2, 1, 1)
    assert row.mean_log_ratio == pytest.approx(1.0)
    assert (row.max_log_ratio, row.min_margin) == (2.0, 0.5)
    sessions.set_finished(root, "end")
    assert batches.rows(batch.id)[2].text == "<0><1>"
    assert [(r.line, r.begun, r.mean_log_ratio) for r in batches.rows(batch.id)[:2]] == [
        (2, False, None),
        (3, False, None),
    ]


def test_only_infinite_margins_stay_infinite(batches, sessions, batch):
    made = sessions.create(new_session(batch=BatchPlace(batch.id, 2)))
    sessions.append_step(made.active_branch_id, new_step(0, margin=math.inf))
    assert batches.rows(batch.id)[0].min_margin == math.inf
