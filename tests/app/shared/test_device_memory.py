"""Little memory: what waits for it says so, and what runs out of it is tried once more and leaves nothing half kept."""

import threading

import numpy as np
import pytest
import torch

import coft_core as cc
from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.jobs import FOR_MEMORY, JobContext, JobService
from app.swap.service import SwapService
from app.swap.types import SwapRequest
from coft_core.errors import DeviceMemoryError
from coft_core.model.branches import BranchBatch
from coft_core.model.fake import tiny_model
from coft_core.model.memory import SlotRows
from coft_core.model.slots import Slots
from coft_core.types import Span
from tests.conftest import load_tiny, prompt_set_csv

PROMPT = "The nurse said he would come"
SPANS = (Span(15, 17, "gender"),)
SETTINGS = AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0)
SECONDS = 120


def start(wired):
    return wired[AuditService].start(StartAudit(PROMPT, SETTINGS, SPANS)).session_id


def chain(wired, session_id, branch_id=None):
    return [step.token_id for step in wired[AuditService].view(session_id, branch_id).steps]


@pytest.fixture(scope="module")
def alone():
    policy = cc.CoftPolicy(lam=SETTINGS.lam, top_p=1.0)
    rollout = cc.Rollout(cc.plan(tiny_model(), PROMPT, policy, SPANS, seed=SETTINGS.seed, max_new_tokens=4))
    while rollout.finished is None:
        rollout.step()
    return [step.token_id for step in rollout.steps]


class Exhausted:
    """Stands for a method and lets memory run out at some of its calls, counted from 0."""

    def __init__(self, original, at):
        self.original, self.at, self.calls = original, at, 0

    def bound(self):
        def method(own, *arguments, **named):
            self.calls += 1
            if self.calls - 1 in self.at:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return self.original(own, *arguments, **named)

        return method


def test_a_step_is_tried_once_more_with_what_is_idle_closed(wired, alone, monkeypatch):
    other, session_id = start(wired), start(wired)
    wired[AuditService].step(other)
    wired[AuditService].step(session_id)
    pool = wired[AuditService]._live._pool
    assert len(pool._rollouts) == 2
    failing = Exhausted(SlotRows.logits, at={0})
    monkeypatch.setattr(SlotRows, "logits", failing.bound())
    assert wired[AuditService].step(session_id).token_id == alone[1]
    assert list(pool._rollouts) == [wired[AuditService].view(session_id).branch_id]
    list(wired[AuditService].run(session_id))
    list(wired[AuditService].run(other))
    assert chain(wired, session_id) == chain(wired, other) == alone


@pytest.mark.slow
def test_a_fork_that_fails_twice_leaves_no_branch(wired, alone, monkeypatch):
    session_id = start(wired)
    list(wired[AuditService].run(session_id))
    view = wired[AuditService].view(session_id)
    forced = next(row.token_id for row in view.steps[2].candidates if row.token_id != alone[2])
    with monkeypatch.context() as patch:
        patch.setattr(SlotRows, "logits", Exhausted(SlotRows.logits, at=range(100)).bound())
        with pytest.raises(DeviceMemoryError):
            wired[AuditService].fork(session_id, view.branch_id, 2, forced)
    assert len(wired[AuditService].view(session_id).branches) == 1
    with monkeypatch.context() as patch:
        patch.setattr(BranchBatch, "fork", Exhausted(BranchBatch.fork, at={0}).bound())
        made = wired[AuditService].fork(session_id, view.branch_id, 2, forced)
    assert [step.token_id for step in made.steps] == [*alone[:2], forced]


def test_memory_that_runs_out_while_rows_grow_leaves_rows_that_can_be_used_and_grown():
    def layers(slots, value):
        return [torch.full((2, 1, 1, 4), float(value + layer)) for layer in range(3)]

    slots = Slots(2, 512, torch.device("cpu"))
    slots.reserve(64)
    for place in range(64):
        for layer, states in enumerate(layers(slots, place)):
            slots.write(layer, states, -states)
        slots.advance(1)
    before = [(slots.read(layer, 64).keys.clone(), slots.read(layer, 64).values.clone()) for layer in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slots, "_allocated", Exhausted(Slots._allocated, at={3}).bound())
        with pytest.raises(torch.OutOfMemoryError):
            slots.reserve(65)
    # A captured graph, which knows a memory by its capacity, does not take it for the one that it was captured over.
    assert slots.capacity != 64
    slots.advance(-4)
    slots.advance(4)
    slots.reserve(65)
    for layer, (keys, values) in enumerate(before):
        assert torch.equal(slots.read(layer, 64).keys, keys)
        assert torch.equal(slots.read(layer, 64).values, values)
    assert slots.capacity == 128
    assert {tuple(layer.keys.shape) for layer in slots.layers} == {(2, 1, 128, 4)}


def small(settings, kilobytes, monkeypatch):
    """Settings with a budget in kilobytes and a store of its own."""
    monkeypatch.setattr("app.shared.memory.MEGABYTE", 1 << 10)
    return settings.model_copy(update={"kv_memory_mb": kilobytes, "database_url": f"{settings.database_url}.small"})


def test_swaps_in_a_budget_for_one_chain_give_what_they_give_without_a_limit(wired, settings, monkeypatch):
    request = SwapRequest(PROMPT, SETTINGS, SPANS, pronouns=("she",), max_new_tokens=4, answer_step=1)
    expected = wired[SwapService].compare(request)
    with services(small(settings, 40, monkeypatch), loader=load_tiny) as tight:
        found = tight[SwapService].compare(request)
        assert tight[SwapService]._host.memory.budget.size == 0
    for own, other in zip(found.outcomes, expected.outcomes, strict=True):
        assert [step.token_id for step in own.policy.steps] == [step.token_id for step in other.policy.steps]
        assert own.vanilla.text == other.vanilla.text
    for gap, other in zip(found.gaps, expected.gaps, strict=True):
        assert gap.distances == pytest.approx(other.distances, abs=1e-6)


@pytest.fixture
def told(monkeypatch):
    """Messages of jobs, and an event that is set when one of them waits for memory."""
    waits, messages, original = threading.Event(), [], JobContext.progress

    def progress(own, share, message=None):
        original(own, share, message)
        messages.append(own.state[1])
        if own.state[1].endswith(FOR_MEMORY):
            waits.set()

    monkeypatch.setattr(JobContext, "progress", progress)
    return waits, messages


def test_a_calibration_that_waits_for_memory_says_so_and_leaves_its_turn_to_others(
    settings, monkeypatch, tmp_path, told
):
    waits, messages = told
    path = tmp_path / "prompts.csv"
    path.write_text(prompt_set_csv(20))
    request = CalibrationRequest(
        name="c", model="tiny", alpha=0.3, source="rollout", max_new_tokens=3, max_iterations=1, accept_errors=True
    )
    with services(small(settings, 200, monkeypatch), loader=load_tiny) as wired:
        host, turns = wired[AuditService]._host, []

        def turn():
            with host.turn():
                turns.append(True)

        other = threading.Thread(target=turn, daemon=True)
        with host.memory.budget.room(190 << 10):
            job_id = wired[CalibrationService].submit(wired[CalibrationService].parse(path), request)
            assert waits.wait(SECONDS)
            other.start()
            other.join(SECONDS)
            assert turns == [True]
        assert wired[JobService].wait(job_id, SECONDS).status == "done"
    assert not messages[-1].endswith(FOR_MEMORY)


def test_a_job_that_waits_for_memory_can_be_cancelled(settings, monkeypatch, tmp_path, told):
    path = tmp_path / "prompts.csv"
    path.write_text(prompt_set_csv(20))
    request = CalibrationRequest(
        name="c", model="tiny", alpha=0.3, source="rollout", max_new_tokens=4, accept_errors=True
    )
    with services(small(settings, 200, monkeypatch), loader=load_tiny) as wired:
        budget = wired[AuditService]._host.memory.budget
        with budget.room(190 << 10):
            job_id = wired[CalibrationService].submit(wired[CalibrationService].parse(path), request)
            assert told[0].wait(SECONDS)
            wired[JobService].cancel(job_id)
            assert wired[JobService].wait(job_id, SECONDS).status == "cancelled"
        assert budget.size == 0


class Recording:
    """Room for some bytes a batch, noting what was asked for."""

    def __init__(self, most):
        self.most, self.sizes = most, []

    def run(self, size, work):
        self.sizes.append(size)
        return work()


EXAMPLES = [
    cc.Example(f"The nurse number {'1' * n} said he", " came home late.", (Span(23 + n, 25 + n, "gender"),))
    for n in range(1, 9)
]


def calibrated(room, source):
    return cc.calibrate(
        tiny_model(), EXAMPLES, alpha=0.5, source=source, max_new_tokens=4, max_iterations=1, room=room, seed=3
    )


@pytest.mark.parametrize("source", ["reference", "rollout"])
def test_a_smaller_budget_makes_smaller_batches_and_the_same_calibration(source):
    ample, tight = Recording(None), Recording(None)
    expected = calibrated(ample, source)
    tight.most = max(ample.sizes) // 3
    found = calibrated(tight, source)
    assert len(tight.sizes) > len(ample.sizes)
    assert max(tight.sizes) <= tight.most
    assert np.array_equal(found.joint.values.contexts, expected.joint.values.contexts)
    assert found.joint.values.values == pytest.approx(expected.joint.values.values, abs=5e-5)


def test_a_budget_smaller_than_one_prompt_runs_prompts_one_at_a_time():
    room = Recording(1)
    found = calibrated(room, "rollout")
    assert len(room.sizes) == len(EXAMPLES)
    assert len(found.joint.values) > 0
