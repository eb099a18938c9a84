"""What the store takes on the disk, and how much of it each account has made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.accounts.service import AccountService
from app.hosting.limits import SECONDS
from app.shared.wiring import Services
from db.accounts import AccountRecord
from db.disk import DiskRepository

PARTS = {
    "audit_sessions": "sessions",
    "batches": "batches",
    "calibration_runs": "calibrations",
    "comparisons": "comparisons",
    "decision_runs": "decisions",
    "evaluations": "evaluations",
    "jobs": "jobs with their results",
    "prompt_sets": "prompt sets",
    "swaps": "swaps",
    "user_lists": "word lists",
}
"""What the rows of a table are, by its name."""


@dataclass(frozen=True, slots=True)
class AccountDisk:
    """What an account has made."""

    account: AccountRecord
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes of all of it, in all projects."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Who takes how much."""

    accounts: Sequence[AccountDisk]
    store: int
    account_limit: int
    store_limit: int

    @property
    def others(self) -> int:
        """Bytes that are counted to no account."""
        return max(0, self.store - sum(one.total for one in self.accounts))


class DiskService:
    """Says who takes how much of the store."""

    def __init__(self, services: Services) -> None:
        self._accounts, self._disk = services[AccountService], services[DiskRepository]
        self._settings = services.settings
        self._measured: tuple[float, Mapping[int | None, Mapping[str, int]]] = (0.0, {})

    def use(self) -> DiskUse:
        """Who takes how much, measured once a minute."""
        until, found = self._measured
        if until <= time.monotonic():
            found = self._disk.by_account()
            self._measured = time.monotonic() + SECONDS, found
        accounts = [AccountDisk(account, found.get(account.id, {})) for account in self._accounts.list()]
        limits = self._settings.disk_mb_per_account * 1_000_000, self._settings.disk_mb * 1_000_000
        return DiskUse(accounts, self._disk.of_all, *limits)


def amount(size: int) -> str:
    """Bytes in a sentence."""
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB" if size else "nothing"


def parts_words(parts: Mapping[str, int]) -> str:
    """What an account has made, the largest part first."""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{PARTS[table]} {amount(size)}" for table, size in ordered)


def disk_sentence(use: DiskUse) -> str:
    """What the store takes, and what of it is counted to nobody."""
    allowed = f" of {use.store_limit / 1e6:,.0f} MB that it may take" if use.store_limit else ""
    return (
        f"The store takes {amount(use.store)}{allowed}. {amount(use.others)} of it belong to no account: what the "
        "command line stored, what all share, and the store's own indexes."
    )
