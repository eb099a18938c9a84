"""How much key-value memory live rollouts may hold, and what becomes of those that must go."""

import threading

import pytest

import coft_core as cc
from app.bootstrap import services
from app.services.rollout_pool import MEGABYTE, RolloutPool
from app.services.views import AuditSettings, Span, StartAudit
from coft_core.engine.branches import BranchBatch, joint_logits
from coft_core.engine.fake import tiny_model
from coft_core.engine.joint import JointForwards
from tests.conftest import load_tiny

SETTINGS = AuditSettings(model="tiny", max_new_tokens=6, top_p=1.0)
PROMPTS = [f"The nurse said {'very ' * n}he would come" for n in range(5)]
SECONDS = 120


class Sized:
    """A rollout that does nothing but hold memory."""

    def __init__(self, megabytes):
        self.memory_size, self.closed, self.steps = megabytes * MEGABYTE, False, ()

    def close(self):
        self.closed = True


def spans_of(prompt):
    at = prompt.index(" he ") + 1
    return (Span(at, at + 2, "gender"),)


def start(wired, prompt):
    return wired.audits.start(StartAudit(prompt, SETTINGS, spans_of(prompt))).session_id


def chain(wired, session_id):
    return [step.token_id for step in wired.audits.view(session_id).steps]


def run_all(wired, sessions):
    """Every session in a thread of its own."""
    errors = []

    def run(session_id):
        try:
            list(wired.audits.run(session_id))
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
        prepared = cc.plan(model, prompt, policy, spans_of(prompt), seed=SETTINGS.seed, max_new_tokens=6)
        rollout = cc.Rollout(prepared)
        while rollout.finished is None:
            rollout.step()
        found.append([step.token_id for step in rollout.steps])
    return found


def test_the_one_unused_for_longest_goes_first_and_only_as_far_as_it_takes():
    pool = RolloutPool(capacity=10, budget_mb=10)
    rollouts = {name: Sized(3) for name in range(3)}
    for name, rollout in rollouts.items():
        pool.put(name, rollout)
    pool.put(0, pool.take(0))
    with pool.room_for(4 * MEGABYTE):
        assert [rollouts[name].closed for name in range(3)] == [False, True, False]
        assert pool.size == 10 * MEGABYTE
    assert pool.size == 6 * MEGABYTE
    assert pool.take(1) is None


def test_what_is_in_use_is_never_closed_and_whoever_finds_no_room_waits_for_it():
    pool, order = RolloutPool(capacity=10, budget_mb=10), []
    entered = threading.Event()

    def second():
        entered.set()
        with pool.room_for(6 * MEGABYTE):
            order.append("second")

    with pool.room_for(6 * MEGABYTE):
        thread = threading.Thread(target=second, daemon=True)
        thread.start()
        assert entered.wait(SECONDS)
        order.append("first")
    thread.join(SECONDS)
    assert order == ["first", "second"]
    assert pool.size == 0


def test_a_small_one_does_not_overtake_a_large_one_that_asked_before_it():
    pool, order = RolloutPool(capacity=10, budget_mb=10), []

    def ask(name, megabytes):
        with pool.room_for(megabytes * MEGABYTE):
            order.append(name)

    with pool.room_for(6 * MEGABYTE):
        threads = []
        for name, megabytes in (("large", 9), ("small", 1)):
            threads.append(threading.Thread(target=ask, args=(name, megabytes), daemon=True))
            threads[-1].start()
            while len(pool._queue) < len(threads):
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join(SECONDS)
    assert order == ["large", "small"]


def test_one_that_needs_more_than_the_budget_runs_alone():
    pool = RolloutPool(capacity=10, budget_mb=10)
    idle = Sized(5)
    pool.put(1, idle)
    with pool.room_for(50 * MEGABYTE):
        assert idle.closed


def test_a_wait_that_is_interrupted_leaves_the_room_to_others(monkeypatch):
    pool = RolloutPool(capacity=10, budget_mb=10)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool._changed, "wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt), pool.room_for(MEGABYTE):
            pass
    with pool.room_for(MEGABYTE):
        assert pool.size == MEGABYTE
    assert pool.size == 0


def test_five_reviewers_who_step_at_once_get_the_chains_that_they_get_alone(wired, alone):
    sessions = [start(wired, prompt) for prompt in PROMPTS]
    assert run_all(wired, sessions) == []
    assert [chain(wired, session_id) for session_id in sessions] == alone


def test_sessions_that_drive_each_other_out_of_memory_end_in_the_same_chains(settings, alone, monkeypatch):
    """Room for one session at a time: each step rebuilds the rollout from its stored tokens."""
    monkeypatch.setattr("app.services.rollout_pool.MEGABYTE", 1 << 10)
    small = settings.model_copy(update={"kv_memory_mb": 80, "database_url": settings.database_url + ".small"})
    with services(small, loader=load_tiny) as wired:
        sessions = [start(wired, prompt) for prompt in PROMPTS[:3]]
        for _ in range(SETTINGS.max_new_tokens + 1):
            for session_id in sessions:
                wired.audits.step(session_id)
        assert wired.audits._rollouts._pool.size <= 80 << 10
        assert [chain(wired, session_id) for session_id in sessions] == alone[:3]


def test_many_sessions_at_once_within_a_small_budget_end_in_the_same_chains(settings, alone, monkeypatch):
    monkeypatch.setattr("app.services.rollout_pool.MEGABYTE", 1 << 10)
    small = settings.model_copy(update={"kv_memory_mb": 150, "database_url": settings.database_url + ".small"})
    with services(small, loader=load_tiny) as wired:
        sessions = [start(wired, prompt) for prompt in PROMPTS]
        assert run_all(wired, sessions) == []
        assert [chain(wired, session_id) for session_id in sessions] == alone


def test_an_error_in_one_session_loses_no_step_of_another(wired, alone, monkeypatch):
    """One session's forwards fail from its third step on, whether joint or alone."""
    sessions = [start(wired, prompt) for prompt in PROMPTS]
    length = len(PROMPTS[2])
    original = BranchBatch.logits

    def guilty(batch):
        return batch._tokens.longest == length and batch.generated >= 2

    def fail_alone(batch):
        return 1 / 0 if guilty(batch) else original(batch)

    def fail_together(batches):
        return 1 / 0 if any(guilty(batch) for batch in batches) else joint_logits(batches)

    monkeypatch.setattr(BranchBatch, "logits", fail_alone)
    monkeypatch.setattr("coft_core.engine.joint.joint_logits", fail_together)
    errors = run_all(wired, sessions)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    chains = [chain(wired, session_id) for session_id in sessions]
    assert chains[2] == alone[2][:2]
    assert chains[:2] + chains[3:] == alone[:2] + alone[3:]
    monkeypatch.undo()
    list(wired.audits.run(sessions[2]))
    assert chain(wired, sessions[2]) == alone[2]


def test_steps_of_sessions_that_wait_for_long_work_share_a_forward(wired):
    sessions = [start(wired, prompt) for prompt in PROMPTS[:4]]
    for session_id in sessions:
        wired.audits.step(session_id)
    host = wired.audits._host
    forwards: JointForwards = host.forwards
    before, served = forwards.forwards, forwards.served
    with host.turn():
        threads = [threading.Thread(target=wired.audits.step, args=(one,), daemon=True) for one in sessions]
        for thread in threads:
            thread.start()
        while forwards.waiting < 4:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join(SECONDS)
    assert forwards.served - served == 4
    assert forwards.forwards - before == 1
