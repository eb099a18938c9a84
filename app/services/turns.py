"""Turns at a model: one at a time, in the order of asking, and lent to others between two batches of long work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Turns:
    """A queue for one place; an ordinary lock would let who released it take it again before anyone who waits."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._changed = Condition()
        self._queue: deque[object] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the own turn and hold it."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            self._await(ticket)
        try:
            yield
        finally:
            self._leave(ticket)

    def give_way(self) -> None:
        """Let everyone go first who waits at this moment; called by the holder, who holds the turn again afterwards."""
        with self._changed:
            if len(self._queue) > 1:
                ticket = self._queue.popleft()
                self._queue.append(ticket)
                self._changed.notify_all()
                self._await(ticket)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Give the turn up inside this block and wait for it again at its end; called by the holder.

        For whatever must not be waited for while holding a turn, such as memory.
        """
        ticket = object()
        with self._changed:
            held = self._queue.popleft()
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._queue.append(ticket)
                self._await(ticket)
                # The holder leaves with the ticket that it came with.
                self._queue[0] = held

    def _await(self, ticket: object) -> None:
        try:
            self._changed.wait_for(lambda: self._queue[0] is ticket)
        except BaseException:
            # An interrupted wait must not leave a ticket behind for which all others would wait.
            self._queue.remove(ticket)
            self._changed.notify_all()
            raise

    def _leave(self, ticket: object) -> None:
        with self._changed:
            # Gone already where the holder was interrupted while it gave way.
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._changed.notify_all()
