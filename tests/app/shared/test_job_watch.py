"""A background job on a page: what each look at it shows, and what the page's controls are connected to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from app.jobs.service import JobView
from app.jobs.watch import JobWatch, job_part, run_buttons, wire_job
from app.shared.errors import ServiceError
from tests.records import job_view

FOLLOWED, SHOWN, STATUS, SAID, TIMER, CANCEL, UNFINISHED = range(7)
"""Places of what a look gives."""


class Jobs:
    """Jobs as a test sets them, newest first."""

    def __init__(self) -> None:
        self.views: dict[int, JobView] = {}
        self.cancelled: list[int] = []

    def put(self, number: int, status: str, made: int | None = None, resumable: bool = False) -> int:
        result = None if made is None else {"made": made}
        self.views[number] = job_view(number, "work", f"Run {number}", status, 0.5, "", result, resumable=resumable)
        return number

    def get(self, job_id: int) -> JobView:
        return self.views[job_id]

    def list(self, kind: str | None = None, limit: int = 20) -> tuple[JobView, ...]:
        return tuple(job for _, job in sorted(self.views.items(), reverse=True) if job.kind == kind)

    def cancel(self, job_id: int) -> None:
        self.cancelled.append(job_id)


class Run:
    """Long work whose jobs say in their results what they made."""

    kind, kept, parameter, most_listed, shows_parts = "work", "", "run", 100, False

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.runs: tuple[int, ...] = (3,)

    def list(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(id=number) for number in self.runs]

    def made(self, job: JobView) -> int:
        assert job.result is not None
        return int(str(job.result["made"]))

    def resume(self, number: int) -> int:
        return number + 1


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def run(jobs: Jobs) -> Run:
    return Run(jobs)


def watching(run: Run, begin: Callable[[str], int] | None = None, resumable: bool = True) -> JobWatch:
    begins = begin or (lambda title: run.jobs.put(9, "queued"))
    return JobWatch(run, begins, run.resume if resumable else None)  # type: ignore[arg-type]


def shows_work(seen: list[object]) -> tuple[bool, bool]:
    """Whether the timer ticks and the button to cancel is there."""
    timer, cancel = seen[TIMER], seen[CANCEL]
    assert isinstance(timer, gr.Timer)
    assert isinstance(cancel, gr.Button)
    return timer.active, bool(cancel.visible)


def test_a_look_follows_what_is_at_work_and_shows_what_has_ended(jobs, run) -> None:
    busy, idle = (True, True), (False, False)
    cases = (
        # The followed job's status and what it made, a job behind it; what is followed and shown then.
        ("queued", None, None, 4, 1, busy),
        ("running", None, None, 4, 1, busy),
        ("done", 7, None, None, 7, idle),
        ("failed", None, None, None, 1, idle),
        ("cancelled", 7, None, None, 1, idle),
        ("done", 7, "queued", 5, 7, busy),
    )
    for status, made, behind, followed, shown, work in cases:
        jobs.views.clear()
        if behind is not None:
            jobs.put(5, behind)
        seen = watching(run).poll(jobs.put(4, status, made=made), 1)
        assert (seen[FOLLOWED], seen[SHOWN], shows_work(seen)) == (followed, shown, work), status
    run.shows_parts = True
    assert watching(run).poll(jobs.put(4, "cancelled", made=7), 1)[SHOWN] == 7


def test_only_jobs_that_ended_early_and_can_go_on_are_offered_to_be_resumed(jobs, run) -> None:
    seen = watching(run).poll(jobs.put(4, "interrupted", resumable=True), 1)
    assert 'data-do="resume" data-id="4"' in str(seen[UNFINISHED])
    jobs.put(4, "done", made=7, resumable=True)
    assert "data-id" not in str(watching(run).poll(4, 1)[UNFINISHED])


def test_a_page_that_is_opened_again_finds_the_visitors_own_job_of_its_kind_at_work(jobs, run) -> None:
    for changes, followed in (({}, 5), ({"kind": "other"}, None), ({"own": False}, None)):
        jobs.put(5, "running")
        jobs.views[5] = replace(jobs.views[5], **changes)
        seen = watching(run).opened(SimpleNamespace(query_params={}))
        assert (seen[FOLLOWED], seen[SHOWN], shows_work(seen)[0]) == (followed, 3, followed is not None)


def test_a_page_shows_the_run_that_its_address_names_and_else_the_newest(jobs, run) -> None:
    jobs.put(8, "done", made=2)
    run.runs = (3, 2)
    for query, shown in (({}, 3), ({"run": "2"}, 2), ({"run": "9"}, 3), ({"run": "x"}, 3), ({"job": "8"}, 2)):
        assert watching(run).opened(SimpleNamespace(query_params=query))[SHOWN] == shown, query


def test_beginning_and_resuming_follow_the_new_job(jobs, run) -> None:
    jobs.put(5, "running")
    watch = watching(run)
    assert watch.begin(1, "a title")[FOLLOWED] == 9
    assert watch.resume(SimpleNamespace(id="4"), 1)[FOLLOWED] == 5


def test_only_a_followed_job_is_asked_to_stop_and_it_once(jobs, run) -> None:
    watch = watching(run)
    watch.cancel(None)
    watch.cancel(4)
    assert jobs.cancelled == [4]


def test_a_refused_job_becomes_one_shown_sentence(jobs, run) -> None:
    def refuse(title: str) -> int:
        raise ServiceError("No set is chosen: upload one.")

    with pytest.raises(gr.Error, match="No set is chosen: upload one"):
        watching(run, refuse).begin(None, "a title")


@pytest.mark.parametrize("resumable", [True, False])
def test_each_control_gets_as_many_values_as_a_look_gives(jobs, run, resumable) -> None:
    jobs.put(4, "running")
    with gr.Blocks() as page:
        title = gr.Textbox()
        part = job_part(*run_buttons(), resumable)
        wire_job(page, watching(run, resumable=resumable), part, [title])
    looks = [made for made in page.fns.values() if made.outputs]
    # A page that resumes nothing has neither the list of what is unfinished nor its event.
    assert len(looks) == (4 if resumable else 3)
    given = watching(run, resumable=resumable).poll(4, None)
    assert {len(look.outputs) for look in looks} == {len(given)}
