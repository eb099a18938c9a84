"""Live rollouts, kept between requests."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from weakref import WeakSet

import torch

from app.hosting.memory import DeviceMemory, Waiting
from app.hosting.model_host import ModelHost
from app.shared.visitors import present
from app.shared.wiring import Services
from coft_core.decode.loop import Rollout
from coft_core.model.language_model import LanguageModel
from coft_core.types import Step


class RolloutPool:
    """Rollouts kept between requests, one a branch; the visitor who has most loses the one unused for longest."""

    def __init__(self, capacity: int, memory: DeviceMemory) -> None:
        """Make an empty pool, of so many rollouts at most."""
        self._capacity = capacity
        self._budget = memory.budget
        self._rollouts: OrderedDict[Hashable, Rollout] = OrderedDict()
        self._owners: dict[Hashable, str | None] = {}
        self._left: WeakSet[torch.nn.Module] = WeakSet()
        self._changed = memory.budget.changed
        memory.budget.count_idle(lambda: self.idle_size, self.close_oldest)

    @classmethod
    def wired(cls, services: Services) -> RolloutPool:
        """As many as the settings allow."""
        host = services[ModelHost]
        pool = cls(services.settings.live_rollouts, host.memory)
        host.before_leaving(pool.drop_of)
        return pool

    @contextmanager
    def taken(
        self, key: Hashable, build: Callable[[], Rollout], copies: int = 0, waiting: Waiting | None = None
    ) -> Iterator[Rollout]:
        """A rollout, which nobody else uses or closes inside this block.

        After an error it is closed, since it may be ahead of what is stored. Where the device's memory runs out, the
        block is an attempt of :meth:`DeviceMemory.attempts`, and the rollout is built again for the second one.
        """
        granted = False
        while not granted:
            with self._changed:
                kept = self._rollouts.get(key)
                if kept is not None:
                    self._rollouts.move_to_end(key)
            rollout = kept or build()
            granted = kept is None

            def claim(rollout: Rollout = rollout) -> None:
                # Until now a kept one stays counted, and may be closed: many that wait would otherwise hold more than
                # the budget together, and nobody would know of it.
                nonlocal granted
                if not granted and self._rollouts.get(key) is rollout:
                    del self._rollouts[key]
                    granted = True

            with ExitStack() as held:
                try:
                    size = rollout.memory_size_next * (1 + copies)
                    held.enter_context(self._budget.room(size, waiting, claim))
                    if not granted:
                        # It was closed for somebody else while it waited for memory: it is built again and asks again.
                        continue
                    yield rollout
                except BaseException:
                    if granted:
                        rollout.close()
                    raise
                with self._changed:
                    held.close()
                    self.put(key, rollout)

    def steps(self, key: Hashable) -> tuple[Step, ...] | None:
        """The chain of a branch whose rollout is kept and not in use at the moment."""
        with self._changed:
            rollout = self._rollouts.get(key)
            return None if rollout is None else rollout.steps

    def put(self, key: Hashable, rollout: Rollout) -> None:
        """Keep a rollout, and close the one unused for longest where there are too many."""
        with self._changed:
            if self._left and any(_runs_on(rollout, module) for module in self._left):
                rollout.close()
                self._changed.notify_all()
                return
            self._rollouts[key] = rollout
            visitor = present()
            self._owners[key] = None if visitor is None else visitor.owner
            while len(self._rollouts) > self._capacity:
                self._close_of_who_has_most()
            self._changed.notify_all()

    def _close_of_who_has_most(self) -> None:
        """Close the oldest of the visitor who has the most, so that nobody's go for one who opens many."""
        counted = Counter(self._owners.get(key) for key in self._rollouts)
        most = max(counted.values())
        key = next(key for key in self._rollouts if counted[self._owners.get(key)] == most)
        self._rollouts.pop(key).close()
        self._owners = {key: owner for key, owner in self._owners.items() if key in self._rollouts}

    def drop(self, keys: Collection[Hashable]) -> None:
        """Close the rollouts of branches that are gone."""
        with self._changed:
            for key in keys:
                if (rollout := self._rollouts.pop(key, None)) is not None:
                    rollout.close()
            self._changed.notify_all()

    def drop_of(self, model: LanguageModel) -> None:
        """Keep no rollout that runs on a model any more; each is rebuilt from its tokens when it comes back."""
        with self._changed:
            self._left.add(model.module)
            self.drop([key for key, rollout in self._rollouts.items() if _runs_on(rollout, model.module)])

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


def _runs_on(rollout: Rollout, module: torch.nn.Module) -> bool:
    # A plan's model has the prompt's rendering, so that it is another object over the same weights.
    return any(used.module is module for used in rollout.plan.all_models.values())
