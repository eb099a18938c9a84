"""Who gets key-value memory, in which order, and that nobody who waits for it keeps others from ending."""

import threading

import pytest
import torch

from app.hosting import memory as memory_budget
from app.hosting.memory import MEGABYTE, DeviceMemory, MemoryBudget, Turns
from coft_core.errors import DeviceMemoryError

SECONDS = 120


class Idle:
    """Idle memory in parts of one size."""

    def __init__(self, budget, megabytes, parts):
        self.parts = parts
        budget.count_idle(lambda: megabytes * MEGABYTE * self.parts, self.close_oldest)

    def close_oldest(self):
        self.parts, had = max(self.parts - 1, 0), self.parts
        return had > 0


class Asking(threading.Thread):
    """Asks for memory in a thread of its own, and notes what it is told and when it had it."""

    def __init__(self, budget, megabytes, order, name):
        super().__init__(daemon=True)
        self.budget, self.megabytes, self.order, self.label = budget, megabytes, order, name
        self.begun, self.told = threading.Event(), []

    def waiting(self, waits):
        self.told.append(waits)
        self.begun.set()

    def run(self):
        with self.budget.room(self.megabytes * MEGABYTE, self.waiting):
            self.order.append(self.label)


def started(*threads):
    """Start threads one after the other, each once the one before it waits."""
    for thread in threads:
        thread.start()
        assert thread.begun.wait(SECONDS)


def joined(*threads):
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def beside(work):
    """Something that is done in a thread of its own."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def budget():
    return MemoryBudget(10)


@pytest.fixture
def memory(budget):
    return DeviceMemory(Turns(), budget)


def test_idle_memory_is_given_back_only_as_far_as_it_takes(budget):
    idle = Idle(budget, 3, parts=3)
    with budget.room(4 * MEGABYTE):
        assert idle.parts == 2
        assert budget.size == 10 * MEGABYTE
        assert (budget.has_room(6 * MEGABYTE), budget.has_room(6 * MEGABYTE + 1)) == (True, False)
    assert (budget.size, budget.most) == (6 * MEGABYTE, 5 * MEGABYTE)


def test_whoever_finds_no_room_waits_for_those_who_have_it_and_is_told(budget):
    order, told = [], []
    second = Asking(budget, 6, order, "second")
    with budget.room(6 * MEGABYTE, told.append):
        started(second)
        order.append("first")
    joined(second)
    assert order == ["first", "second"]
    assert (second.told[0], second.told[-1], told) == (True, False, [])
    assert budget.size == 0


def test_a_small_one_does_not_overtake_a_large_one_that_asked_before_it(budget):
    order = []
    large, small = Asking(budget, 9, order, "large"), Asking(budget, 1, order, "small")
    with budget.room(6 * MEGABYTE):
        started(large, small)
        assert not budget.has_room(MEGABYTE)
    joined(large, small)
    assert order == ["large", "small"]


def test_one_that_needs_more_than_the_budget_runs_alone_and_without_a_limit_nobody_waits(budget):
    idle, order = Idle(budget, 5, parts=1), []
    larger, after = Asking(budget, 60, order, "larger"), Asking(budget, 1, order, "after")
    with budget.room(50 * MEGABYTE):
        assert idle.parts == 0
        started(larger, after)
        order.append("alone")
    joined(larger, after)
    assert order == ["alone", "larger", "after"]
    unlimited = MemoryBudget()
    with unlimited.room(1 << 50), unlimited.room(1 << 50):
        assert (unlimited.most, unlimited.has_room(1 << 60)) == (None, True)


def test_a_wait_that_is_given_up_before_or_after_its_end_leaves_the_room_to_others(budget, monkeypatch):
    def give_up(waits):
        raise KeyboardInterrupt

    with budget.room(8 * MEGABYTE), pytest.raises(KeyboardInterrupt), budget.room(8 * MEGABYTE, give_up):
        pass
    with budget.room(8 * MEGABYTE):
        assert budget.size == 8 * MEGABYTE
    assert budget.has_room(10 * MEGABYTE)
    monkeypatch.setattr(memory_budget, "TELLING_SECONDS", SECONDS)
    begun, ended = threading.Event(), []

    def give_up_at_the_end(waits):
        begun.set()
        if not waits:
            raise KeyboardInterrupt

    def ask():
        with pytest.raises(KeyboardInterrupt), budget.room(8 * MEGABYTE, give_up_at_the_end):
            pass
        ended.append(True)

    with budget.room(8 * MEGABYTE):
        thread = beside(ask)
        assert begun.wait(SECONDS)
    joined(thread)
    assert (ended, budget.size) == ([True], 0)


def test_long_work_that_waits_for_memory_gives_its_turn_to_those_who_have_it(memory):
    """A session's step has memory and needs the turn; the batch has the turn and needs that memory."""
    order, entered, waits = [], threading.Event(), threading.Event()

    def job():
        with memory._turns.turn():
            entered.set()
            memory.room(lambda waiting: waits.set()).run(8 * MEGABYTE, lambda: order.append("batch"))
            order.append("after the batch")

    with memory.budget.room(8 * MEGABYTE):
        thread = beside(job)
        assert entered.wait(SECONDS)
        assert waits.wait(SECONDS)
        with memory._turns.turn():
            order.append("step")
    joined(thread)
    assert order == ["step", "batch", "after the batch"]


def test_a_batch_that_finds_room_keeps_its_turn(memory):
    order = []

    def other():
        with memory._turns.turn():
            order.append("other")

    with memory._turns.turn():
        thread = beside(other)
        for number in (1, 2):
            memory.room().run(MEGABYTE, lambda number=number: order.append(f"batch {number}"))
    joined(thread)
    assert order == ["batch 1", "batch 2", "other"]


def test_steps_and_batches_that_each_fill_the_budget_all_end(memory):
    """Twenty steps and twenty batches from four threads, none of which fits beside another."""
    done = []

    def steps():
        for _ in range(20):
            with memory.budget.room(8 * MEGABYTE), memory._turns.turn():
                done.append("step")

    def batches():
        with memory._turns.turn():
            for _ in range(20):
                memory.room().run(60 * MEGABYTE, lambda: done.append("batch"))
                memory._turns.give_way()

    joined(*(beside(work) for work in (steps, batches, steps, batches)))
    assert sorted(done) == ["batch"] * 40 + ["step"] * 40
    assert memory.budget.size == 0


def test_where_memory_runs_out_idle_memory_is_closed_and_the_work_is_done_once_more(memory):
    idle, tries = Idle(memory.budget, 1, parts=3), []

    def work():
        tries.append(idle.parts)
        if len(tries) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"

    assert memory.run(MEGABYTE, work) == "done"
    assert tries == [3, 0]


@pytest.mark.parametrize(
    ("error", "refused", "tries"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), (DeviceMemoryError, "COFT_KV_MEMORY_MB"), 5),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), (DeviceMemoryError, "COFT_KV_MEMORY_MB"), 5),
        (RuntimeError("shapes differ"), (RuntimeError, "shapes differ"), 3),
    ],
)
def test_where_it_runs_out_again_one_sentence_says_what_to_do_and_other_errors_are_not_tried_again(
    memory, error, refused, tries
):
    tried = []

    def work():
        tried.append(True)
        raise error

    def held():
        with memory.held(MEGABYTE):
            work()

    def in_a_turn():
        with memory._turns.turn():
            memory.room().run(MEGABYTE, work)

    kind, said = refused
    for run in (lambda: memory.run(MEGABYTE, work), in_a_turn, held):
        with pytest.raises(kind, match=said) as caught:
            run()
        assert str(caught.value).count(". ") == 0
    assert (len(tried), memory.budget.size) == (tries, 0)
    with memory._turns.turn():
        pass
