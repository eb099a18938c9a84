"""How much key-value memory all work on the models' device may hold together, and who waits for it.

Order of locks: memory is always taken before a turn at the device (:mod:`app.services.turns`). Whoever holds a turn and
finds no memory gives the turn back before waiting; a session's step, which holds memory, would otherwise wait for the
turn of somebody who waits for that memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Protocol

MEGABYTE = 1 << 20

TELLING_SECONDS = 1.0
"""How often whoever waits is told so, and may give up."""

BATCHES_BESIDE = 2
"""So many batches of the largest size fit beside each other, so that reviewers' steps fit beside long work."""

Waiting = Callable[[bool], None]
"""Told True, about every second, while memory is waited for, and then False; raising from it gives up."""


def _claim_nothing() -> None:
    """For work that goes on with nothing idle."""


class Idle(Protocol):
    """Memory that nobody uses at the moment and that can be given back."""

    @property
    def idle_size(self) -> int:
        """Bytes held."""

    def close_oldest(self) -> bool:
        """Give back what was unused for longest; False where there is nothing."""


class MemoryBudget:
    """Bytes of keys and values of everything that decodes: sessions, calibrations, comparisons and measurements.

    Memory is given in the order of asking. Idle memory is given back for whoever asks. Where that is not enough,
    whoever asks waits until others have ended their step or batch; what needs more than the whole budget runs alone.
    """

    def __init__(self, megabytes: int | None = None) -> None:
        """Nothing is in use.

        Args:
            megabytes: The budget; None sets no limit.
        """
        self.changed = Condition()
        """Guards all that is counted here; holders of idle memory use it as their own lock."""
        self._limit = None if megabytes is None else megabytes * MEGABYTE
        self._idle: list[Idle] = []
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

    @property
    def waiting(self) -> int:
        """How many wait for memory."""
        with self.changed:
            return len(self._queue)

    def count_idle(self, idle: Idle) -> None:
        """Count idle memory from now on, and have it given back where others need it."""
        self._idle.append(idle)

    @contextmanager
    def room(
        self, size: int, waiting: Waiting | None = None, claim: Callable[[], None] = _claim_nothing
    ) -> Iterator[None]:
        """Count so many bytes as in use inside this block; wait, in the order of asking, until they fit.

        The thread holds no turn while it waits; see the module's order of locks.

        Args:
            size: Bytes that the work holds at most.
            waiting: Told while it waits.
            claim: Takes out of the idle memory what the work goes on with, at the moment when its size counts as in
                use: until then it is counted as idle, and may be given back for others.
        """
        told = self._take(size, waiting, claim)
        with self._given_back(size):
            if told and waiting is not None:
                waiting(False)
            yield

    @contextmanager
    def room_now(self, size: int) -> Iterator[bool]:
        """The same without waiting; gives whether there was room, and nothing is counted where there was none."""
        with self.changed:
            taken = not self._queue and self._fits(size)
            self._in_use += size if taken else 0
        with self._given_back(size if taken else 0):
            yield taken

    def has_room(self, size: int) -> bool:
        """Whether so many bytes would be given at once at this moment; nothing is taken or closed."""
        with self.changed:
            return not self._queue and self._within(size)

    def close_idle(self) -> None:
        """Give back all idle memory, where the device itself has run out."""
        with self.changed:
            while any(idle.close_oldest() for idle in self._idle):
                pass
            self.changed.notify_all()

    def _take(self, size: int, waiting: Waiting | None, claim: Callable[[], None]) -> bool:
        """Wait for memory and take it; whether there was anything to wait for."""
        ticket = object()
        with self.changed:
            self._queue.append(ticket)
        told = False
        try:
            while not self._granted(ticket, size, claim, TELLING_SECONDS if told else 0.0):
                told = True
                if waiting is not None:
                    waiting(True)
            return told
        finally:
            with self.changed:
                self._queue.remove(ticket)
                self.changed.notify_all()

    def _granted(self, ticket: object, size: int, claim: Callable[[], None], seconds: float) -> bool:
        with self.changed:
            if not self.changed.wait_for(lambda: self._queue[0] is ticket and self._fits(size, claim), seconds):
                return False
            self._in_use += size
            return True

    @contextmanager
    def _given_back(self, size: int) -> Iterator[None]:
        try:
            yield
        finally:
            with self.changed:
                self._in_use -= size
                self.changed.notify_all()

    def _fits(self, size: int, claim: Callable[[], None] = _claim_nothing) -> bool:
        """Whether so many bytes fit, giving idle memory back as far as it takes; alone, anything does."""
        if not self._within(size):
            return False
        claim()
        while self._limit is not None and self._in_use + self._idle_size() + size > self._limit:
            if not any(idle.close_oldest() for idle in self._idle):
                break
        return True

    def _within(self, size: int) -> bool:
        return self._limit is None or self._in_use == 0 or self._in_use + size <= self._limit

    def _idle_size(self) -> int:
        return sum(idle.idle_size for idle in self._idle)
