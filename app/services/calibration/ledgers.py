"""What a running calibration has worked out, kept in the store so that it can be resumed."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from coft_core.conformal.ledger import Entry
from coft_core.conformal.memory_ledger import MemoryLedger
from coft_core.errors import LedgerMismatchError
from db.repositories import LedgersRepository

SAVE_SECONDS = 2.0
"""Least time between two saves of one job."""

SAVING_SHARE = 0.05
"""Share of a job's time that may go into saving; what takes long to write is written less often."""


class KeptLedger:
    """The ledgers of a job's stages in memory, saved now and then, and once more when the job ends early.

    Used as a context around the work: they are deleted when the work is done, and saved when it is cancelled or fails.

    Attributes:
        phase: Label of the phase that is at work, as the core calls it.
    """

    def __init__(
        self,
        ledgers: LedgersRepository,
        job_id: int,
        prompt_set_id: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take up what the store has for a job, or begin with nothing.

        Args:
            ledgers: Where it is kept.
            job_id: The job.
            prompt_set_id: The prompt set that the job works on.
            clock: Monotonic seconds.

        Raises:
            LedgerMismatchError: What is stored is damaged, or of another version.
        """
        self._ledgers = ledgers
        self._job_id, self._prompt_set_id = job_id, prompt_set_id
        self._clock = clock
        stored = ledgers.load(job_id)
        self._stages: dict[str, MemoryLedger] = {} if stored is None else _unpacked(stored)
        self._saved = self._size
        self._due = clock() + SAVE_SECONDS
        self.phase = ""

    def stage(self, name: str) -> StageLedger:
        """The ledger of one stage of the work; each stage is bound to its own inputs."""
        return StageLedger(self, self._stages.setdefault(name, MemoryLedger()))

    def save_if_due(self) -> None:
        """Save between two batches, if the last save is long enough ago."""
        if self._clock() < self._due:
            return
        began = self._clock()
        self.save()
        ended = self._clock()
        self._due = ended + max(SAVE_SECONDS, (ended - began) / SAVING_SHARE)

    def save(self) -> None:
        """Save what is new, whole or not at all."""
        if self._size != self._saved:
            self._ledgers.save(self._job_id, self._prompt_set_id, _packed(self._stages))
            self._saved = self._size

    @property
    def _size(self) -> int:
        return sum(len(ledger) for ledger in self._stages.values())

    def __enter__(self) -> Self:
        """Begin the work."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete what was kept after the work, or save it if the work ended early."""
        if error is None:
            self._ledgers.delete(self._job_id)
        else:
            self.save()


class StageLedger:
    """The ledger of one stage, as the core takes it."""

    def __init__(self, kept: KeptLedger, ledger: MemoryLedger) -> None:
        """Made by :meth:`KeptLedger.stage`."""
        self._kept, self._ledger = kept, ledger

    def bind(self, key: str) -> None:
        """Tie the ledger to the inputs that its results depend on."""
        self._ledger.bind(key)

    def get_many(self, phase: str, examples: Sequence[int]) -> dict[int, Entry]:
        """What is known of some examples."""
        self._kept.phase = phase
        return self._ledger.get_many(phase, examples)

    def put_many(self, phase: str, results: Mapping[int, Entry]) -> None:
        """Keep what a batch gave."""
        self._kept.phase = phase
        self._ledger.put_many(phase, results)


def _packed(stages: Mapping[str, MemoryLedger]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, ledger in stages.items():
            archive.writestr(name, ledger.to_bytes())
    return buffer.getvalue()


def _unpacked(data: bytes) -> dict[str, MemoryLedger]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: MemoryLedger.from_bytes(archive.read(name)) for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise LedgerMismatchError(
            "What was worked out so far is damaged; start a new calibration from the beginning."
        ) from error
