"""Jobs end as their rows say, stop when asked, and report progress and the time left without flooding the store."""

from __future__ import annotations

import logging
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from threading import Event
from typing import Protocol

import pytest

from app.jobs.processes import JobProcess
from app.jobs.service import LEASE, JobContext, JobService, whereabouts
from db.database import Database
from db.jobs import JobsRepository
from db.types import ConflictError, JsonObject, StoreError

LONG = 30.0
"""Seconds after which a test gives up on a thread; never reached when the code is right."""


class MovableClock(Protocol):
    now: float

    def __call__(self) -> float: ...


class Work:
    """A job's function that tells when it runs, and runs until it is released or cancelled."""

    def __init__(self) -> None:
        self.entered = Event()
        self.released = Event()

    def __call__(self, context: JobContext) -> JsonObject:
        context.progress(0.5, "half way")
        self.entered.set()
        assert self.released.wait(LONG)
        context.check_cancelled()
        return {"ok": True}


def test_a_job_gets_its_payload_and_its_result_is_stored(runner: JobService) -> None:
    def work(context: JobContext) -> JsonObject:
        context.progress(0.3, "adding")
        return {"sum": sum(context.payload["values"]), "job": context.job_id}

    job_id = runner.submit("calibrate", "Add", work, {"values": [1, 2, 3]})
    job = runner.wait(job_id, LONG)
    assert (job.kind, job.title, job.payload) == ("calibrate", "Add", {"values": [1, 2, 3]})
    assert (job.status, job.progress, job.message, job.error) == ("done", 1.0, "adding", None)
    assert job.result == {"sum": 6, "job": job_id}
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at
    without = runner.wait(runner.submit("sweep", "Nothing", lambda _: None), LONG)
    assert (without.status, without.result, without.payload) == ("done", None, {})


def test_a_failed_job_says_why_in_one_line_logs_the_rest_and_does_not_stop_the_next(
    runner: JobService, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[tuple[BaseException, str]] = [
        (ValueError("Row 3 has no prompt;\n  add one."), "Row 3 has no prompt; add one."),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (SystemExit("stop"), "stop"),
    ]
    for error, sentence in failures:

        def work(context: JobContext, error: BaseException = error) -> None:
            context.progress(0.25, "reading")
            context.progress(0.5, "reading on")
            raise error

        caplog.clear()
        with caplog.at_level(logging.ERROR):
            job = runner.wait(runner.submit("calibrate", "Fail", work), LONG)
        assert (job.status, job.error, job.result) == ("failed", sentence, None)
        assert (job.progress, job.message) == (0.5, "reading on")
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.exc_info[1] is error
    assert runner.wait(runner.submit("calibrate", "Next", lambda _: {"n": 1}), LONG).status == "done"


def test_a_result_that_json_cannot_hold_or_progress_outside_zero_to_one_fails_the_job(runner: JobService) -> None:
    results: tuple[JsonObject, ...] = ({"log_tau": -math.inf}, {"model": object()})
    works = [(lambda _, result=result: result, "JSON") for result in results]
    works += [
        (lambda context, fraction=fraction: context.progress(fraction), "0 to 1")
        for fraction in (-0.1, 1.1, math.nan, math.inf)
    ]
    for work, said in works:
        job = runner.wait(runner.submit("calibrate", "t", work), LONG)
        assert (job.status, said in (job.error or "")) == ("failed", True)


def test_a_running_job_stops_at_its_next_check_after_being_cancelled(runner: JobService) -> None:
    work = Work()
    job_id = runner.submit("calibrate", "t", work)
    assert work.entered.wait(LONG)
    runner.cancel(job_id)
    assert runner.get(job_id).status == "running"
    work.released.set()
    job = runner.wait(job_id, LONG)
    assert (job.status, job.progress, job.message) == ("cancelled", 0.5, "half way")
    assert (job.error, job.result) == (None, None)


def test_a_queued_job_that_is_cancelled_never_runs_and_shows_it_at_once(runner: JobService) -> None:
    work, ran = Work(), Event()
    first = runner.submit("calibrate", "first", work)
    second = runner.submit("calibrate", "second", lambda _: ran.set())
    third = runner.submit("calibrate", "third", lambda _: {"n": 3})
    assert work.entered.wait(LONG)
    assert runner.get(second).status == "queued"
    runner.cancel(second)
    assert runner.wait(second, LONG).status == "cancelled"
    work.released.set()
    assert [runner.wait(job_id, LONG).status for job_id in (first, third)] == ["done", "done"]
    assert not ran.is_set()


def test_progress_is_written_at_most_five_times_a_second_and_never_lost(
    runner: JobService, clock: MovableClock, jobs: JobsRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[float] = []
    write = JobsRepository.set_progress

    def count(self: JobsRepository, job_id: int, progress: float, message: str) -> None:
        written.append(clock.now)
        write(self, job_id, progress, message)

    monkeypatch.setattr(JobsRepository, "set_progress", count)
    seen: list[tuple[float, float]] = []

    def work(context: JobContext) -> None:
        for part in range(1001):
            context.progress(part / 2000, f"part {part}")
            clock.now += 0.01
        seen.append((runner.get(context.job_id).progress, jobs.get(context.job_id).progress))
        context.check_cancelled()

    job = runner.wait(runner.submit("calibrate", "t", work), LONG)
    seconds = 1001 * 0.01
    assert seconds * 4 <= len(written) <= seconds * 5 + 1
    assert min(later - earlier for earlier, later in pairwise(written)) >= 0.2
    ((live, stored),) = seen
    assert live == 0.5 > stored
    assert (job.progress, job.message) == (1.0, "part 1000")


def test_waiting_too_long_says_so_and_leaves_the_job_running(runner: JobService) -> None:
    work = Work()
    job_id = runner.submit("calibrate", "t", work)
    with pytest.raises(TimeoutError, match="it goes on"):
        runner.wait(job_id, timeout=0)
    work.released.set()
    assert runner.wait(job_id, LONG).status == "done"


def test_shutting_down_interrupts_what_is_unfinished_and_takes_no_more(database: Database) -> None:
    runner = JobService(database)
    work = Work()
    running = runner.submit("calibrate", "running", work)
    queued = runner.submit("calibrate", "queued", lambda _: None)
    cancelled = runner.submit("calibrate", "cancelled", lambda _: None)
    assert work.entered.wait(LONG)
    runner.cancel(cancelled)
    runner.shutdown(wait=False)
    work.released.set()
    runner.shutdown()
    statuses = [runner.get(job_id).status for job_id in (running, queued, cancelled)]
    assert statuses == ["interrupted", "interrupted", "cancelled"]
    error = runner.get(running).error
    assert error is not None
    assert "start it again" in error
    with pytest.raises(RuntimeError, match="shutting down"):
        runner.submit("calibrate", "t", lambda _: None)
    assert len(runner.list()) == 3


def test_recovery_marks_what_an_ended_process_left_and_spares_its_own(runner: JobService, jobs: JobsRepository) -> None:
    left_queued, left_running = jobs.add("calibrate", "t").id, jobs.add("calibrate", "t").id
    jobs.start(left_running)
    work = Work()
    own = runner.submit("calibrate", "t", work)
    assert work.entered.wait(LONG)
    assert runner.recover() == []
    assert runner.recover(owns_store=True) == [left_queued, left_running]
    assert [runner.get(i).status for i in (left_queued, left_running, own)] == [
        "interrupted", "interrupted", "running",
    ]  # fmt: skip
    work.released.set()
    assert runner.wait(own, LONG).status == "done"
    assert runner.recover(owns_store=True) == []


def test_jobs_of_a_process_are_left_behind_once_it_is_gone_and_not_before(
    runner: JobService, jobs: JobsRepository
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        first, second = (jobs.add("calibrate", "t", process=JobProcess.of(process.pid).json).id for _ in range(2))
        jobs.start(second)
        # A server that starts beside a command leaves that one's jobs alone, too.
        assert runner.recover(owns_store=True) == []
        assert [runner.get(job).status for job in (first, second)] == ["queued", "running"]
        process.kill()
        process.wait()
    assert runner.get(second).status == "interrupted"
    assert jobs.get(first).status == "queued"
    assert runner.recover() == [first]


def test_jobs_of_another_computer_are_left_behind_when_they_were_silent_for_long(
    runner: JobService, jobs: JobsRepository, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = replace(JobProcess.of(os.getpid()), host="desk-7", machine="another one").json
    job = jobs.add("calibrate", "t", process=elsewhere).id
    assert (runner.recover(), runner.get(job).status) == ([], "queued")
    said = whereabouts(runner.get(job))
    assert said.startswith("is being run by a process on desk-7, which gave its last sign of life at ")
    last, later = (timedelta(**dict(zip(("hours", "minutes", "seconds"), map(int, found), strict=True)))
                   for found in re.findall(r"(\d\d):(\d\d):(\d\d) UTC", said))  # fmt: skip
    assert (later - last) % timedelta(days=1) == LEASE
    monkeypatch.setattr("app.jobs.service.LEASE", -timedelta(seconds=1))
    assert runner.get(job).status == "interrupted"


def test_jobs_are_listed_with_their_live_progress(runner: JobService) -> None:
    entered, released = Event(), Event()

    def work(context: JobContext) -> None:
        context.progress(0.1, "first")
        context.progress(0.2, "second")
        entered.set()
        assert released.wait(LONG)

    done = runner.wait(runner.submit("sweep", "t", lambda _: None), LONG)
    job_id = runner.submit("calibrate", "t", work)
    assert entered.wait(LONG)
    live, other = runner.list()
    assert (live.id, live.progress, live.message) == (job_id, 0.2, "second")
    assert other == done
    assert [job.id for job in runner.list(kind="sweep")] == [done.id]
    released.set()


def test_a_store_that_refuses_the_ending_leaves_the_row_to_recovery(
    runner: JobService,
    jobs: JobsRepository,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreError("disk is full")

    monkeypatch.setattr(JobsRepository, "finish", refuse)
    job = runner.wait(runner.submit("calibrate", "t", lambda _: None), LONG)
    assert job.status == "running"
    assert "could not be stored" in caplog.text
    monkeypatch.undo()
    assert runner.recover(owns_store=True) == [job.id]


def test_the_time_left_follows_from_the_speed_of_the_last_minute_and_is_not_said_before_it_is_known(
    jobs: JobsRepository, clock: MovableClock
) -> None:
    cases: tuple[tuple[tuple[tuple[float, float], ...], float, float | None], ...] = (
        # Reports as moments and shares; a moment, and the seconds that are then left.
        ((), 0, None),
        (((0, 0.0), (10, 0.1), (20, 0.2)), 20, 80),
        (((0, 0.0), (10, 0.1), (20, 0.2)), 25, 75),
        (((0, 0.0), (10, 0.1), (20, 0.2)), 1000, 0),
        (((0, 0.0), (10, 0.02)), 10, None),
        (((0, 0.0), (15, 0.03)), 15, 0.97 * 15 / 0.03),
        (((0, 0.5),), 0, None),
        (((0, 0.5), (10, 1.0)), 10, None),
        # Half was known already and is reported at once; then a tenth takes 100 seconds.
        (((0, 0.0), (1, 0.5), (51, 0.55), (101, 0.6)), 101, 400),
    )
    for reports, moment, left in cases:
        context = JobContext(jobs.add("calibration", "t").id, {}, jobs, clock)
        advance(context, clock, *reports)
        clock.now = moment
        assert context.seconds_left == (left if left is None else pytest.approx(left)), reports


def test_a_new_phase_is_judged_by_its_own_speed(jobs: JobsRepository, clock: MovableClock) -> None:
    context = JobContext(jobs.add("calibration", "t").id, {}, jobs, clock)
    advance(context, clock, (0, 0.0), (10, 0.2))
    context.begin_phase(0.2, "the slow part")
    assert (context.state, context.seconds_left) == ((0.2, "the slow part"), None)
    advance(context, clock, (30, 0.3))
    assert context.seconds_left == pytest.approx(140)


def advance(context: JobContext, clock: MovableClock, *reports: tuple[float, float]) -> None:
    """Report shares at moments."""
    for moment, fraction in reports:
        clock.now = moment
        context.progress(fraction)


def test_the_time_left_is_known_of_running_jobs_only(runner: JobService, clock: MovableClock) -> None:
    seen: list[float | None] = []

    def work(context: JobContext) -> None:
        advance(context, clock, (0, 0.0), (10, 0.5))
        seen.append(runner.get(context.job_id).seconds_left)

    job_id = runner.submit("calibration", "t", work)
    runner.wait(job_id, LONG)
    assert seen == [pytest.approx(10)]
    assert runner.get(job_id).seconds_left is None


def test_a_job_is_prepared_under_its_own_id_before_it_runs(runner: JobService) -> None:
    order: list[tuple[str, int]] = []
    job_id = runner.submit(
        "calibration", "t", lambda context: order.append(("run", context.job_id)),
        prepare=lambda number: order.append(("prepare", number)),
    )  # fmt: skip
    assert runner.wait(job_id, LONG).status == "done"
    assert order == [("prepare", job_id), ("run", job_id)]


def test_a_job_that_cannot_be_prepared_is_not_there_and_does_not_run(runner: JobService) -> None:
    ran = Event()

    def refuse(_: int) -> None:
        raise ConflictError("There is another one.")

    with pytest.raises(ConflictError):
        runner.submit("calibration", "t", lambda _: ran.set(), prepare=refuse)
    assert not runner.list()
    assert runner.wait(runner.submit("calibration", "next", lambda _: None), LONG).status == "done"
    assert not ran.is_set()


def test_a_process_is_gone_once_it_has_ended_and_never_because_its_number_or_computer_is_another_ones() -> None:
    own = JobProcess.of(os.getpid())
    assert JobProcess.read(own.json) == own
    assert JobProcess.read(None) is None
    assert (own.own, own.visible, own.gone) == (True, True, False)
    assert replace(own, born=-3600.0).gone
    elsewhere = replace(own, machine="another one", number=2**22)
    assert (elsewhere.own, elsewhere.visible, elsewhere.gone) == (False, False, False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        process = JobProcess.of(started.pid)
        assert (process.own, process.visible, process.gone) == (False, True, False)
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert process.gone, "it has ended, though nobody asked how"
        started.wait()
        assert process.gone
