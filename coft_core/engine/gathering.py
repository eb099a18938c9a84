"""Whom a joint forward waits for: those of the forward before it who were back in time before.

Sessions that step beside each other come back from a forward one after the other. If the first one back ran alone, the
others would wait for the whole of that forward, and everybody for two forwards a step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from weakref import WeakKeyDictionary, WeakSet

from coft_core.engine.branches import BranchBatch

PATIENCE = 1.0
"""How long a forward waits after the one before it, as a share of the time that one took.

Whoever misses a forward waits for the whole of it, so that up to there waiting costs no more than it saves.
"""


class Gathering:
    """Knows who took part in the newest forward and how long each is usually away; keeps no batch alive."""

    def __init__(self, patience: float = PATIENCE) -> None:
        """Nobody took part in anything yet.

        Args:
            patience: Longest wait after a forward, as a share of the time that it took; 0 never waits.
        """
        self._patience = patience
        self._newest: WeakSet[BranchBatch] = WeakSet()
        self._served_at: WeakKeyDictionary[BranchBatch, float] = WeakKeyDictionary()
        self._away: WeakKeyDictionary[BranchBatch, float] = WeakKeyDictionary()
        self._seconds, self._ended = 0.0, 0.0

    def asked(self, batch: BranchBatch, now: float) -> None:
        """A batch is back, at a time in seconds."""
        if (served_at := self._served_at.get(batch)) is not None:
            self._away[batch] = now - served_at

    def served(self, batches: Sequence[BranchBatch], began: float, ended: float) -> None:
        """A forward of these batches is done, one token a row, from and to a time in seconds."""
        self._newest = WeakSet(batches)
        self._seconds, self._ended = self._patience * (ended - began), ended
        for batch in batches:
            self._served_at[batch] = ended

    def left(self, now: float) -> float:
        """Seconds for which it still pays to wait."""
        return self._ended + self._seconds - now

    def complete(self, back: Collection[BranchBatch], model: object) -> bool:
        """Whether nobody is missing who could share the next forward and was in time before.

        Args:
            back: Who waits for the next forward.
            model: The module that runs it.
        """
        known = {id(batch) for batch in back}
        return not any(self._expected(batch, model) for batch in self._newest if id(batch) not in known)

    def _expected(self, batch: BranchBatch, model: object) -> bool:
        return batch.model.module is model and batch.may_join and self._away.get(batch, 0.0) <= self._seconds
