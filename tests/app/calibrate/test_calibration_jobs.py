"""Calibrations as jobs: what is done is kept, resumed exactly, and refused clearly where it cannot be."""

import json
from dataclasses import asdict, replace
from threading import Event

import numpy as np
import pytest

from app.bootstrap import services
from app.calibrate.run import SAVE_SECONDS, KeptLedger
from app.calibrate.service import CalibrationService, request_from_json
from app.jobs.service import JobService
from app.shared.audits import CalibrationRequest
from app.shared.errors import ServiceError
from coft_core.calibrate import chains
from coft_core.calibrate import true_tokens as scoring
from coft_core.errors import CoftError
from db.jobs import LedgersRepository
from db.prompt_sets import PromptSetsRepository
from db.types import StoreError
from tests.conftest import load_tiny, prompt_set_csv

REQUEST = CalibrationRequest(name="set", model="tiny")
LONG = 60.0
COUNT = 48
"""Prompts, in pairs that share a context."""


class Stop(Exception):  # noqa: N818 - no error of the program
    """Ends a calibration in the middle."""


@pytest.fixture
def prompts(wired, tmp_path):
    path = tmp_path / "set.csv"
    path.write_text(prompt_set_csv(COUNT))
    return wired[CalibrationService].parse(path)


@pytest.fixture
def small_batches(monkeypatch):
    """Few prompts a batch, so that a small prompt set has many."""
    monkeypatch.setattr(scoring, "TOKEN_BUDGET", 600)


def scored_prompts(monkeypatch, after=None, error=None):
    """Count the prompts that the model scores; after so many, raise."""
    counted = []
    score = scoring._batch_supports

    def count(scorer, model, items, *rest):
        if after is not None and len(counted) >= after:
            raise error
        counted.extend(items)
        return score(scorer, model, items, *rest)

    monkeypatch.setattr(scoring, "_batch_supports", count)
    return counted


def ledgers(wired):
    return LedgersRepository(wired[CalibrationService]._prompt_sets._database)


def interrupted(wired, payload):
    """The number of an interrupted job that was asked for this."""
    jobs = wired[CalibrationService]._jobs
    number = jobs.add("calibration", "set", payload).id
    jobs.mark_interrupted([number])
    return number


def stored(wired, job):
    return wired[CalibrationService].load(job.result["calibration_id"])


def same(first, second):
    """Whether two calibrations are equal but for the moment at which they were made."""
    return replace(first, created="") == replace(second, created="")


def test_a_failed_calibration_is_resumed_without_doing_anything_twice(wired, prompts, small_batches, monkeypatch):
    whole = wired[JobService].wait(wired[CalibrationService].submit(prompts, REQUEST))
    with monkeypatch.context() as patch:
        counted = scored_prompts(patch, after=COUNT // 2, error=Stop("the lights went out"))
        job_id = wired[CalibrationService].submit(prompts, REQUEST)
        failed = wired[JobService].wait(job_id)
    done = len(counted)
    assert COUNT // 2 <= done < COUNT
    assert (failed.status, failed.error, failed.resumable) == ("failed", "the lights went out", True)
    assert failed.message == f"references, {done} of {COUNT} prompts"
    assert ledgers(wired).load(job_id)
    with monkeypatch.context() as patch:
        counted = scored_prompts(patch)
        resumed = wired[JobService].wait(wired[CalibrationService].resume(job_id))
    assert resumed.status == "done"
    assert len(counted) == COUNT - done
    assert same(stored(wired, resumed), stored(wired, whole))
    # What is finished, and what was handed over, is kept no longer.
    assert ledgers(wired).load(resumed.id) is ledgers(wired).load(job_id) is None
    before = wired[JobService].get(job_id)
    assert (before.status, before.resumable, before.result) == ("failed", False, {"resumed_as": resumed.id})


def test_a_cancelled_calibration_stores_nothing_and_goes_on_in_another_process(
    wired, settings, prompts, small_batches, monkeypatch
):
    started = Event()
    score = scoring._batch_supports

    def cancel_soon(*arguments):
        found = score(*arguments)
        if not started.is_set():
            started.set()
            wired[JobService].cancel(wired[JobService].list()[0].id)
        return found

    before = wired[CalibrationService].list("tiny")
    with monkeypatch.context() as patch:
        patch.setattr(scoring, "_batch_supports", cancel_soon)
        job_id = wired[CalibrationService].submit(prompts, REQUEST)
        assert wired[JobService].wait(job_id, LONG).status == "cancelled"
    assert wired[CalibrationService].list("tiny") == before
    assert wired[JobService].get(job_id).resumable
    with services(settings, loader=load_tiny) as other:
        counted = scored_prompts(monkeypatch)
        job = other[JobService].wait(other[CalibrationService].resume(job_id), LONG)
        assert job.status == "done"
        assert 0 < len(counted) < COUNT


@pytest.mark.parametrize("layout", ["joint", pytest.param("factorized", marks=pytest.mark.slow)])
def test_rollouts_and_recorded_chains_are_resumed_exactly(wired, prompts, monkeypatch, layout):
    request = replace(REQUEST, mask_layout=layout, max_new_tokens=5, max_iterations=2)
    go_on = chains._continue
    for changes, stop_at in (({"source": "rollout"}, 5), ({"record_chains": True}, 3)):
        asked = replace(request, **changes)
        whole = wired[JobService].wait(wired[CalibrationService].submit(prompts, asked))
        batches = []

        def fail(*arguments, seen=batches, last=stop_at):
            seen.append(arguments)
            if len(seen) == last:
                raise Stop("stop")
            return go_on(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(chains, "_continue", fail)
            failed = wired[JobService].wait(wired[CalibrationService].submit(prompts, asked))
        assert (failed.status, failed.resumable) == ("failed", True)
        assert 0 < failed.progress < 1
        again = []
        with monkeypatch.context() as patch:
            patch.setattr(chains, "_continue", lambda *a, seen=again: (seen.append(a), go_on(*a))[1])
            resumed = wired[JobService].wait(wired[CalibrationService].resume(failed.id))
        assert resumed.status == "done", resumed.error
        assert same(stored(wired, resumed), stored(wired, whole))
        assert again


def test_a_job_without_its_prompt_set_is_not_resumed(wired):
    sets = PromptSetsRepository(wired[CalibrationService]._prompt_sets._database)
    prompts = sets.add("set", "a.csv", "d", []).id
    job_id = interrupted(wired, {"prompt_set_id": prompts, "request": asdict(REQUEST)})
    assert wired[JobService].get(job_id).resumable
    sets.delete(prompts)
    assert not wired[JobService].get(job_id).resumable
    with pytest.raises(ServiceError, match="prompt set of job 1"):
        wired[CalibrationService].resume(job_id)


def test_only_an_unfinished_calibration_that_nobody_resumed_is_resumed(wired, prompts, monkeypatch):
    entered, released = Event(), Event()
    score = scoring._batch_supports

    def wait(*arguments):
        entered.set()
        assert released.wait(LONG)
        return score(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "_batch_supports", wait)
        running = wired[CalibrationService].submit(prompts, REQUEST)
        assert entered.wait(LONG)
        assert not wired[JobService].get(running).resumable
        with pytest.raises(ServiceError, match="still at work"):
            wired[CalibrationService].resume(running)
        released.set()
        assert wired[JobService].wait(running, LONG).status == "done"
    with pytest.raises(ServiceError, match="is done"):
        wired[CalibrationService].resume(running)
    with monkeypatch.context() as patch:
        scored_prompts(patch, after=0, error=Stop("stop"))
        failed = wired[JobService].wait(wired[CalibrationService].submit(prompts, REQUEST)).id
    heir = wired[CalibrationService].resume(failed)
    with pytest.raises(ServiceError, match=f"job {heir}"):
        wired[CalibrationService].resume(failed)
    wired[JobService].wait(heir, LONG)
    other = wired[JobService].submit("sweep", "t", lambda _: 1 / 0)
    wired[JobService].wait(other)
    assert not wired[JobService].get(other).resumable
    with pytest.raises(ServiceError, match="is no calibration"):
        wired[CalibrationService].resume(other)
    with pytest.raises(StoreError, match="no job"):
        wired[CalibrationService].resume(404)


def test_a_payload_that_cannot_be_read_is_refused(wired):
    for payload in (
        {},
        {"prompt_set_id": 1, "request": {"name": "x", "model": "tiny", "brand_new": 1}},
        {"prompt_set_id": 1, "request": {"model": "tiny"}},
    ):
        with pytest.raises(ServiceError) as caught:
            wired[CalibrationService].resume(interrupted(wired, payload))
        assert "\n" not in str(caught.value)


def test_what_was_worked_out_for_other_inputs_is_refused(wired, prompts, small_batches, monkeypatch):
    with monkeypatch.context() as patch:
        scored_prompts(patch, after=COUNT // 2, error=Stop("stop"))
        job_id = wired[JobService].wait(wired[CalibrationService].submit(prompts, REQUEST)).id
    payload = wired[CalibrationService]._jobs.get(job_id).payload
    other = interrupted(wired, {**payload, "request": {**payload["request"], "lam": 0.1}})
    ledgers(wired).move(job_id, other)
    job = wired[JobService].wait(wired[CalibrationService].resume(other))
    assert job.status == "failed"
    assert "another model" in job.error


def test_a_request_comes_back_from_its_job_with_all_that_it_held():
    full = CalibrationRequest(
        name="all", masked_families=("gender", "race"), alpha_by_family=(("gender", 0.05), ("race", 0.05)),
        whitelist=("a", "b"), deployment=("one", "two"), mask_layout="factorized", rho=2.0, by_group=True,
    )  # fmt: skip
    assert request_from_json(json.loads(json.dumps(asdict(full)))) == full
    # One that was stored before bins could widen keeps even ones.
    stored = asdict(CalibrationRequest(name="old"))
    assert request_from_json(stored).bin_spacing == "finest"
    del stored["bin_spacing"]
    assert request_from_json(stored).bin_spacing == "even"


def test_a_ledger_is_saved_every_two_seconds_and_when_the_work_ends_early_and_a_damaged_one_is_refused(wired):
    job_id, set_id = interrupted(wired, {}), wired[CalibrationService]._prompt_sets.add("set", "a.csv", "d", []).id
    now = [0.0]
    saved = []

    class Counting(LedgersRepository):
        def save(self, *arguments):
            saved.append(now[0])
            super().save(*arguments)

    kept = Counting(wired[CalibrationService]._prompt_sets._database)
    ledger = KeptLedger(kept, job_id, set_id, lambda: now[0])
    stage = ledger.stage("calibration")
    stage.bind("key")
    for number in range(1, 100):
        now[0] += 0.1
        stage.put_many("reference", {number: {"support": np.zeros(number)}})
        ledger.save_if_due()
    assert len(saved) == 4
    ledger.__exit__(Stop, Stop(), None)
    assert len(saved) == 5
    assert saved[0] >= SAVE_SECONDS
    with KeptLedger(kept, job_id, set_id, lambda: now[0]) as again:
        assert len(again.stage("calibration").get_many("reference", range(1, 200))) == 99
    assert kept.load(job_id) is None
    kept.save(job_id, set_id, b"not a ledger")
    with pytest.raises(CoftError, match="damaged"):
        KeptLedger(kept, job_id, set_id)
