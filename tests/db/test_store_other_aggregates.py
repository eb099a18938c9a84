"""Prompt sets, calibrations, jobs with their ledgers, batches, word lists, assignments, and who stored how much."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, timedelta

import pytest

from app.accounts.disk import PARTS
from coft_core.types import Candidate, Example, Span, UserTerm
from db.assignments import AssignmentsRepository, ReadingsRepository
from db.audits import BatchPlace
from db.batches import BatchesRepository
from db.calibrations import BinRecord, CalibrationFields, CalibrationsRepository
from db.disk import ROW_BYTES, DiskRepository
from db.jobs import JobsRepository, JobStatus, LedgersRepository
from db.library import LibraryRepository
from db.projects import ProjectsRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.schema import roots
from db.scope import counted_to, in_project
from db.sessions import SessionsRepository
from db.types import ConflictError, NotFoundError
from db.user_lists import UserListsRepository
from tests.db.conftest import extend, new_calibration, new_session, new_step
from tests.db.test_store_projects import fill

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
    stopped = jobs.get(running)
    assert "start it again" in stopped.error
    assert stopped.finished_at >= stopped.started_at
    assert jobs.mark_interrupted([running, queued]) == []
    # One that was asked to stop is cancelled, and one that was heard of lately is left alone.
    jobs.ask_to_cancel(alive)
    jobs.start(alive)
    heard = jobs.get(alive).heartbeat_at
    assert jobs.mark_interrupted([alive], heard) == []
    assert jobs.mark_interrupted([alive], heard + timedelta(seconds=1)) == [alive]
    assert (jobs.get(alive).status, jobs.get(alive).error) == ("cancelled", None)


@pytest.fixture
def ledgers(database):
    return LedgersRepository(database)


@pytest.fixture
def job_id(database):
    return JobsRepository(database).add("calibration", "t").id


@pytest.fixture
def prompt_set_id(database):
    return PromptSetsRepository(database).add("a", "a", "d", ()).id


def test_the_last_ledger_of_a_job_counts_and_goes_with_its_prompt_set(database, ledgers, job_id, prompt_set_id):
    assert ledgers.load(job_id) is None
    for wrong in ((404, prompt_set_id), (job_id, 404)):
        with pytest.raises(ConflictError):
            ledgers.save(*wrong, b"")
    assert ledgers.load(job_id) is None
    for data in (bytes(range(256)), b"", b"last"):
        ledgers.save(job_id, prompt_set_id, data)
        assert ledgers.load(job_id) == data
    for _ in range(2):
        ledgers.delete(job_id)
    assert ledgers.load(job_id) is None
    ledgers.save(job_id, prompt_set_id, b"half")
    PromptSetsRepository(database).delete(prompt_set_id)
    assert ledgers.load(job_id) is None
    assert JobsRepository(database).get(job_id).id == job_id


def test_a_ledger_is_handed_over_to_the_job_that_resumes(database, ledgers, job_id, prompt_set_id):
    ledgers.save(job_id, prompt_set_id, b"half")
    heir = JobsRepository(database).add("calibration", "t").id
    ledgers.move(job_id, heir)
    assert (ledgers.load(job_id), ledgers.load(heir)) == (None, b"half")
    ledgers.save(job_id, prompt_set_id, b"other")
    with pytest.raises(ConflictError, match="ledger of its own"):
        ledgers.move(job_id, heir)
    ledgers.move(404, JobsRepository(database).add("calibration", "t").id)


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


TERMS = (
    UserTerm("Zorblax", "name"), UserTerm("\x00odd \U0001f469", "race"), UserTerm("Black Friday", keep=True),
)  # fmt: skip


@pytest.fixture
def lists(database):
    return UserListsRepository(database)


def test_a_list_comes_back_term_by_term_in_its_order_and_is_deleted_whole(lists):
    made = lists.add("hiring", "d1", TERMS)
    assert (made.name, made.digest, made.term_count) == ("hiring", "d1", 3)
    assert lists.get(made.id) == lists.find("hiring") == made
    assert lists.terms(made.id) == list(TERMS)
    assert lists.find("lending") is None
    first = lists.add("a", "d", TERMS)
    assert lists.list() == [first, made], "by name"
    lists.delete(made.id)
    assert lists.list() == [first]
    with pytest.raises(NotFoundError, match="word list"):
        lists.delete(made.id)


def test_a_name_is_taken_once_and_a_list_that_fails_or_replaces_leaves_nothing_behind_or_all_as_it_was(lists):
    old, other = lists.add("hiring", "d1", TERMS), lists.add("lending", "d2", ())
    for name, replaced in (("hiring", None), ("lending", old.id)):
        with pytest.raises(ConflictError, match="already"):
            lists.add(name, "d3", TERMS[:1], replaces=replaced)
        assert lists.list() == [old, other]
        assert lists.terms(old.id) == list(TERMS)
    new = lists.add("hiring", "d2", TERMS[:1], replaces=old.id)
    assert new.id > old.id
    assert lists.list() == [new, other]
    assert lists.terms(new.id) == [TERMS[0]]
    with pytest.raises(NotFoundError, match="word list"):
        lists.terms(old.id)


@pytest.fixture
def three(database):
    made = SessionsRepository(database)
    return [made.create(new_session()).id for _ in range(3)]


def told(found):
    return [(record.session_id, record.reviewer, record.due_on) for record in found]


def test_a_session_is_assigned_once_to_a_reviewer_and_the_new_date_takes_the_old_ones_place(database, three):
    assignments = AssignmentsRepository(database)
    first, second, _ = three
    assert assignments.assign([first, second], ["Å", "B"], "Lead", date(2026, 5, 4)) == 4
    assert assignments.assign([first], ["Å", "C"], "Other", None) == 1
    assert told(assignments.list("Å")) == [(second, "Å", date(2026, 5, 4)), (first, "Å", None)]
    assert [record.lead for record in assignments.list(session_id=first)] == ["Lead", "Other", "Other"]
    assert assignments.withdraw([first, second], ["B", "nobody"]) == 2
    assert {record.reviewer for record in assignments.list()} == {"Å", "C"}


def test_assignments_of_a_session_that_does_not_exist_are_all_refused(database, three):
    assignments = AssignmentsRepository(database)
    with pytest.raises(NotFoundError, match="no audit session"):
        assignments.assign([three[0], 404], ["A"], "Lead")
    assert assignments.list() == []


def test_a_reading_keeps_its_first_moment_and_its_newest_entry(database, three):
    readings = ReadingsRepository(database)
    assert readings.of(three[0], "A") is None
    readings.note(three[0], "A", 3)
    first = readings.of(three[0], "A")
    for entry in (2, 5, 4):
        readings.note(three[0], "A", entry)
    newest = readings.of(three[0], "A")
    assert (first.entry, newest.entry, newest.shown_at) == (3, 5, first.shown_at)
    assert readings.of(three[1], "A") is None
    with pytest.raises(NotFoundError):
        readings.note(404, "A", 1)


def test_a_deleted_session_takes_its_assignments_and_readings_along(database, three):
    AssignmentsRepository(database).assign(three, ["A"], "Lead")
    ReadingsRepository(database).note(three[0], "A", 1)
    SessionsRepository(database).delete(three[0])
    assert [record.session_id for record in AssignmentsRepository(database).list()] == three[1:]
    assert ReadingsRepository(database).of(three[0], "A") is None


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
