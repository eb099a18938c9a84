"""The time left follows from the speed of the last minute, and nothing is said before it is known."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Protocol

import pytest

from app.shared.jobs import JobContext, JobService
from db.jobs import JobsRepository
from db.types import ConflictError

LONG = 30.0


class MovableClock(Protocol):
    now: float

    def __call__(self) -> float: ...


@pytest.fixture
def context(jobs: JobsRepository, clock: Callable[[], float]) -> JobContext:
    return JobContext(jobs.add("calibration", "t").id, {}, jobs, clock)


def advance(context: JobContext, clock: MovableClock, *reports: tuple[float, float]) -> None:
    """Report shares at moments."""
    for moment, fraction in reports:
        clock.now = moment
        context.progress(fraction)


def test_a_steady_job_takes_as_long_as_its_speed_says(context: JobContext, clock: MovableClock) -> None:
    advance(context, clock, (0, 0.0), (10, 0.1), (20, 0.2))
    assert context.seconds_left == pytest.approx(80)
    clock.now = 25
    assert context.seconds_left == pytest.approx(75)
    clock.now = 1000
    assert context.seconds_left == 0


def test_nothing_is_said_before_three_per_cent_are_done(context: JobContext, clock: MovableClock) -> None:
    assert context.seconds_left is None
    advance(context, clock, (0, 0.0), (10, 0.02))
    assert context.seconds_left is None
    advance(context, clock, (15, 0.03))
    assert context.seconds_left == pytest.approx(0.97 * 15 / 0.03)


def test_nothing_is_said_of_a_job_that_is_done_or_that_only_began(context: JobContext, clock: MovableClock) -> None:
    advance(context, clock, (0, 0.5))
    assert context.seconds_left is None
    advance(context, clock, (10, 1.0))
    assert context.seconds_left is None


def test_a_resumed_job_is_judged_by_what_it_does_now(context: JobContext, clock: MovableClock) -> None:
    # Half was known already and is reported at once; then a tenth takes 100 seconds.
    advance(context, clock, (0, 0.0), (1, 0.5), (51, 0.55), (101, 0.6))
    assert context.seconds_left == pytest.approx(400)


def test_a_new_phase_is_judged_by_its_own_speed(context: JobContext, clock: MovableClock) -> None:
    advance(context, clock, (0, 0.0), (10, 0.2))
    context.begin_phase(0.2, "the slow part")
    assert context.state == (0.2, "the slow part")
    assert context.seconds_left is None
    advance(context, clock, (30, 0.3))
    assert context.seconds_left == pytest.approx(140)


def test_the_runner_knows_of_running_jobs_alone(runner: JobService, clock: MovableClock) -> None:
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
