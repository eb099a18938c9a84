"""Evaluations: an outcome is kept once, items are written down whole, and nothing stays that nothing refers to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import func, select

from db.evaluations import (
    EvaluationCalibrationRecord,
    EvaluationItemRecord,
    EvaluationsRepository,
    calibrations,
    contents,
    items,
)
from db.jobs import JobsRepository
from db.types import ConflictError, NotFoundError


def item(place, key=None, **changes):
    fields = {"suite": "bbq", "method": "COFT", "seed": 0, "place": place, "item": f"i{place}"}
    return EvaluationItemRecord(**(fields | {"key": key or f"k{place}"} | changes))


def calibration(**changes):
    fields = {"suite": "bbq", "method": "COFT", "seed": 0, "key": "c", "summary": {"contexts": 9}}
    return EvaluationCalibrationRecord(**(fields | changes))


def outcomes_of(evaluations, number, method="COFT"):
    """Seed and outcome of the items of a method."""
    listed, contents = evaluations.outcomes(number, "bbq")
    return [(seed, contents[key]) for own, seed, key in listed if own == method]


@pytest.fixture
def evaluations(database):
    return EvaluationsRepository(database)


@pytest.fixture
def evaluation(evaluations):
    return evaluations.add("table", {"suites": ["bbq"]}, {"bbq": {"items": 3}})


def rows(database, table):
    with database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(table))


def test_outcomes_come_back_by_seed_and_place_whatever_the_order_in_which_they_were_kept(evaluations, evaluation):
    outcomes = {"k0": b"zero", "k1": b"one", "k2": b"two"}
    evaluations.keep(evaluation.id, [item(2), item(0, seed=1)], outcomes)
    evaluations.keep(evaluation.id, [item(1), item(0), item(0, suite="arc")], outcomes)
    assert outcomes_of(evaluations, evaluation.id) == [(0, b"zero"), (0, b"one"), (0, b"two"), (1, b"zero")]
    counts = {("bbq", "COFT", 0): 3, ("bbq", "COFT", 1): 1, ("arc", "COFT", 0): 1}
    assert evaluations.counts(evaluation.id) == counts
    assert [evaluations.done(evaluation.id, suite) for suite in ("bbq", "arc", "piqa")] == [4, 1, 0]
    assert evaluations.places(evaluation.id, "bbq", 0) == {("COFT", 0), ("COFT", 1), ("COFT", 2)}
    assert outcomes_of(evaluations, evaluation.id, "SDD") == []
    # A content is never replaced.
    evaluations.keep(evaluation.id, [item(0, seed=2)], {"k0": b"other"})
    assert outcomes_of(evaluations, evaluation.id)[-1] == (2, b"zero")
    for missing in (lambda: evaluations.outcomes(99, "bbq"), lambda: evaluations.done(99, "bbq")):
        with pytest.raises(NotFoundError):
            missing()


def test_what_several_methods_and_seeds_have_in_common_is_given_once(evaluations, evaluation):
    both = [item(0), item(0, seed=1), item(0, method="SDD"), item(1, method="SDD")]
    evaluations.keep(evaluation.id, both, {"k0": b"zero", "k1": b"one"})
    listed, contents = evaluations.outcomes(evaluation.id, "bbq")
    assert listed == [("COFT", 0, "k0"), ("COFT", 1, "k0"), ("SDD", 0, "k0"), ("SDD", 0, "k1")]
    assert contents == {"k0": b"zero", "k1": b"one"}
    assert evaluations.outcomes(evaluation.id, "arc") == ([], {})


def test_a_batch_with_an_item_that_cannot_be_kept_leaves_nothing_of_itself(database, evaluations, evaluation):
    evaluations.keep(evaluation.id, [item(0)], {"k0": b"zero"})
    for refused in ([item(1), item(0)], [item(1), item(2, "nowhere")]):
        with pytest.raises(ConflictError):
            evaluations.keep(evaluation.id, refused, {"k1": b"one"})
        assert evaluations.places(evaluation.id, "bbq", 0) == {("COFT", 0)}
        assert rows(database, contents) == 1


def test_what_another_evaluation_kept_is_linked_and_the_rest_is_returned(database, evaluations, evaluation):
    evaluations.keep(evaluation.id, [item(0), item(1)], {"k0": b"zero", "k1": b"one"})
    second = evaluations.add("again", {}, {})
    assert evaluations.link(second.id, [item(0), item(1), item(2)]) == [item(2)]
    assert outcomes_of(evaluations, second.id) == [(0, b"zero"), (0, b"one")]
    assert rows(database, contents) == 2


def test_a_calibration_is_kept_once_and_linked_with_what_was_said_of_it(evaluations, evaluation):
    assert not evaluations.link_calibration(evaluation.id, calibration())
    assert evaluations.calibration(evaluation.id, "bbq", "COFT", 0) is None
    evaluations.keep_calibration(evaluation.id, calibration(), b"values")
    with pytest.raises(ConflictError):
        evaluations.keep_calibration(evaluation.id, calibration(key="d"), b"others")
    second = evaluations.add("again", {}, {})
    assert evaluations.link_calibration(second.id, calibration(method="again", summary={}))
    assert evaluations.calibrations(second.id) == [calibration(method="again")]
    assert evaluations.calibration(second.id, "bbq", "again", 0) == b"values"
    assert evaluations.calibration(second.id, "bbq", "again", 1) is None


def test_deleting_leaves_what_others_refer_to_and_nothing_else(database, evaluations, evaluation):
    second = evaluations.add("again", {}, {})
    evaluations.keep(evaluation.id, [item(0), item(1)], {"k0": b"zero", "k1": b"one"})
    evaluations.keep_calibration(evaluation.id, calibration(), b"values")
    evaluations.keep(second.id, [item(1)], {})
    evaluations.delete(evaluation.id)
    assert outcomes_of(evaluations, second.id) == [(0, b"one")]
    assert [rows(database, table) for table in (contents, items, calibrations)] == [1, 1, 0]
    evaluations.delete(second.id)
    assert [rows(database, table) for table in (contents, items, calibrations)] == [0, 0, 0]
    with pytest.raises(NotFoundError):
        evaluations.delete(second.id)


def test_many_keys_are_looked_up_and_deleted_in_portions(database, evaluations, evaluation):
    many = [item(place) for place in range(1203)]
    evaluations.keep(evaluation.id, many, {record.key: b"x" for record in many})
    assert evaluations.link(evaluation.id, [replace(record, seed=1) for record in many]) == []
    evaluations.delete(evaluation.id)
    assert rows(database, contents) == 0


def test_one_job_at_a_time_runs_an_evaluation(database, evaluations, evaluation):
    jobs = JobsRepository(database)
    first, second = jobs.add("evaluation", "a", {}), jobs.add("evaluation", "b", {})
    assert evaluations.begin(evaluation.id, first.id).job_id == first.id
    with pytest.raises(ConflictError, match="already"):
        evaluations.begin(evaluation.id, second.id)
    jobs.finish(first.id, "cancelled", progress=0.5, message="")
    assert evaluations.begin(evaluation.id, second.id).job_id == second.id
