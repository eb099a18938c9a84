"""Which process runs a job, and whether that process still lives."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import psutil

BOOT, PIDS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
"""On Linux, what tells one start of a system from another one, and containers with process numbers of their own."""

BORN_WITHIN = 5.0
"""Seconds by which two readings of one process's start may differ: systems correct their clocks."""


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A process."""

    host: str
    machine: str
    number: int
    born: float

    @classmethod
    def of(cls, number: int) -> Self:
        """A living process of this computer, by its number."""
        return cls(platform.node(), _machine(), number, _born(psutil.Process(number)))

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """The process that a job's row names; None where it names none."""
        return None if stored is None else cls(**stored)

    @property
    def json(self) -> dict[str, Any]:
        """As a job's row keeps it."""
        return asdict(self)

    @property
    def visible(self) -> bool:
        """Whether this process can tell if it lives."""
        return self.machine == _machine()

    @property
    def own(self) -> bool:
        """Whether it is this process."""
        return self.visible and self.number == os.getpid()

    @property
    def gone(self) -> bool:
        """Whether it has certainly ended; False where that cannot be told from here."""
        if not self.visible:
            return False
        try:
            process = psutil.Process(self.number)
            # A zombie has ended, and waits only for its parent to ask how.
            return process.status() == psutil.STATUS_ZOMBIE or abs(_born(process) - self.born) > BORN_WITHIN
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


@cache
def _machine() -> str:
    parts = [platform.node()]
    if BOOT.exists() and PIDS.exists():
        parts += [BOOT.read_text().strip(), str(PIDS.stat().st_ino)]
    return " ".join(parts)


def _born(process: psutil.Process) -> float:
    return float(process.create_time() - psutil.boot_time())
