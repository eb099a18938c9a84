"""Live rollouts between requests: how many, and how much key-value memory they may hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from contextlib import ExitStack
from typing import TypeVar

from app.services.device_memory import DeviceMemory
from app.services.memory_budget import Waiting
from app.services.views import Step
from coft_core.decode import Rollout

Result = TypeVar("Result")


class RolloutPool:
    """Rollouts kept between requests, one a branch; the one unused for longest is closed first.

    Idle ones are counted in the budget of all work on the device, are closed for whoever needs their memory, and are
    rebuilt from their tokens when they come back.
    """

    def __init__(self, capacity: int, memory: DeviceMemory) -> None:
        """Make an empty pool.

        Args:
            capacity: Rollouts whose key-value memory is kept.
            memory: The device's memory, which rollouts share with all other work.
        """
        self._capacity = capacity
        self._memory = memory
        self._rollouts: OrderedDict[Hashable, Rollout] = OrderedDict()
        self._changed = memory.budget.changed
        memory.budget.count_idle(self)

    def run(
        self,
        key: Hashable,
        build: Callable[[], Rollout],
        work: Callable[[Rollout], Result],
        copies: int = 0,
        waiting: Waiting | None = None,
    ) -> Result:
        """Do something with a rollout, which nobody else uses or closes meanwhile.

        After an error it is closed, since it may be ahead of what is stored. Where the device's memory ran out, all
        idle rollouts are closed, this one is built anew, and it is done once more.

        Args:
            key: The branch.
            build: Makes the rollout where it is not kept.
            work: What is done; each forward takes a turn of its own, so the caller holds none.
            copies: Forks that will be made of it; memory is set aside for them too.
            waiting: Told while it waits for memory.

        Raises:
            DeviceMemoryError: The device's memory ran out twice.
        """
        return self._memory.tried_twice(lambda: self._run(key, build, work, copies, waiting))

    def steps(self, key: Hashable) -> tuple[Step, ...] | None:
        """The chain of a branch whose rollout is kept and not in use at the moment."""
        with self._changed:
            rollout = self._rollouts.get(key)
            return None if rollout is None else rollout.steps

    def put(self, key: Hashable, rollout: Rollout) -> None:
        """Put a rollout back."""
        with self._changed:
            self._rollouts[key] = rollout
            while len(self._rollouts) > self._capacity:
                self.close_oldest()
            self._changed.notify_all()

    def drop(self, keys: Collection[Hashable]) -> None:
        """Close the rollouts of branches that are gone."""
        with self._changed:
            for key in keys:
                if (rollout := self._rollouts.pop(key, None)) is not None:
                    rollout.close()
            self._changed.notify_all()

    @property
    def idle_size(self) -> int:
        """Bytes of keys and values that idle rollouts hold."""
        with self._changed:
            return sum(rollout.memory_size for rollout in self._rollouts.values())

    def close_oldest(self) -> bool:
        """Close the rollout that was unused for longest; False where none is idle."""
        with self._changed:
            if not self._rollouts:
                return False
            self._rollouts.popitem(last=False)[1].close()
            return True

    def _run(
        self,
        key: Hashable,
        build: Callable[[], Rollout],
        work: Callable[[Rollout], Result],
        copies: int,
        waiting: Waiting | None,
    ) -> Result:
        while True:
            with self._changed:
                kept = self._rollouts.get(key)
                if kept is not None:
                    self._rollouts.move_to_end(key)
            found = self._tried(key, kept or build(), kept is not None, work, copies, waiting)
            if found is not None:
                return found[0]
            # It was closed for somebody else while it waited for memory: it is built anew and asks once more.

    def _tried(
        self,
        key: Hashable,
        rollout: Rollout,
        kept: bool,
        work: Callable[[Rollout], Result],
        copies: int,
        waiting: Waiting | None,
    ) -> tuple[Result] | None:
        """The result, or None where a kept rollout was closed while it waited.

        A kept one stays counted, and may be closed, until its memory is granted: many that wait would otherwise hold
        more than the budget together, and nobody would know of it.
        """
        own = not kept

        def claim() -> None:
            nonlocal own
            if self._rollouts.get(key) is rollout:
                del self._rollouts[key]
                own = True

        with ExitStack() as held:
            try:
                room = self._memory.budget.room(rollout.memory_size_next * (1 + copies), waiting, claim)
                held.enter_context(room)
                if not own:
                    return None
                done = work(rollout)
            except BaseException:
                if own:
                    rollout.close()
                raise
            with self._changed:
                held.close()
                self.put(key, rollout)
        return (done,)
