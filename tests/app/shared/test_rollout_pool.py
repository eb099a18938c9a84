"""Key-value memory of live work: who holds it, who waits for it, and what becomes of work that runs out of it."""

import threading
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
import torch

import coft_core as cc
from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.hosting.memory import MEGABYTE, DeviceMemory, MemoryBudget, Turns
from app.hosting.model_host import ModelHost
from app.hosting.rollouts import RolloutPool
from app.jobs.service import FOR_MEMORY, JobContext, JobService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.swap.service import SwapService
from app.swap.types import SwapRequest
from coft_core.errors import DeviceMemoryError
from coft_core.model.branches import BranchBatch
from coft_core.model.fake import tiny_model
from coft_core.model.joint import JointForwards
from coft_core.model.memory import SlotRows
from coft_core.model.slots import Slots
from coft_core.types import Span
from tests.conftest import load_tiny, prompt_set_csv

SETTINGS = AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0)
PROMPTS = [f"The nurse said {'very ' * n}he would come" for n in range(5)]
SECONDS = 120


class Sized:
    """A rollout that does nothing but hold memory."""

    def __init__(self, megabytes):
        self.memory_size = self.memory_size_next = megabytes * MEGABYTE
        self.closed, self.steps = False, ()

    def close(self):
        self.closed = True


def spans_of(prompt):
    at = prompt.index(" he ") + 1
    return (Span(at, at + 2, "gender"),)


def start(wired, prompt):
    return wired[AuditService].start(StartAudit(prompt, SETTINGS, spans_of(prompt))).session_id


def chain(wired, session_id):
    return [step.token_id for step in wired[AuditService].view(session_id).steps]


def run_all(wired, sessions):
    """Every session in a thread of its own."""
    errors = []

    def run(session_id):
        try:
            list(wired[AuditService].run(session_id))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(session_id,), daemon=True) for session_id in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    return errors


@pytest.fixture(scope="module")
def alone():
    """The chain of each prompt, decoded when nobody else is there."""
    model, found = tiny_model(), []
    for prompt in PROMPTS:
        policy = cc.CoftPolicy(lam=SETTINGS.lam, top_p=1.0)
        prepared = cc.plan(model, prompt, policy, spans_of(prompt), seed=SETTINGS.seed, max_new_tokens=4)
        rollout = cc.Rollout(prepared)
        while rollout.finished is None:
            rollout.step()
        found.append([step.token_id for step in rollout.steps])
    return found


def use(pool, key, build, work, **how):
    """Do something with a rollout of the pool, once more where memory ran out."""
    for attempt in pool.memory.attempts():
        with attempt, pool.taken(key, build, **how) as rollout:
            result = work(rollout)
    return result


@pytest.fixture
def pool():
    memory = DeviceMemory(Turns(), MemoryBudget(10))
    pool = RolloutPool(capacity=10, memory=memory)
    pool.memory = memory
    return pool


def test_the_one_unused_for_longest_goes_first_and_only_as_far_as_it_takes(pool):
    rollouts = {name: Sized(3) for name in range(3)}
    for name, rollout in rollouts.items():
        pool.put(name, rollout)
    use(pool, 0, list, lambda rollout: rollout.closed)
    use(pool, 3, lambda: Sized(4), lambda new: [rollouts[name].closed for name in range(3)])
    assert [rollouts[name].closed for name in range(3)] == [False, True, False]


def test_what_is_in_use_is_never_closed_and_its_forks_are_counted_with_it(pool):
    used, idle = Sized(3), Sized(1)
    pool.put("idle", idle)

    def work(rollout):
        other = threading.Thread(target=use, args=(pool, "other", lambda: Sized(4), lambda _: None), daemon=True)
        other.start()
        other.join(SECONDS)
        assert not other.is_alive()
        return pool.memory.budget.size - pool.idle_size

    assert use(pool, "used", lambda: used, work, copies=1) == 6 << 20
    assert (used.closed, idle.closed) == (False, True)


def asked_while_all_is_in_use(pool, key, build, work):
    """A thread that asks for a rollout while somebody else has the whole budget, once it waits."""
    begun = threading.Event()

    def waiting(_):
        begun.set()

    asking = threading.Thread(target=use, args=(pool, key, build, work), kwargs={"waiting": waiting}, daemon=True)
    asking.start()
    assert begun.wait(SECONDS)
    return asking


def test_what_waits_for_its_memory_stays_counted_and_is_not_closed_for_itself(pool):
    budget, waits, seen = pool.memory.budget, Sized(4), []
    with budget.room(6 * MEGABYTE):
        pool.put("waits", waits)
        waits.memory_size_next = 5 * MEGABYTE
        asking = asked_while_all_is_in_use(pool, "waits", list, seen.append)
        assert budget.size == 10 * MEGABYTE
    asking.join(SECONDS)
    assert seen == [waits]
    assert not waits.closed


def test_what_waits_for_its_memory_may_be_closed_for_others_and_is_built_again(pool):
    waits, anew, seen = Sized(4), Sized(4), []
    with pool.memory.budget.room(7 * MEGABYTE):
        pool.put("waits", waits)
        asking = asked_while_all_is_in_use(pool, "waits", lambda: anew, seen.append)
        pool.memory.budget.close_idle()
    asking.join(SECONDS)
    assert seen == [anew]
    assert waits.closed


def test_after_an_error_a_rollout_is_closed_and_built_again(pool):
    first, second = Sized(1), Sized(1)
    pool.put("a", first)
    with pytest.raises(ZeroDivisionError):
        use(pool, "a", lambda: second, lambda rollout: 1 / 0)
    assert first.closed
    assert use(pool, "a", lambda: second, lambda rollout: rollout) is second
    idle, third = Sized(1), Sized(1)
    pool.put("idle", idle)

    def work(rollout):
        if rollout is second:
            raise torch.OutOfMemoryError
        return rollout

    # Where memory ran out everything idle is closed, and the work is done once more.
    assert use(pool, "a", lambda: third, work) is third
    assert (idle.closed, second.closed) == (True, True)


def test_sessions_that_drive_each_other_out_of_memory_end_in_the_same_chains(settings, alone, monkeypatch):
    """Room for one session at a time: each step rebuilds the rollout from its stored tokens."""
    monkeypatch.setattr("app.hosting.memory.MEGABYTE", 1 << 10)
    small = settings.model_copy(update={"kv_memory_mb": 80, "database_url": settings.database_url + ".small"})
    with services(small, loader=load_tiny) as wired:
        sessions = [start(wired, prompt) for prompt in PROMPTS[:3]]
        for _ in range(SETTINGS.max_new_tokens + 1):
            for session_id in sessions:
                wired[AuditService].step(session_id)
        assert wired[AuditService]._host.memory.budget.size <= 80 << 10
        assert [chain(wired, session_id) for session_id in sessions] == alone[:3]


def test_steps_of_sessions_that_wait_for_long_work_share_a_forward(wired):
    sessions = [start(wired, prompt) for prompt in PROMPTS[:4]]
    for session_id in sessions:
        wired[AuditService].step(session_id)
    host = wired[AuditService]._host
    forwards: JointForwards = host.forwards
    before, served = forwards.forwards, forwards.served
    with host.turn():
        threads = [threading.Thread(target=wired[AuditService].step, args=(one,), daemon=True) for one in sessions]
        for thread in threads:
            thread.start()
        while forwards.waiting < 4:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join(SECONDS)
    assert forwards.served - served == 4
    assert forwards.forwards - before == 1


def test_a_model_that_makes_room_for_another_leaves_memory_though_chains_ran_on_it(settings):
    modules = {}

    def load(name, **_):
        model = replace(tiny_model(), name=name)
        modules.setdefault(name, ref(model.module))
        return model

    with services(settings, loader=load) as wired:
        audits, host = wired[AuditService], wired[ModelHost]
        begun = audits.start(StartAudit(PROMPTS[0], replace(SETTINGS, model="first"), spans_of(PROMPTS[0])))
        audits.step(begun.session_id)
        for name in ("second", "third"):
            host.get(name)
        assert modules["first"]() is None
        assert modules["second"]() is host.get("second").module
        audits.step(begun.session_id)
        assert len(audits.view(begun.session_id).steps) == 2


def test_a_chain_that_is_in_use_when_its_model_leaves_is_not_kept_afterwards(pool):
    model = tiny_model()
    prepared = cc.plan(model, PROMPTS[0], cc.CoftPolicy(), spans_of(PROMPTS[0]), max_new_tokens=2)
    use(pool, "chain", lambda: cc.Rollout(prepared), lambda _: pool.drop_of(model))
    assert pool.steps("chain") is None


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
    other, session_id = start(wired, PROMPTS[0]), start(wired, PROMPTS[0])
    wired[AuditService].step(other)
    wired[AuditService].step(session_id)
    pool = wired[AuditService]._live._pool
    assert len(pool._rollouts) == 2
    failing = Exhausted(SlotRows.logits, at={0})
    monkeypatch.setattr(SlotRows, "logits", failing.bound())
    assert wired[AuditService].step(session_id).token_id == alone[0][1]
    assert list(pool._rollouts) == [wired[AuditService].view(session_id).branch_id]
    list(wired[AuditService].run(session_id))
    list(wired[AuditService].run(other))
    assert chain(wired, session_id) == chain(wired, other) == alone[0]


@pytest.mark.slow
def test_a_fork_that_fails_twice_leaves_no_branch(wired, alone, monkeypatch):
    session_id = start(wired, PROMPTS[0])
    list(wired[AuditService].run(session_id))
    view = wired[AuditService].view(session_id)
    forced = next(row.token_id for row in view.steps[2].candidates if row.token_id != alone[0][2])
    with monkeypatch.context() as patch:
        patch.setattr(SlotRows, "logits", Exhausted(SlotRows.logits, at=range(100)).bound())
        with pytest.raises(DeviceMemoryError):
            wired[AuditService].fork(session_id, view.branch_id, 2, forced)
    assert len(wired[AuditService].view(session_id).branches) == 1
    with monkeypatch.context() as patch:
        patch.setattr(BranchBatch, "fork", Exhausted(BranchBatch.fork, at={0}).bound())
        made = wired[AuditService].fork(session_id, view.branch_id, 2, forced)
    assert [step.token_id for step in made.steps] == [*alone[0][:2], forced]


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
    monkeypatch.setattr("app.hosting.memory.MEGABYTE", 1 << 10)
    return settings.model_copy(update={"kv_memory_mb": kilobytes, "database_url": f"{settings.database_url}.small"})


def test_swaps_in_a_budget_for_one_chain_give_what_they_give_without_a_limit(wired, settings, monkeypatch):
    request = SwapRequest(
        PROMPTS[0], SETTINGS, spans_of(PROMPTS[0]), pronouns=("she",), max_new_tokens=4, answer_step=1
    )
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
