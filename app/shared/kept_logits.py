"""The logits of stored steps: packed where their model's matrix makes them small, and read back bit by bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from threading import Lock

from cachetools import LRUCache

from coft_core.logit_basis import LogitBasis, basis_named, basis_of, is_packed
from coft_core.model.language_model import LanguageModel
from coft_core.stored_logits import holds_all
from coft_core.types import Step
from db.logit_bases import LogitBases, PackedLogits
from db.sessions import SessionsRepository

AT_HAND = 2
"""Matrices that stay in memory, ready to be multiplied with: up to 48 MB each."""


def packed_logits(model: LanguageModel, step: Step) -> PackedLogits | None:
    """What the store keeps of a step's logits in place of themselves; None where they are kept as they are."""
    basis = None if step.logits is None else basis_of(model)
    data = None if basis is None or step.logits is None else basis.packed(step.logits)
    return None if basis is None or data is None else PackedLogits(data, basis.digest, basis.to_bytes)


class KeptLogits:
    """Reads the logits of chains."""

    def __init__(self, sessions: SessionsRepository, bases: LogitBases) -> None:
        """Read nothing yet."""
        self._sessions = sessions
        self._bases = bases
        self._lock = Lock()
        self._at_hand: LRUCache[str, LogitBasis] = LRUCache(AT_HAND)

    def of(self, branch_id: int, first: int = 0) -> Mapping[int, bytes]:
        """Logits of a chain from a step on, by the step's index, as :meth:`StoredLogits.to_bytes` gives them."""
        stored = self._sessions.logits(branch_id, first)
        rows = {index: data for index, data in stored.items() if is_packed(data) or holds_all(data)}
        named: defaultdict[str, list[int]] = defaultdict(list)
        for index, data in rows.items():
            if is_packed(data):
                named[basis_named(data)].append(index)
        found = dict(rows)
        for digest, indices in named.items():
            unpacked = self._basis(digest).unpacked([rows[index] for index in indices])
            found |= {index: logits.to_bytes() for index, logits in zip(indices, unpacked, strict=True)}
        return found

    def _basis(self, digest: str) -> LogitBasis:
        with self._lock:
            if digest not in self._at_hand:
                self._at_hand[digest] = LogitBasis.from_bytes(self._bases.read(digest))
            return self._at_hand[digest]
