"""Forwards that several threads share, against each rollout alone."""

import functools
import threading
import weakref
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from coft_core.errors import InvalidInputError, RolloutClosedError
from coft_core.model.branches import BranchBatch, BranchSpec, joint_logits
from coft_core.model.group import BranchGroup
from coft_core.model.joint import JointForwards
from coft_core.model.memory import Sharing
from tests.coft_core.model.architectures import JOINING, random_model
from tests.coft_core.model.test_memory import CHAIN, TOLERANCE, UNEVEN, assert_rows, branches, moved, tokens, uncached

build = functools.cache(random_model)
SECONDS = 60


class Gate:
    """A processor that stays busy until it is opened, so that requests can be collected before a forward."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()
        self.opened.set()
        self.place = threading.Lock()

    @contextmanager
    def __call__(self):
        with self.place:
            self.entered.set()
            assert self.opened.wait(SECONDS)
            yield

    def close(self):
        self.entered.clear()
        self.opened.clear()


class Asker(threading.Thread):
    """Asks for a batch's logits and keeps what came of it."""

    def __init__(self, forwards, batch, hooks=()):
        super().__init__(daemon=True)
        self.ask = lambda: forwards.followed(batch, hooks)[0]
        self.logits = self.error = None
        self.start()

    def run(self):
        try:
            self.logits = self.ask()
        except (Exception, SystemExit) as error:
            self.error = error


def ask_together(forwards, gate, batches):
    """All ask while the processor is busy, in the order of the list."""
    gate.close()
    askers = [Asker(forwards, batches[0])]
    assert gate.entered.wait(SECONDS)
    for batch in batches[1:]:
        askers.append(Asker(forwards, batch))
        wait_until(lambda: forwards.waiting == len(askers))
    gate.opened.set()
    for asker in askers:
        asker.join(SECONDS)
        assert not asker.is_alive()
    return askers


def wait_until(condition):
    for _ in range(SECONDS * 1000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not happen")


def test_one_forward_over_many_batches_gives_each_its_own_logits():
    for name in JOINING:
        model = build(name)
        prompts = [branches(40, 30, 2), UNEVEN, [tokens(8, 70)], branches(90, 80, 3)]
        sharing = [Sharing(1 << 40, None), Sharing(1, None), Sharing(1, 1), Sharing(1, 1)]
        chains = [CHAIN[:3], CHAIN[:1], CHAIN[:5], CHAIN]
        batches = [
            moved(BranchBatch(model, rows, sharing=own), chain)
            for rows, own, chain in zip(prompts, sharing, chains, strict=True)
        ]
        for step in range(3):
            for batch, rows, chain, logits in zip(batches, prompts, chains, joint_logits(batches), strict=True):
                assert_rows(model, logits, [[*row, *chain, *CHAIN[:step]] for row in rows])
                batch.append(torch.full((batch.row_count,), CHAIN[step]))


def test_prompts_and_closed_batches_are_not_joined():
    model = build("llama")
    fresh, stepped, closed = (BranchBatch(model, UNEVEN) for _ in range(3))
    moved(stepped, CHAIN[:1])
    moved(closed, CHAIN[:1]).close()
    assert [batch.may_join for batch in (fresh, stepped, closed)] == [False, True, False]
    for bad in (fresh, closed):
        with pytest.raises(InvalidInputError, match="cannot share"):
            joint_logits([stepped, bad])
    with pytest.raises(InvalidInputError, match="cannot share"):
        joint_logits([stepped, moved(BranchBatch(build("gpt2"), UNEVEN), CHAIN[:1])])


def test_models_that_cannot_join_are_served_one_by_one():
    model = build("mistral sliding")
    gate = Gate()
    forwards = JointForwards(gate)
    batches = [moved(BranchBatch(model, UNEVEN), CHAIN[:1]) for _ in range(3)]
    for asker in ask_together(forwards, gate, batches):
        assert_rows(model, asker.logits, [[*row, CHAIN[0]] for row in UNEVEN])
    assert (forwards.forwards, forwards.served) == (3, 3)


def test_those_who_wait_are_served_by_one_forward():
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate)
    batches = [moved(BranchBatch(model, [tokens(n, 5 * n)]), CHAIN[:2]) for n in range(1, 7)]
    for n, asker in enumerate(ask_together(forwards, gate, batches), start=1):
        assert_rows(model, asker.logits, [[*tokens(n, 5 * n), *CHAIN[:2]]])
    assert (forwards.forwards, forwards.served) == (1, 6)


def test_a_forward_has_no_more_rows_than_allowed_and_the_first_to_ask_are_in_it(monkeypatch):
    model, gate = build("llama"), Gate()
    forwards, taken = JointForwards(gate, most_rows=4), []
    monkeypatch.setattr("coft_core.model.joint.joint_logits", lambda own: taken.append(own) or joint_logits(own))
    batches = [moved(BranchBatch(model, branches(20, 10, 2)), CHAIN[:1]) for _ in range(5)]
    askers = ask_together(forwards, gate, batches)
    assert all(asker.logits is not None for asker in askers)
    assert taken == [batches[:2], batches[2:4]]
    assert forwards.forwards == 3


def test_an_error_of_one_leaves_the_others_their_step():
    """Its keys cannot be written: the joint forward fails, and alone it fails again."""
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate)
    batches = [moved(BranchBatch(model, [tokens(n, 5 * n)]), CHAIN[:2]) for n in range(1, 5)]
    batches[1]._memory._slots.write = lambda *_, **__: 1 / 0
    askers = ask_together(forwards, gate, batches)
    assert isinstance(askers[1].error, ZeroDivisionError)
    for n in (1, 3, 4):
        assert askers[n - 1].error is None
        assert_rows(model, askers[n - 1].logits, [[*tokens(n, 5 * n), *CHAIN[:2]]])
        batches[n - 1].append(torch.tensor([CHAIN[2]]))
        assert_rows(model, forwards.followed(batches[n - 1])[0], [[*tokens(n, 5 * n), *CHAIN[:3]]])


def test_a_closed_batch_is_told_so_and_nobody_else_notices():
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate)
    batches = [moved(BranchBatch(model, UNEVEN), CHAIN[:1]) for _ in range(3)]
    batches[1].close()
    askers = ask_together(forwards, gate, batches)
    assert isinstance(askers[1].error, RolloutClosedError)
    assert askers[0].logits is not None
    assert askers[2].logits is not None


def test_hooks_are_on_for_their_own_batch_alone():
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate)
    rows = [[*row, *CHAIN[:1]] for row in UNEVEN]
    hooked, plain = (moved(BranchBatch(model, UNEVEN), CHAIN[:1]) for _ in range(2))

    def upside_down(module):
        return module.lm_head.register_forward_hook(lambda _, __, output: -output)

    gate.close()
    first = Asker(forwards, hooked, (upside_down,))
    assert gate.entered.wait(SECONDS)
    second = Asker(forwards, plain)
    wait_until(lambda: forwards.waiting == 2)
    gate.opened.set()
    first.join(SECONDS)
    second.join(SECONDS)
    assert_rows(model, -first.logits, rows)
    assert_rows(model, second.logits, rows)
    assert forwards.forwards == 2


def test_an_interrupted_leader_leaves_the_others_to_the_next():
    model = build("llama")
    batches = [moved(BranchBatch(model, [tokens(n, 5 * n)]), CHAIN[:1]) for n in (1, 2)]
    entered, release = threading.Event(), threading.Event()

    @contextmanager
    def interrupted_once():
        if not entered.is_set():
            entered.set()
            assert release.wait(SECONDS)
            raise SystemExit
        yield

    forwards = JointForwards(interrupted_once)
    leader = Asker(forwards, batches[0])
    assert entered.wait(SECONDS)
    follower = Asker(forwards, batches[1])
    wait_until(lambda: forwards.waiting == 2)
    release.set()
    follower.join(SECONDS)
    leader.join(SECONDS)
    assert isinstance(leader.error, SystemExit)
    assert_rows(model, follower.logits, [[*tokens(2, 10), CHAIN[0]]])
    assert forwards.waiting == 0


def test_what_a_batch_waited_for_others_is_told_apart_from_its_forward(monkeypatch):
    # The prompt: when it asks, when its forward is looked for and begins; the step: when it ends too.
    clock = iter([10.0, 10.0, 17.5, 100.0, 100.0, 100.0, 100.5])
    monkeypatch.setattr("coft_core.model.joint.perf_counter", lambda: next(clock))
    batch, forwards = BranchBatch(build("llama"), UNEVEN), JointForwards()
    forwards.followed(batch)[0]
    assert batch.waited == 7.5
    forwards.followed(batch)[0]
    assert batch.waited == 0.0


def test_long_work_gets_its_turn_between_two_forwards():
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate)
    with forwards.exclusive():
        asker = Asker(forwards, moved(BranchBatch(model, UNEVEN), CHAIN[:1]))
        wait_until(lambda: forwards.waiting == 1)
        assert forwards.forwards == 0
    asker.join(SECONDS)


def test_branches_of_two_models_and_hooks_go_through_the_same_forwards():
    forwards = JointForwards()
    models = {"base": build("llama"), "expert": build("qwen2")}
    specs = [BranchSpec("a", tuple(UNEVEN[0])), BranchSpec("b", tuple(UNEVEN[1]), model="expert")]
    group = BranchGroup(models, specs, forwards)
    fork = group.fork(0)
    for each in (group, fork):
        logits = each.logits()
        torch.testing.assert_close(logits[0], uncached(models["base"], UNEVEN[0]), atol=TOLERANCE, rtol=1e-5)
        torch.testing.assert_close(logits[1], uncached(models["expert"], UNEVEN[1]), atol=TOLERANCE, rtol=1e-5)
    assert forwards.served == 4


def test_the_tensors_of_a_failed_forward_are_let_go_of_before_the_next_one(monkeypatch):
    """Memory that ran out for one must be there for those who wait, although the error is still to be raised."""
    held = []

    def fail(batch):
        activations = torch.ones(3)
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError(f"no room beside {len(activations)} numbers")

    monkeypatch.setattr(BranchBatch, "opened", lambda batch: SimpleNamespace(logits=lambda: fail(batch)))
    batch = BranchBatch(random_model("llama"), branches())
    with pytest.raises(torch.OutOfMemoryError, match="3 numbers"):
        JointForwards().followed(batch)
    assert [activations() for activations in held] == [None]
