"""Work on the models' device: its memory is counted, then it has its turn; where memory ran out it is tried again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch

from app.services.memory_budget import MemoryBudget, Waiting
from app.services.turns import Turns
from coft_core.engine.loading import out_of_memory
from coft_core.engine.room import Room
from coft_core.errors import DeviceMemoryError
from coft_core.footprint import DevicePeaks

Result = TypeVar("Result")

EXHAUSTED = (
    "The device has run out of memory, also after everything idle was closed; lower COFT_KV_MEMORY_MB, shorten the "
    "prompt or ask for fewer steps, or load the model with COFT_QUANTIZATION=8bit or 4bit."
)


class DeviceMemory:
    """The device's memory, as everybody shares it who runs models."""

    def __init__(self, turns: Turns, budget: MemoryBudget) -> None:
        """Wire to the queue for the device and to the budget."""
        self._turns = turns
        self._budget = budget
        self._peaks = DevicePeaks()

    @property
    def peaks(self) -> DevicePeaks:
        """Where all who measure a step's memory at the same time measure it."""
        return self._peaks

    @property
    def budget(self) -> MemoryBudget:
        """What all keys and values together may take."""
        return self._budget

    def run(self, size: int, work: Callable[[], Result], waiting: Waiting | None = None) -> Result:
        """Run short work in a turn of its own, as soon as its memory is there.

        Args:
            size: Bytes of keys and values that it holds at most.
            work: What is done; it is done again where memory ran out, so it leaves nothing behind when it fails.
            waiting: Told while it waits for memory.

        Raises:
            DeviceMemoryError: The device's memory ran out twice.
        """

        def in_turn() -> Result:
            with self._turns.turn():
                return work()

        with self._budget.room(size, waiting):
            return self.tried_twice(in_turn)

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Hold memory and a turn inside this block, for work that cannot be done a second time.

        Raises:
            DeviceMemoryError: The device's memory ran out.
        """
        with self._budget.room(size), self._turns.turn():
            try:
                yield
            except Exception as error:
                if not out_of_memory(error):
                    raise
                raise DeviceMemoryError(EXHAUSTED) from error

    def room(self, waiting: Waiting | None = None) -> Room:
        """Where long work that holds a turn takes the memory of its batches from.

        Args:
            waiting: Told while a batch waits for memory.
        """
        return _TurnRoom(self, self._turns, waiting)

    def tried_twice(self, work: Callable[[], Result]) -> Result:
        """Do something, and where memory runs out, close what is idle and do it once more.

        Raises:
            DeviceMemoryError: Memory ran out again.
        """
        try:
            return work()
        except Exception as error:
            if not out_of_memory(error):
                raise
        # Not before here are the failed work's tensors let go of, which the error's traceback held.
        self._budget.close_idle()
        free_unused()
        try:
            return work()
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise DeviceMemoryError(EXHAUSTED) from error


class _TurnRoom:
    """Memory for work that holds a turn: the turn is given up while memory is waited for, which others may hold."""

    def __init__(self, memory: DeviceMemory, turns: Turns, waiting: Waiting | None) -> None:
        self._memory, self._turns, self._waiting = memory, turns, waiting

    @property
    def most(self) -> int | None:
        return self._memory.budget.most

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        with self._taken(size):
            return self._memory.tried_twice(work)

    @contextmanager
    def _taken(self, size: int) -> Iterator[None]:
        budget = self._memory.budget
        with budget.room_now(size) as taken, ExitStack() as held:
            if not taken:
                with self._turns.aside():
                    held.enter_context(budget.room(size, self._waiting))
            yield


def free_unused() -> None:
    """Let go of memory that nothing refers to any more, also where errors and their frames refer to each other."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
