"""Live rollouts between requests: how many, and how much key-value memory they may hold."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from app.services.views import Step
from coft_core.decode import Rollout

MEGABYTE = 1 << 20


class RolloutPool:
    """Rollouts kept between requests, one a branch; the one unused for longest is closed first.

    Keys and values of all rollouts, idle and in use, stay within a budget. Idle ones are closed for those that are
    asked for, and rebuilt from their tokens when they come back. Where even that is not enough, whoever asks waits
    until others have taken their step. A rollout that needs more than the whole budget runs alone.
    """

    def __init__(self, capacity: int, budget_mb: int | None = None) -> None:
        """Make an empty pool.

        Args:
            capacity: Rollouts whose key-value memory is kept.
            budget_mb: Megabytes of key-value memory of all rollouts together; None sets no limit.
        """
        self._capacity = capacity
        self._budget = None if budget_mb is None else budget_mb * MEGABYTE
        self._rollouts: OrderedDict[int, Rollout] = OrderedDict()
        self._in_use = 0
        self._queue: deque[object] = deque()
        self._changed = Condition()

    def take(self, branch_id: int) -> Rollout | None:
        """Take a rollout out of the pool, so that nobody else uses or closes it meanwhile."""
        with self._changed:
            return self._rollouts.pop(branch_id, None)

    def steps(self, branch_id: int) -> tuple[Step, ...] | None:
        """The chain of a branch whose rollout is kept and not in use at the moment."""
        with self._changed:
            rollout = self._rollouts.get(branch_id)
            return None if rollout is None else rollout.steps

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Count so many bytes as in use inside this block; wait, in the order of asking, until they fit.

        Args:
            size: Bytes that a rollout which was taken, or is new, will hold at most.
        """
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(lambda: self._queue[0] is ticket and self._fits(size))
                self._in_use += size
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._in_use -= size
                self._changed.notify_all()

    def put(self, branch_id: int, rollout: Rollout) -> None:
        """Put a rollout back."""
        with self._changed:
            self._rollouts[branch_id] = rollout
            self._close_beyond(self._capacity)
            self._changed.notify_all()

    def drop(self, branch_ids: set[int]) -> None:
        """Close the rollouts of branches that are gone."""
        with self._changed:
            for branch_id in branch_ids & self._rollouts.keys():
                self._rollouts.pop(branch_id).close()
            self._changed.notify_all()

    @property
    def size(self) -> int:
        """Bytes of keys and values that idle rollouts hold, and that those in use may."""
        with self._changed:
            return self._in_use + self._idle_size()

    def _fits(self, size: int) -> bool:
        """Whether so many bytes fit, closing idle rollouts as far as it takes; alone, anything does."""
        if self._budget is None:
            return True
        while self._rollouts and self._in_use + self._idle_size() + size > self._budget:
            self._close_beyond(len(self._rollouts) - 1)
        return self._in_use == 0 or self._in_use + size <= self._budget

    def _idle_size(self) -> int:
        return sum(rollout.memory_size for rollout in self._rollouts.values())

    def _close_beyond(self, count: int) -> None:
        while len(self._rollouts) > count:
            self._rollouts.popitem(last=False)[1].close()
