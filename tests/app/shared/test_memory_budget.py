"""Who gets key-value memory, in which order, and that nobody who waits for it keeps others from ending."""

import threading

import pytest
import torch

from app.shared import memory as memory_budget
from app.shared.memory import MEGABYTE, DeviceMemory, MemoryBudget, Turns
from coft_core.errors import DeviceMemoryError

SECONDS = 120


class Idle:
    """Idle memory in parts of one size."""

    def __init__(self, megabytes, parts):
        self.part, self.parts = megabytes * MEGABYTE, parts

    @property
    def idle_size(self):
        return self.part * self.parts

    def close_oldest(self):
        self.parts, had = max(self.parts - 1, 0), self.parts
        return had > 0


class Wait:
    """What a waiting thread is told; ``begun`` is set once it waits."""

    def __init__(self):
        self.begun, self.told = threading.Event(), []

    def __call__(self, waits):
        self.told.append(waits)
        self.begun.set()


class Asking(threading.Thread):
    """Asks for memory in a thread of its own, and notes when it had it."""

    def __init__(self, budget, megabytes, order, name):
        super().__init__(daemon=True)
        self.budget, self.megabytes, self.order, self.label = budget, megabytes, order, name
        self.wait = Wait()

    def run(self):
        with self.budget.room(self.megabytes * MEGABYTE, self.wait):
            self.order.append(self.label)


def started(*threads):
    """Start threads one after the other, each once the one before it waits."""
    for thread in threads:
        thread.start()
        assert thread.wait.begun.wait(SECONDS)


def joined(*threads):
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def budget():
    return MemoryBudget(10)


@pytest.fixture
def memory(budget):
    return DeviceMemory(Turns(), budget)


def test_idle_memory_is_given_back_only_as_far_as_it_takes(budget):
    idle = Idle(3, parts=3)
    budget.count_idle(lambda: idle.idle_size, idle.close_oldest)
    with budget.room(4 * MEGABYTE):
        assert idle.parts == 2
        assert budget.size == 10 * MEGABYTE
    assert budget.size == 6 * MEGABYTE


def test_whoever_finds_no_room_waits_for_those_who_have_it_and_is_told(budget):
    order = []
    second = Asking(budget, 6, order, "second")
    with budget.room(6 * MEGABYTE):
        started(second)
        order.append("first")
    joined(second)
    assert order == ["first", "second"]
    assert second.wait.told[0] is True
    assert second.wait.told[-1] is False
    assert budget.size == 0


def test_a_small_one_does_not_overtake_a_large_one_that_asked_before_it(budget):
    order = []
    large, small = Asking(budget, 9, order, "large"), Asking(budget, 1, order, "small")
    with budget.room(6 * MEGABYTE):
        started(large, small)
        assert not budget.has_room(MEGABYTE)
    joined(large, small)
    assert order == ["large", "small"]


def test_one_that_needs_more_than_the_budget_runs_alone(budget):
    idle, order = Idle(5, parts=1), []
    budget.count_idle(lambda: idle.idle_size, idle.close_oldest)
    larger, after = Asking(budget, 60, order, "larger"), Asking(budget, 1, order, "after")
    with budget.room(50 * MEGABYTE):
        assert idle.parts == 0
        started(larger, after)
        order.append("alone")
    joined(larger, after)
    assert order == ["alone", "larger", "after"]


def test_a_wait_that_is_given_up_leaves_the_room_to_others(budget):
    def give_up(waits):
        raise KeyboardInterrupt

    with budget.room(8 * MEGABYTE), pytest.raises(KeyboardInterrupt), budget.room(8 * MEGABYTE, give_up):
        pass
    with budget.room(8 * MEGABYTE):
        assert budget.size == 8 * MEGABYTE
    assert budget.size == 0
    assert budget.has_room(10 * MEGABYTE)


def test_giving_up_after_the_wait_gives_the_room_back(budget, monkeypatch):
    monkeypatch.setattr(memory_budget, "TELLING_SECONDS", SECONDS)
    begun, ended = threading.Event(), []

    def wait(waits):
        begun.set()
        if not waits:
            raise KeyboardInterrupt

    def ask():
        with pytest.raises(KeyboardInterrupt), budget.room(8 * MEGABYTE, wait):
            pass
        ended.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    with budget.room(8 * MEGABYTE):
        thread.start()
        assert begun.wait(SECONDS)
    joined(thread)
    assert ended == [True]
    assert budget.size == 0


def test_without_a_limit_nobody_waits():
    budget = MemoryBudget()
    with budget.room(1 << 50), budget.room(1 << 50):
        assert budget.most is None
        assert budget.has_room(1 << 60)


def test_long_work_that_waits_for_memory_gives_its_turn_to_those_who_have_it(memory):
    """A session's step has memory and needs the turn; the batch has the turn and needs that memory."""
    order, waits = [], threading.Event()

    def job():
        with memory._turns.turn():
            entered.set()
            memory.room(lambda waiting: waits.set()).run(8 * MEGABYTE, lambda: order.append("batch"))
            order.append("after the batch")

    entered, thread = threading.Event(), threading.Thread(target=job, daemon=True)
    with memory.budget.room(8 * MEGABYTE):
        thread.start()
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

    thread = threading.Thread(target=other, daemon=True)
    with memory._turns.turn():
        thread.start()
        memory.room().run(MEGABYTE, lambda: order.append("batch 1"))
        memory.room().run(MEGABYTE, lambda: order.append("batch 2"))
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

    threads = [threading.Thread(target=work, daemon=True) for work in (steps, batches, steps, batches)]
    for thread in threads:
        thread.start()
    joined(*threads)
    assert sorted(done) == ["batch"] * 40 + ["step"] * 40
    assert memory.budget.size == 0


def test_where_memory_runs_out_idle_memory_is_closed_and_the_work_is_done_once_more(memory):
    idle, tries = Idle(1, parts=3), []
    memory.budget.count_idle(lambda: idle.idle_size, idle.close_oldest)

    def work():
        tries.append(idle.parts)
        if len(tries) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"

    assert memory.run(MEGABYTE, work) == "done"
    assert tries == [3, 0]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_where_it_runs_out_again_one_sentence_says_what_to_do(memory, error):
    def work():
        raise error

    for run in (memory.run, memory.room().run):
        with memory._turns.turn() if run != memory.run else memory.budget.room(0):
            with pytest.raises(DeviceMemoryError, match="COFT_KV_MEMORY_MB") as caught:
                run(MEGABYTE, work)
            assert str(caught.value).count(". ") == 0
    assert memory.budget.size == 0


def test_other_errors_are_nobodys_to_repeat(memory):
    tries = []

    def work():
        tries.append(1)
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        memory.run(MEGABYTE, work)
    with pytest.raises(RuntimeError, match="shapes differ"), memory.held(MEGABYTE):
        work()
    assert len(tries) == 2
    with pytest.raises(DeviceMemoryError), memory.held(MEGABYTE):
        raise torch.OutOfMemoryError
    assert memory.budget.size == 0
    with memory._turns.turn():
        pass
