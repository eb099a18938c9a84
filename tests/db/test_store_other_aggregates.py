"""Prompt sets, calibrations and job rows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coft_core.types import Example, Span
from db.calibrations import BinRecord, CalibrationFields, CalibrationsRepository
from db.jobs import JobsRepository, JobStatus
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.sessions import SessionsRepository
from db.types import ConflictError, NotFoundError
from tests.db.conftest import new_calibration, new_session

ROWS = (
    PromptRow(2, Example("The nurse", " he", (Span(4, 9, "x"),), "g", "c"), 0.1),
    PromptRow(5, Example("\x00odd")),
    PromptRow(3, Example("No span here", reference="", spans=(), group="")),
)
BINS = (
    BinRecord(
        position=0, first_step=0, last_step=7, log_tau=-3.5, state="calibrated", contexts=40, rank=4, low=0.8, high=0.97
    ),
    BinRecord(position=1, first_step=8, last_step=None, log_tau=-math.inf, state="uninformative", contexts=3),
)


def test_a_prompt_set_comes_back_row_by_row_in_the_order_of_lines_and_is_listed_newest_first(database):
    prompt_sets = PromptSetsRepository(database)
    with pytest.raises(ConflictError):
        prompt_sets.add("a line given twice", "a", "d", (ROWS[0], ROWS[0]))
    assert prompt_sets.list() == []
    made = prompt_sets.add("BBQ", "bbq.csv", "d1", ROWS)
    assert prompt_sets.get(made.id) == made
    assert (made.name, made.filename, made.digest, made.row_count) == ("BBQ", "bbq.csv", "d1", 3)
    assert prompt_sets.rows(made.id) == [ROWS[0], ROWS[2], ROWS[1]]
    second = prompt_sets.add("b", "b", "d2", ())
    assert prompt_sets.list() == [second, made]
    assert prompt_sets.list(digest="d1") == [made]
    assert prompt_sets.existing((made.id, second.id, 404)) == {made.id, second.id}


def test_deleting_a_prompt_set_keeps_the_calibrations_made_from_it(database):
    prompt_sets, calibrations = PromptSetsRepository(database), CalibrationsRepository(database)
    prompt_set = prompt_sets.add("BBQ", "bbq.csv", "d", ROWS)
    run = calibrations.add(new_calibration(prompt_set_id=prompt_set.id), BINS, b"v")
    assert run.prompt_set_id == prompt_set.id
    prompt_sets.delete(prompt_set.id)
    assert calibrations.get(run.id) == replace(run, prompt_set_id=None)
    with pytest.raises(NotFoundError, match="prompt set"):
        prompt_sets.rows(prompt_set.id)


def test_a_calibration_comes_back_with_every_field_its_bins_and_its_bytes(database):
    calibrations = CalibrationsRepository(database)
    job = JobsRepository(database).add("calibrate", "t")
    fields = new_calibration(job_id=job.id)
    made = calibrations.add(fields, BINS[::-1], bytes(range(256)))
    stored = calibrations.get(made.id)
    assert stored.bins == BINS
    for name in CalibrationFields.__dataclass_fields__:
        assert getattr(stored, name) == getattr(fields, name), name
    assert calibrations.values(made.id) == bytes(range(256))


def test_calibrations_are_listed_newest_first_by_policy_model_and_origin(database):
    calibrations = CalibrationsRepository(database)
    first = calibrations.add(new_calibration(), BINS, b"")
    second = calibrations.add(new_calibration(fingerprint_digest="other", model="gpt2", embedded=False), (), b"")
    assert calibrations.list() == [second, first]
    assert calibrations.list(fingerprint_digest="5ca1ab1e") == [first]
    assert calibrations.list(model="gpt2") == [second]
    assert calibrations.list(embedded=True) == [first]
    assert calibrations.list(embedded=False) == [second]


def test_deleting_a_calibration_keeps_its_audits_and_their_label(database):
    calibrations, sessions = CalibrationsRepository(database), SessionsRepository(database)
    run = calibrations.add(new_calibration(), BINS, b"v")
    session = sessions.create(new_session(calibration_id=run.id, calibration_label="BBQ, 400 contexts"))
    assert calibrations.rename(run.id, "Renamed").name == calibrations.get(run.id).name == "Renamed"
    calibrations.delete(run.id)
    stored = sessions.get(session.id)
    assert (stored.calibration_id, stored.calibration_label) == (None, "BBQ, 400 contexts")
    for call in (calibrations.get, calibrations.values, calibrations.delete):
        with pytest.raises(NotFoundError, match="calibration"):
            call(run.id)
    with pytest.raises(ConflictError):
        sessions.create(new_session(calibration_id=404))


def test_a_job_row_tells_whose_it_is_and_how_the_job_went_and_refuses_what_cannot_be(database):
    jobs = JobsRepository(database)
    job = jobs.add("calibrate", "Calibrate", {"prompt_set_id": 3}, process={"number": 7})
    assert (job.status, job.progress, job.payload, job.result) == ("queued", 0.0, {"prompt_set_id": 3}, None)
    assert (job.started_at, job.process, jobs.add("calibrate", "t").process) == (None, {"number": 7}, None)
    for refused, error in (
        (lambda: jobs.set_progress(job.id, 1.5, ""), ConflictError),
        (lambda: jobs.finish(job.id, "lost", progress=0.0, message=""), ConflictError),
        (lambda: jobs.start(404), NotFoundError),
    ):
        with pytest.raises(error):
            refused()
    assert jobs.get(job.id) == job
    jobs.start(job.id)
    jobs.set_progress(job.id, 0.25, "bin 3 of 12")
    running = jobs.get(job.id)
    assert (running.status, running.progress, running.message) == ("running", 0.25, "bin 3 of 12")
    assert running.process == {"number": 7}
    assert running.heartbeat_at > job.heartbeat_at
    jobs.finish(job.id, "done", progress=1.0, message="ready", result={"calibration_id": 9})
    done = jobs.get(job.id)
    assert (done.status, done.progress, done.result) == ("done", 1.0, {"calibration_id": 9})
    assert done.finished_at >= done.started_at


def test_jobs_are_listed_newest_first_by_kind_and_status(database):
    jobs = JobsRepository(database)
    ids = [jobs.add(kind, "t").id for kind in ("calibrate", "sweep", "calibrate")]
    jobs.start(ids[0])
    assert [job.id for job in jobs.list()] == ids[::-1]
    assert [job.id for job in jobs.list(kind="calibrate")] == [ids[2], ids[0]]
    assert [job.id for job in jobs.list(statuses=("running", "failed"))] == [ids[0]]
    assert [job.id for job in jobs.list(limit=1, offset=1)] == [ids[1]]


def test_only_unfinished_jobs_are_marked_interrupted(database):
    jobs = JobsRepository(database)
    ended: tuple[JobStatus, ...] = ("done", "failed", "cancelled")
    for status in ended:
        jobs.finish(jobs.add("calibrate", "t").id, status, progress=0.5, message="")
    queued, running, alive = (jobs.add("calibrate", "t").id for _ in range(3))
    jobs.start(running)
    assert [job.id for job in jobs.unfinished()] == [queued, running, alive]
    assert jobs.mark_interrupted(range(1, running + 1)) == [queued, running]
    assert [job.status for job in jobs.list()] == ["queued", "interrupted", "interrupted", *reversed(ended)]
    error = jobs.get(running).error
    assert "start it again" in error
