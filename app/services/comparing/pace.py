"""How long tokens took, for chains that were written in this process."""

from __future__ import annotations

from collections import OrderedDict
from statistics import median
from threading import Lock

MOST_CHAINS = 256
MOST_TOKENS = 1024


class Pace:
    """Seconds a token by branch; the oldest branches are forgotten."""

    def __init__(self) -> None:
        """Nothing was timed yet."""
        self._taken: OrderedDict[int, list[float]] = OrderedDict()
        self._lock = Lock()

    def add(self, branch_id: int, seconds: float) -> None:
        """Note what one token took."""
        with self._lock:
            own = self._taken.setdefault(branch_id, [])
            self._taken.move_to_end(branch_id)
            if len(own) < MOST_TOKENS:
                own.append(seconds)
            while len(self._taken) > MOST_CHAINS:
                self._taken.popitem(last=False)

    def median(self, branch_id: int) -> float | None:
        """Median seconds of a token after the first, which also reads the prompt; None if there was none."""
        with self._lock:
            own = self._taken.get(branch_id, [])[1:]
        return median(own) if own else None
