"""What a calibration has worked out so far, so that one that was cancelled is resumed and not repeated.

Results are kept by phase (``"reference"``, ``"rollout/2"``, ``"verification"``, ...) and example. A ledger is bound to
the inputs that its results depend on, and refused for others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy.typing as npt

from coft_core.errors import LedgerMismatchError
from coft_core.fingerprint import Fingerprint
from coft_core.types import Example

KEY_VERSION = 1
"""Part of every key; raised when results are computed or laid out otherwise."""

Entry = Mapping[str, npt.NDArray[Any]]
"""What one example gave in one phase: small arrays by name."""


class Ledger(Protocol):
    """Keeps results of single examples; a store can implement it, :class:`MemoryLedger` is the plain one."""

    def bind(self, key: str) -> None:
        """Tie the ledger to the inputs that its results depend on; called before anything is read or put.

        Args:
            key: The inputs' key, see :func:`ledger_key`.

        Raises:
            LedgerMismatchError: It is tied to other inputs.
        """

    def get_many(self, phase: str, examples: Sequence[int]) -> dict[int, Entry]:
        """What is known of some examples.

        Args:
            phase: The phase's label.
            examples: Numbers of examples, from 1.

        Returns:
            Entries by number; examples of which nothing is known are left out.
        """

    def put_many(self, phase: str, results: Mapping[int, Entry]) -> None:
        """Keep what a batch gave, by number of the example."""


def ledger_key(
    kind: str, fingerprints: Sequence[Fingerprint], examples: Sequence[Example], settings: Mapping[str, object]
) -> str:
    """The key of all that results depend on.

    Args:
        kind: What is worked out, for example ``"reference"``.
        fingerprints: The policies, one a fusion weight.
        examples: The prompts, in their order.
        settings: Whatever else results depend on; JSON values.

    Returns:
        64 hexadecimal digits.
    """
    content = {
        "version": KEY_VERSION,
        "kind": kind,
        "fingerprints": [own.to_dict() for own in fingerprints],
        "examples": [asdict(example) for example in examples],
        "settings": dict(settings),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LedgerPhase:
    """One phase of a calibration over the examples that it runs.

    Attributes:
        ledger: The ledger; None knows nothing and keeps nothing.
        label: The phase's label.
        examples: Number of each example, from 1.
    """

    ledger: Ledger | None
    label: str
    examples: tuple[int, ...]

    def known(self, shapes: Mapping[str, tuple[tuple[int, ...], ...]]) -> dict[int, Entry]:
        """What the ledger knows, by the examples' places in this phase.

        Args:
            shapes: For each array its shape in each example; -1 allows any length.

        Raises:
            LedgerMismatchError: An entry cannot belong to its example.
        """
        if self.ledger is None:
            return {}
        found = self.ledger.get_many(self.label, self.examples)
        known = {place: found[number] for place, number in enumerate(self.examples) if number in found}
        for place, entry in known.items():
            expected = {name: own[place] for name, own in shapes.items()}
            if set(entry) != set(expected) or not all(_fits(entry[name].shape, expected[name]) for name in expected):
                raise LedgerMismatchError(
                    f"What was worked out for example {self.examples[place]} in the phase {self.label!r} does not fit "
                    "it; delete it and calibrate from the beginning."
                )
        return known

    def put(self, results: Mapping[int, Entry]) -> None:
        """Keep what a batch gave, by the examples' places in this phase."""
        if self.ledger is not None and results:
            self.ledger.put_many(self.label, {self.examples[place]: entry for place, entry in results.items()})


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(e in (-1, own) for own, e in zip(shape, expected, strict=True))
