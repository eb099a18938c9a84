"""How much key-value memory all work on the models' device may hold together, and who waits for it and for the device.

Order of locks: memory is always taken before a turn at the device. Whoever holds a turn and
finds no memory gives the turn back before waiting; a session's step, which holds memory, would otherwise wait for the
turn of somebody who waits for that memory.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Condition, Event
from typing import TypeVar

import torch

from coft_core.decode.cost import DevicePeaks
from coft_core.errors import DeviceMemoryError
from coft_core.model.forced import Room
from coft_core.model.loading import out_of_memory


class Turns:
    """A queue for one place; an ordinary lock would let who released it take it again before anyone who waits."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._queue: deque[object] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the own turn and hold it."""
        ticket = object()
        self._join(ticket)
        try:
            yield
        finally:
            self._leave(ticket)

    def give_way(self) -> None:
        """Let everyone go first who waits at this moment; called by the holder, who holds the turn again afterwards."""
        if len(self._queue) > 1:
            with self.aside():
                pass

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Give the turn up inside this block and wait for it again at its end; called by the holder."""
        held = self._queue[0]
        self._leave(held)
        try:
            yield
        finally:
            self._join(held)

    def _join(self, ticket: object) -> None:
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(lambda: self._queue[0] is ticket)
            except BaseException:
                # An interrupted wait must not leave a ticket behind for which all others would wait.
                self._leave(ticket)
                raise

    def _leave(self, ticket: object) -> None:
        with self._changed:
            # Gone already where the holder was interrupted while it waited for its turn again.
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._changed.notify_all()


MEGABYTE = 1 << 20

TELLING_SECONDS = 1.0
"""How often whoever waits is told so, and may give up."""

BATCHES_BESIDE = 2
"""So many batches of the largest size fit beside each other, so that reviewers' steps fit beside long work."""

Waiting = Callable[[bool], None]
"""Told True, about every second, while memory is waited for, and then False; raising from it gives up."""


class MemoryBudget:
    """Bytes of keys and values of everything that decodes: sessions, calibrations, comparisons and measurements.

    Memory is given in the order of asking. Idle memory is given back for whoever asks. Where that is not enough,
    whoever asks waits until others have ended their step or batch; what needs more than the whole budget runs alone.
    """

    def __init__(self, megabytes: int | None = None) -> None:
        """Nothing is in use; None sets no limit."""
        self.changed = Condition()
        """Guards all that is counted here; holders of idle memory use it as their own lock."""
        self._limit = None if megabytes is None else megabytes * MEGABYTE
        self._idle: list[tuple[Callable[[], int], Callable[[], bool]]] = []
        self._in_use = 0
        self._queue: deque[object] = deque()

    @property
    def most(self) -> int | None:
        """Bytes that one batch of long work should take at most; None sets no limit."""
        return None if self._limit is None else self._limit // BATCHES_BESIDE

    @property
    def size(self) -> int:
        """Bytes that idle memory holds, and that work under way may."""
        with self.changed:
            return self._in_use + self._idle_size()

    def count_idle(self, size: Callable[[], int], close_oldest: Callable[[], bool]) -> None:
        """Count idle memory from now on, and give back what was unused for longest where others need it."""
        self._idle.append((size, close_oldest))

    @contextmanager
    def room(
        self,
        size: int,
        waiting: Waiting | None = None,
        claim: Callable[[], None] = lambda: None,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[None]:
        """Count so many bytes as in use inside this block; wait, in the order of asking, until they fit.

        ``claim`` is called at the moment when they do, before idle memory is given back. A thread that holds a turn
        waits inside ``aside``; see the module's order of locks.
        """
        ticket = object()
        with self.changed:
            self._queue.append(ticket)
        try:
            if not self._granted(ticket, size, claim, 0.0):
                with aside():
                    self._tell(waiting, True)
                    while not self._granted(ticket, size, claim, TELLING_SECONDS):
                        self._tell(waiting, True)
                self._tell(waiting, False)
            yield
        finally:
            with self.changed:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                else:
                    self._in_use -= size
                self.changed.notify_all()

    def has_room(self, size: int) -> bool:
        """Whether so many bytes would be given at once at this moment; nothing is taken or closed."""
        with self.changed:
            return not self._queue and self._within(size)

    def close_idle(self) -> None:
        """Give back all idle memory, where the device itself has run out."""
        with self.changed:
            while any(close_oldest() for _, close_oldest in self._idle):
                pass
            self.changed.notify_all()

    def _granted(self, ticket: object, size: int, claim: Callable[[], None], seconds: float) -> bool:
        with self.changed:
            if not self.changed.wait_for(lambda: self._queue[0] is ticket and self._fits(size, claim), seconds):
                return False
            self._queue.popleft()
            self._in_use += size
            self.changed.notify_all()
            return True

    @staticmethod
    def _tell(waiting: Waiting | None, waits: bool) -> None:
        if waiting is not None:
            waiting(waits)

    def _fits(self, size: int, claim: Callable[[], None]) -> bool:
        """Whether so many bytes fit, giving idle memory back as far as it takes; alone, anything does."""
        if not self._within(size):
            return False
        claim()
        while self._limit is not None and self._in_use + self._idle_size() + size > self._limit:
            if not any(close_oldest() for _, close_oldest in self._idle):
                break
        return True

    def _within(self, size: int) -> bool:
        return self._limit is None or self._in_use == 0 or self._in_use + size <= self._limit

    def _idle_size(self) -> int:
        return sum(size() for size, _ in self._idle)


Result = TypeVar("Result")

EXHAUSTED = (
    "The device has run out of memory, also after everything idle was closed; lower COFT_KV_MEMORY_MB, shorten the "
    "prompt or ask for fewer steps, or load the model with COFT_QUANTIZATION=8bit or 4bit."
)


class DeviceMemory:
    """The device's memory, as everybody shares it who runs models."""

    def __init__(self, turns: Turns, budget: MemoryBudget) -> None:
        self._turns = turns
        self.budget = budget
        """What all keys and values together may take."""
        self.peaks = DevicePeaks()
        """Where all who measure a step's memory at the same time measure it."""

    def run(self, size: int, work: Callable[[], Result], waiting: Waiting | None = None) -> Result:
        """Run short work in a turn of its own, as soon as its memory is there."""
        with self.budget.room(size, waiting):
            for attempt in self.attempts():
                with attempt, self._turns.turn():
                    result = work()
        return result

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Hold memory and a turn inside this block, for work that cannot be done a second time."""
        with self.budget.room(size), self._turns.turn(), _Attempt(last=True):
            yield

    def room(self, waiting: Waiting | None = None) -> Room:
        """Where long work that holds a turn takes the memory of its batches from; told while a batch waits for it."""
        return _TurnRoom(self, self._turns, waiting)

    def attempts(self) -> Iterator[AbstractContextManager[None]]:
        """Two attempts at the same work, each a ``with`` block; the second is given where memory ran out in the first.

        Before the second everything idle is closed. The work leaves nothing behind where it fails::

            for attempt in memory.attempts():
                with attempt:
                    result = work()
        """
        first = _Attempt()
        yield first
        if first.failed:
            # Not before here are the failed work's tensors let go of, which the error's traceback held.
            self.budget.close_idle()
            free_unused()
            yield _Attempt(last=True)


class _Attempt(AbstractContextManager[None]):
    """Work that may be done once more where it runs out of memory, unless it is the last attempt."""

    def __init__(self, last: bool = False) -> None:
        self.failed = False
        self._last = last

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception) or not out_of_memory(error):
            return False
        if self._last:
            raise DeviceMemoryError(EXHAUSTED) from error
        self.failed = True
        return True


class _TurnRoom:
    """Memory for work that holds a turn: the turn is given up while memory is waited for, which others may hold."""

    def __init__(self, memory: DeviceMemory, turns: Turns, waiting: Waiting | None) -> None:
        self._memory, self._turns, self._waiting = memory, turns, waiting

    @property
    def most(self) -> int | None:
        return self._memory.budget.most

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        with self._memory.budget.room(size, self._waiting, aside=self._turns.aside):
            for attempt in self._memory.attempts():
                with attempt:
                    result = work()
        return result


def free_unused() -> None:
    """Let go of memory that nothing refers to any more, also where errors and their frames refer to each other."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    _give_back()


GIVE_BACK_SECONDS = 30.0
"""Time between two times that a server hands freed memory back."""


def keep_giving_back(ended: Event, pause: float = GIVE_BACK_SECONDS) -> None:
    """Hand freed memory back to the system from time to time, until something has ended.

    Requests free blocks of all sizes in many threads, between others that stay; without this a server that works grows
    for hours, although nothing of what it took is still in use.
    """
    while not ended.wait(pause):
        _give_back()


def _give_back() -> None:
    """Hand freed memory back to the system: glibc, the usual C library of Linux, keeps it for itself otherwise."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
