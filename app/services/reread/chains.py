"""Stored chains with their logits decoded, kept between two moves of a slider."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from app.services.mapping import step_from
from app.services.views import Step
from db.records import BranchRecord
from db.repositories import SessionsRepository

KEPT_BYTES = 256 * 1024 * 1024
"""Logits that are kept decoded at a time, of all chains together; the chain unused for longest goes first."""

_Key = tuple[int, int, str, datetime]


@dataclass(frozen=True, slots=True)
class StoredChain:
    """A chain and the tokens' texts that it knows.

    Attributes:
        steps: The steps, logits included.
        texts: Text by token id, of all tokens that stand in its steps and their candidates.
    """

    steps: tuple[Step, ...] = ()
    texts: dict[int, str] | None = None

    @property
    def size(self) -> int:
        """Bytes of its logits."""
        return sum(len(step.logits.values) for step in self.steps if step.logits is not None)


class StoredChains:
    """Reads chains from the store; what is known of a chain already is not read again."""

    def __init__(self, sessions: SessionsRepository, kept_bytes: int = KEPT_BYTES) -> None:
        """Read from a store.

        Args:
            sessions: The store.
            kept_bytes: Bytes of logits that are kept decoded.
        """
        self._sessions = sessions
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[_Key, StoredChain] = OrderedDict()
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Bytes of logits that are kept now."""
        with self._lock:
            return sum(chain.size for chain in self._kept.values())

    def of(self, branch: BranchRecord) -> StoredChain:
        """The chain of a branch as the store has it now.

        Raises:
            NotFoundError: The branch is gone.
            StoredLogitsError: The logits of a step are damaged.
        """
        # A number can be given again to another branch after a deletion; the rest tells the two apart.
        key = (branch.id, branch.session_id, branch.path, branch.created_at)
        with self._lock:
            known = self._kept.get(key, StoredChain())
        # Steps are only ever added, so that what is known stays true.
        fresh = self._sessions.chain(branch.id, with_logits=True, first=len(known.steps))
        if fresh or known.texts is None:
            added = tuple(step_from(record) for record in fresh)
            known = StoredChain((*known.steps, *added), {**(known.texts or {}), **_texts(added)})
        self._keep(key, known)
        return known

    def _keep(self, key: _Key, chain: StoredChain) -> None:
        with self._lock:
            self._kept[key] = chain
            self._kept.move_to_end(key)
            left = sum(kept.size for kept in self._kept.values())
            while left > self._kept_bytes:
                left -= self._kept.popitem(last=False)[1].size


def _texts(steps: tuple[Step, ...]) -> dict[int, str]:
    found = {row.token_id: row.token for step in steps for row in step.candidates}
    for step in steps:
        found[step.token_id], found[step.policy_token_id] = step.token, step.policy_token
    return found
