"""Comparisons of attribute swaps while they run, and the newest ones afterwards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock

from app.services.errors import ServiceError
from app.services.views.swaps import SwapProgress, SwapRequest, SwapResult

KEPT = 16


class SwapCancelled(ServiceError):  # noqa: N818 - cancelling is no error
    """A comparison was ended by whoever began it."""


@dataclass(frozen=True, slots=True)
class SwapWatch:
    """One running comparison.

    Attributes:
        number: The comparison.
        chains: Chains that it makes.
        length: Tokens of each at most.
        stop: Set when it is to end.
    """

    number: int
    chains: int
    length: int
    stop: Event = field(default_factory=Event)

    def told(self, chain: int, tokens: int, label: str, decoding: str) -> SwapProgress:
        """How far it is.

        Args:
            chain: Chains that are done.
            tokens: Tokens of the current one.
            label: The variant.
            decoding: ``vanilla`` or the policy.

        Raises:
            SwapCancelled: It is to end.
        """
        self.check()
        return SwapProgress(self.number, (chain + tokens / self.length) / self.chains, label, decoding)

    def waits(self, waits: bool) -> None:
        """Told while a token waits for memory, which whoever cancels need not wait for."""
        del waits
        self.check()

    def check(self) -> None:
        """End here if it is to end.

        Raises:
            SwapCancelled: It is to end.
        """
        if self.stop.is_set():
            raise SwapCancelled("The comparison was cancelled; nothing of it is kept.")


@dataclass(frozen=True, slots=True)
class KeptSwap:
    """A comparison that is done: what was asked, and each step of it that was read."""

    request: SwapRequest
    steps: dict[int, SwapResult]


class SwapRuns:
    """Running comparisons by number, and the newest that are done; each is cancelled by its own number."""

    def __init__(self, capacity: int = KEPT) -> None:
        """Nothing runs yet.

        Args:
            capacity: Comparisons that are kept when they are done; the one unused for longest goes first.
        """
        self._capacity = capacity
        self._numbers = count(1)
        self._running: dict[int, SwapWatch] = {}
        self._kept: OrderedDict[int, KeptSwap] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def watched(self, chains: int, length: int) -> Iterator[SwapWatch]:
        """A comparison from its beginning to its end, however it ends."""
        with self._lock:
            watch = SwapWatch(next(self._numbers), chains, length)
            self._running[watch.number] = watch
        try:
            yield watch
        finally:
            with self._lock:
                del self._running[watch.number]

    def cancel(self, number: int) -> None:
        """End a comparison after its current token, if it runs."""
        with self._lock:
            if (watch := self._running.get(number)) is not None:
                watch.stop.set()

    def keep(self, request: SwapRequest, result: SwapResult) -> None:
        """Keep what a step of a comparison gave."""
        with self._lock:
            kept = self._kept.setdefault(result.number, KeptSwap(request, {}))
            kept.steps[result.answer_step] = result
            self._kept.move_to_end(result.number)
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)

    def kept(self, number: int) -> KeptSwap:
        """A comparison that is done.

        Raises:
            ServiceError: It is not kept any more.
        """
        with self._lock:
            if number not in self._kept:
                raise ServiceError("This comparison is not kept any more; run it again.")
            self._kept.move_to_end(number)
            return self._kept[number]
