"""Whom a joint forward waits for, and for how long."""

import gc
from types import SimpleNamespace

import pytest
import torch

from coft_core.model.branches import BranchBatch
from coft_core.model.joint import Gathering, JointForwards
from tests.coft_core.model.test_joint import SECONDS, Asker, Gate, ask_together, build, wait_until
from tests.coft_core.model.test_memory import CHAIN, UNEVEN, assert_rows, moved

MODULE = object()


class Batch:
    """Stands for a batch of a model."""

    def __init__(self, module=MODULE, may_join=True):
        self.model, self.may_join = SimpleNamespace(module=module), may_join


def served(*batches, patience=1.0):
    """A gathering after a forward of these batches from second 10 to 12."""
    gathering = Gathering(patience)
    gathering.served(batches, 10.0, 12.0)
    return gathering


def test_waiting_pays_for_as_long_as_the_forward_took_for_those_of_the_newest_one():
    assert served(Batch()).left(13.5) == pytest.approx(0.5)
    assert served(Batch()).left(14.5) < 0
    assert served(Batch(), patience=0.25).left(12.25) == pytest.approx(0.25)
    assert Gathering().left(5.0) < 0
    first, second, other = Batch(), Batch(), Batch()
    gathering = served(first, second)
    assert not gathering.complete([first], MODULE)
    assert not gathering.complete([first, other], MODULE)
    assert gathering.complete([second, first], MODULE)
    gathering.served([other], 20.0, 21.0)
    assert gathering.complete([other], MODULE)
    mine = Batch()
    assert served(mine, Batch(module=object()), Batch(may_join=False)).complete([mine], MODULE)
    quick, slow = Batch(), Batch()
    gathering = served(quick, slow)
    gathering.asked(slow, 14.5)
    gathering.served([quick, slow], 14.5, 16.5)
    assert gathering.complete([quick], MODULE)
    gathering.asked(slow, 17.0)
    gathering.served([quick, slow], 17.0, 19.0)
    assert not gathering.complete([quick], MODULE)


def test_batches_are_not_kept_alive():
    mine = Batch()
    gathering = served(mine, Batch())
    # What was just made lies in the young generations; those of a whole test run are large.
    gc.collect(1)
    assert gathering.complete([mine], MODULE)


def test_whoever_is_back_first_waits_for_the_others_of_the_forward_before():
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate, gathering=Gathering(patience=1e9))
    batches = [moved(BranchBatch(model, [row]), CHAIN[:1]) for row in UNEVEN[:3]]
    ask_together(forwards, gate, batches)
    assert forwards.forwards == 1
    for batch in batches:
        batch.append(torch.tensor([CHAIN[1]]))
    first = Asker(forwards, batches[0])
    wait_until(lambda: forwards.waiting == 1)
    second = Asker(forwards, batches[1])
    wait_until(lambda: forwards.waiting == 2)
    assert forwards.forwards == 1
    third = Asker(forwards, batches[2])
    for asker, row in zip((first, second, third), UNEVEN[:3], strict=True):
        asker.join(SECONDS)
        assert_rows(model, asker.logits, [[*row, *CHAIN[:2]]])
    assert (forwards.forwards, forwards.served) == (2, 6)


def test_nobody_waits_for_a_batch_that_was_closed():
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate, gathering=Gathering(patience=1e9))
    batches = [moved(BranchBatch(model, [row]), CHAIN[:1]) for row in UNEVEN[:2]]
    ask_together(forwards, gate, batches)
    batches[1].close()
    batches[0].append(torch.tensor([CHAIN[1]]))
    alone = Asker(forwards, batches[0])
    alone.join(SECONDS)
    assert_rows(model, alone.logits, [[*UNEVEN[0], *CHAIN[:2]]])


def test_a_full_forward_waits_for_nobody():
    model, gate = build("llama"), Gate()
    forwards = JointForwards(gate, most_rows=2, gathering=Gathering(patience=1e9))
    batches = [moved(BranchBatch(model, [row]), CHAIN[:1]) for row in UNEVEN[:3]]
    ask_together(forwards, gate, batches[:2])
    gate.close()
    askers = [Asker(forwards, batches[0]), Asker(forwards, batches[2])]
    wait_until(lambda: forwards.waiting == 2)
    gate.opened.set()
    for asker in askers:
        asker.join(SECONDS)


def test_nobody_waits_for_whoever_has_only_read_a_prompt():
    model = build("llama")
    forwards = JointForwards(gathering=Gathering(patience=1e9))
    forwards.followed(BranchBatch(model, [UNEVEN[3]]))[0]
    step = Asker(forwards, moved(BranchBatch(model, [UNEVEN[0]]), CHAIN[:1]))
    step.join(SECONDS)
    assert_rows(model, step.logits, [[*UNEVEN[0], *CHAIN[:1]]])
