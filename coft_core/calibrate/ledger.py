"""A ledger in memory, with a form in bytes that a store can keep."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
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
        """Tie the ledger to the inputs that its results depend on; called before anything is read or put."""

    def get_many(self, phase: str, examples: Sequence[int]) -> dict[int, Entry]:
        """What is known of some examples."""

    def put_many(self, phase: str, results: Mapping[int, Entry]) -> None:
        """Keep what a batch gave, by number of the example."""


def ledger_key(
    kind: str, fingerprints: Sequence[Fingerprint], examples: Sequence[Example], settings: Mapping[str, object]
) -> str:
    """The key of all that results depend on: 64 hexadecimal digits; ``settings`` are JSON values."""
    content = {
        "version": KEY_VERSION,
        "kind": kind,
        "fingerprints": [fingerprint.to_dict() for fingerprint in fingerprints],
        "examples": [asdict(example) for example in examples],
        "settings": dict(settings),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LedgerPhase:
    """One phase of a calibration over the examples that it runs."""

    ledger: Ledger | None
    label: str
    examples: tuple[int, ...]

    def completed(
        self,
        shapes: Mapping[str, tuple[tuple[int, ...], ...]],
        batches: Callable[[], Iterable[Sequence[int]]],
        work: Callable[[list[list[int]]], Iterable[Iterable[Entry]]],
        done: Callable[[int], None],
    ) -> list[Entry]:
        """What every example gives: what the ledger knows, and the rest batch by batch."""
        known_entries = self._known(shapes)
        if known_entries:
            done(len(known_entries))
        formed = batches() if len(known_entries) < len(self.examples) else ()
        left = [[place for place in batch if place not in known_entries] for batch in formed]
        left = [places for places in left if places]
        for places, given in zip(left, work(left), strict=True):
            entries = dict(zip(places, given, strict=True))
            known_entries.update(entries)
            self._put(entries)
            done(len(places))
        return [known_entries[place] for place in range(len(self.examples))]

    def _known(self, shapes: Mapping[str, tuple[tuple[int, ...], ...]]) -> dict[int, Entry]:
        """What the ledger knows, by the examples' places in this phase."""
        if self.ledger is None:
            return {}
        stored = self.ledger.get_many(self.label, self.examples)
        known = {place: stored[number] for place, number in enumerate(self.examples) if number in stored}
        for place, entry in known.items():
            expected = {name: shape[place] for name, shape in shapes.items()}
            if set(entry) != set(expected) or not all(_fits(entry[name].shape, expected[name]) for name in expected):
                raise LedgerMismatchError(
                    f"What was worked out for example {self.examples[place]} in the phase {self.label!r} does not fit "
                    "it; delete it and calibrate from the beginning."
                )
        return known

    def _put(self, results: Mapping[int, Entry]) -> None:
        if self.ledger is not None:
            self.ledger.put_many(self.label, {self.examples[place]: entry for place, entry in results.items()})


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(e in (-1, length) for length, e in zip(shape, expected, strict=True))


VERSION = 1
_HEADER = "header"
_DAMAGE = (KeyError, ValueError, TypeError, EOFError, OSError, MemoryError, zipfile.BadZipFile, zlib.error)

_Block = tuple[str, str, str, int]
"""Phase, name, type and number of dimensions of arrays that are stored end to end."""


class MemoryLedger:
    """Results of single examples, by phase and number of the example.

    Its bytes are whole between two batches: take them from the calibration's progress callback, or after it.
    """

    def __init__(self) -> None:
        """An empty ledger without a key."""
        self._key = self.phase = ""
        self._found: dict[str, dict[int, Entry]] = {}

    @property
    def key(self) -> str:
        """Key of the inputs that it belongs to; empty before its first use."""
        return self._key

    def bind(self, key: str) -> None:
        """Take the inputs' key, or see that it is the same."""
        if self._key not in ("", key):
            raise LedgerMismatchError(
                "What was worked out so far belongs to another model, prompt set or setting; calibrate from the "
                "beginning, or resume with exactly what it was begun with."
            )
        self._key = key

    def get_many(self, phase: str, examples: Sequence[int]) -> dict[int, Entry]:
        """What is known of some examples, by number."""
        self.phase, entries = phase, self._found.get(phase, {})
        return {number: entries[number] for number in examples if number in entries}

    def put_many(self, phase: str, results: Mapping[int, Entry]) -> None:
        """Keep what a batch gave, by number of the example."""
        self._found.setdefault(phase, {}).update(results)

    def __len__(self) -> int:
        """Number of results, over all phases."""
        return sum(len(entries) for entries in self._found.values())

    def to_bytes(self) -> bytes:
        """Compressed NumPy archive; equal arrays of all examples lie end to end in it."""
        blocks: dict[_Block, list[tuple[int, npt.NDArray[Any]]]] = {}
        for phase, entries in self._found.items():
            for number, entry in entries.items():
                for name, array in entry.items():
                    blocks.setdefault((phase, name, array.dtype.str, array.ndim), []).append((number, array))
        header = {"version": VERSION, "key": self._key, "blocks": [block[:2] for block in blocks]}
        arrays: dict[str, npt.NDArray[Any]] = {_HEADER: np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        for index, members in enumerate(blocks.values()):
            arrays[f"examples{index}"] = np.array([number for number, _ in members], dtype=np.int64)
            arrays[f"shapes{index}"] = np.array([array.shape for _, array in members], dtype=np.int64)
            arrays[f"data{index}"] = np.concatenate([array.ravel() for _, array in members])
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> MemoryLedger:
        """Rebuild from :meth:`to_bytes`. Nothing in the data is executed."""
        ledger = cls()
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                header = json.loads(archive[_HEADER].tobytes())
                if header["version"] != VERSION:
                    raise ValueError(header["version"])
                ledger._key = str(header["key"])
                for index, (phase, name) in enumerate(header["blocks"]):
                    parts = (archive[f"{part}{index}"] for part in ("examples", "shapes", "data"))
                    for number, array in _members(*parts):
                        entries = ledger._found.setdefault(phase, {})
                        entries[number] = {**entries.get(number, {}), name: array}
        except _DAMAGE as error:
            raise LedgerMismatchError(
                "What was worked out so far is damaged or was kept by another version; calibrate from the beginning."
            ) from error
        return ledger


def _members(
    examples: npt.NDArray[Any], shapes: npt.NDArray[Any], data: npt.NDArray[Any]
) -> list[tuple[int, npt.NDArray[Any]]]:
    sizes = shapes.prod(axis=1)  # (n,)
    if sizes.sum() != data.size:
        raise ValueError("the arrays do not fill their block")
    pieces = np.split(data, np.cumsum(sizes)[:-1])
    return [
        (number, piece.reshape(shape))
        for number, shape, piece in zip(examples.tolist(), shapes.tolist(), pieces, strict=True)
    ]
