"""Batches that are cut off, cancelled or fail: nothing is run twice, and what is finished stays."""

import threading
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.batch.service import BatchService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.jobs.service import JobService
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.audits import StartAudit
from app.shared.errors import ServiceError
from coft_core.decode.loop import Rollout
from coft_core.errors import InvalidInputError
from db.audits import BatchPlace
from db.types import ConflictError
from tests.app.batch.small_batch import REQUEST, SETTINGS, parsed, run
from tests.conftest import load_tiny


class Crash(BaseException):
    """Stands for the death of the process: no error that a program could handle."""


def halt_after(audits, steps, error):
    """Make the audit service fail after some steps, as if the process had ended there."""
    original, left = audits.step, [steps]

    def step(*args, **kwargs):
        if left[0] == 0:
            raise error
        left[0] -= 1
        return original(*args, **kwargs)

    audits.step = step


def test_after_a_crash_a_cut_off_session_is_continued_and_nothing_is_run_twice(wired, settings, tmp_path):
    halt_after(wired[AuditService], 7, Crash("the lights went out"))
    batch_id = wired[BatchService].submit(parsed(wired, tmp_path), REQUEST)
    job = wired[JobService].wait(wired[BatchService].view(batch_id).job.id)
    assert job.status == "running", "nobody was left to say that it has ended"
    before = wired[BatchService].view(batch_id)
    shown = [(row.state, row.steps) for row in before.rows]
    assert shown == [("finished", 4), ("unfinished", 2), ("waiting", 0), ("waiting", 0)]
    assert before.notes[-1].startswith("3 rows are not finished")
    with services(settings, owns_store=True, loader=load_tiny) as restarted:
        assert restarted[BatchService].view(batch_id).resumable
        job = restarted[JobService].wait(restarted[BatchService].resume(batch_id))
        assert (job.status, job.message) == ("done", "4 of 4 prompts")
        after = restarted[BatchService].view(batch_id)
        assert [row.state for row in after.rows] == ["finished"] * 4
        assert [row.session_id for row in after.rows[:2]] == [row.session_id for row in before.rows[:2]]
        assert after.rows[1].text.startswith(before.rows[1].text)
        assert restarted[SessionLibrary].search(LibraryQuery()).total == 4
        with pytest.raises(ServiceError, match="nothing to resume"):
            restarted[BatchService].resume(batch_id)
    del wired[AuditService].step
    whole = run(wired, tmp_path)
    assert [row.text for row in wired[BatchService].view(whole).rows] == [row.text for row in after.rows]


def test_cancelling_keeps_what_is_finished_and_resuming_runs_the_rest(wired, tmp_path):
    reached, go = threading.Event(), threading.Event()
    original, left = wired[AuditService].step, [5]

    def step(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            reached.set()
            assert go.wait(60)
        return original(*args, **kwargs)

    wired[AuditService].step = step
    batch_id = wired[BatchService].submit(parsed(wired, tmp_path), REQUEST)
    assert reached.wait(60)
    view = wired[BatchService].view(batch_id)
    assert (view.job.status, view.resumable) == ("running", False)
    assert "of 4 prompts" in view.job.message
    with pytest.raises(ServiceError, match="running already"):
        wired[BatchService].resume(batch_id)
    with pytest.raises(ServiceError, match="cancel it first"):
        wired[BatchService].delete(batch_id)
    wired[BatchService].cancel(batch_id)
    go.set()
    assert wired[JobService].wait(view.job.id).status == "cancelled"
    stopped = wired[BatchService].view(batch_id)
    assert stopped.counts["finished"] == 1
    assert stopped.resumable
    assert not wired[AuditService].running(stopped.rows[1].session_id)
    assert wired[JobService].wait(wired[BatchService].resume(batch_id)).status == "done"
    assert wired[BatchService].view(batch_id).counts == {"finished": 4}
    # A session that is deleted afterwards is not made again.
    wired[SessionLibrary].delete([wired[BatchService].view(batch_id).rows[0].session_id])
    view = wired[BatchService].view(batch_id)
    assert (view.rows[0].state, view.rows[0].session_id, view.resumable) == ("deleted", None, False)
    with pytest.raises(ConflictError):
        wired[AuditService].start(StartAudit("He is a nurse", SETTINGS, batch=BatchPlace(batch_id, 2)))


@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        ("start", InvalidInputError("No luck with this one."), "No luck with this one."),
        ("step", RuntimeError("tensors of 3 and 4 columns"), "(RuntimeError: tensors of 3 and 4 columns)"),
    ],
)
def test_an_error_in_one_row_only_ends_that_row_and_it_is_tried_again(wired, tmp_path, monkeypatch, where, error, said):
    if where == "start":
        original = wired[AuditService].start

        def start(request):
            if request.prompt.startswith("She"):
                raise error
            return original(request)

        monkeypatch.setattr(wired[AuditService], "start", start)
    else:
        calls, original = [], Rollout.step

        def step(rollout):
            calls.append(rollout)
            if len(calls) == 6:
                raise error
            return original(rollout)

        monkeypatch.setattr(Rollout, "step", step)
    view = wired[BatchService].view(run(wired, tmp_path))
    assert [row.state for row in view.rows] == ["finished", "failed", "finished", "finished"]
    assert said in view.rows[1].error
    assert (view.job.message, view.job.result["failed"], view.resumable) == ("4 of 4 prompts, 1 failed", 1, True)
    monkeypatch.undo()
    wired[JobService].wait(wired[BatchService].resume(view.id))
    again = wired[BatchService].view(view.id)
    assert (again.counts, again.rows[1].error) == ({"finished": 4}, "")


@pytest.mark.slow
def test_each_row_says_that_its_calibration_is_gone_and_the_batch_goes_on(wired, tmp_path, calibrated):
    request = replace(REQUEST, settings=replace(SETTINGS, calibration_id=calibrated))
    gate = threading.Event()
    original = wired[AuditService].start

    def start(asked):
        assert gate.wait(60)
        return original(asked)

    wired[AuditService].start = start
    batch_id = wired[BatchService].submit(parsed(wired, tmp_path), request)
    wired[CalibrationService].delete(calibrated)
    gate.set()
    assert wired[JobService].wait(wired[BatchService].view(batch_id).job.id).status == "done"
    view = wired[BatchService].view(batch_id)
    assert view.counts == {"failed": 4}
    assert all("no calibration" in row.error for row in view.rows)
