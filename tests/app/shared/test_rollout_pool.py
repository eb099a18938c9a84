"""How much key-value memory live rollouts may hold, and what becomes of those that must go."""

import threading
from dataclasses import replace
from weakref import ref

import pytest
import torch

import coft_core as cc
from app.audit.service import AuditService
from app.bootstrap import services
from app.shared.audits import AuditSettings, StartAudit
from app.shared.memory import MEGABYTE, DeviceMemory, MemoryBudget, Turns
from app.shared.model_host import ModelHost
from app.shared.rollouts import RolloutPool
from coft_core.model.fake import tiny_model
from coft_core.model.joint import JointForwards
from coft_core.types import Span
from tests.conftest import load_tiny

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
    monkeypatch.setattr("app.shared.memory.MEGABYTE", 1 << 10)
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
