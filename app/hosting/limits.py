"""What one visitor may ask of a server, so that the others are served too."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.visitors import present_account
from app.shared.wiring import Services
from coft_core.errors import ModelLoadError
from coft_core.model.served import PREFIX
from db.accounts import AccountRecord
from db.database import Database
from db.disk import DiskRepository
from db.types import StoreError

SECONDS = 60.0
"""For how long an account that has room is not measured again: it takes a walk through all that it made."""
NOT_OFFERED = (
    "This server does not load the model {name!r}; choose one that it offers: {offered}. The server's owner lists them "
    "in COFT_MODELS."
)


class OfferedModels:
    """Which models a server loads: all, or those that its settings list, and of served ones only those listed."""

    def __init__(self, listed: str, served: Collection[str] = ()) -> None:
        """Read the list; ``served`` are names of served models."""
        self._listed = [part.strip() for part in listed.split(",") if part.strip()]
        self._served = tuple(served)
        self._folders = [Path(part).resolve() for part in self._listed if Path(part).is_absolute()]

    def require(self, name: str) -> None:
        """Refuse a model that is not offered, with the same sentence whether it exists or not."""
        if not self.offers(name):
            if name.startswith(PREFIX):
                listed = ", ".join(self._served) or "none"
                raise ModelLoadError(f"COFT_SERVED does not list {name!r}; it lists: {listed}.")
            raise ModelLoadError(NOT_OFFERED.format(name=name, offered=", ".join((*self._listed, *self._served))))

    def offers(self, name: str) -> bool:
        """Whether a model is offered."""
        if name.startswith(PREFIX):
            return name in self._served
        if not self._listed:
            return True
        # A folder may be reached by another path, or by a link.
        path = Path(name.partition("#")[0])
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((".",), ("~",)):
            return any(path.resolve().is_relative_to(folder) for folder in self._folders)
        return any(name == part or (part.endswith("/") and name.startswith(part)) for part in self._listed)


class DiskRoom:
    """Whether the store may grow; what is begun goes on all the same, so that nothing is lost by it."""

    def __init__(self, database: Database, megabytes: int = 0, per_account: int = 0) -> None:
        """Allow the store so many megabytes, and what each account made so many of them; 0 sets no limit."""
        self._database, self._disk = database, DiskRepository(database)
        self._most, self._each = megabytes * 1_000_000, per_account * 1_000_000
        self._roomy_until: dict[int, float] = {}

    @classmethod
    def wired(cls, services: Services) -> DiskRoom:
        """As the settings say."""
        settings = services.settings
        return cls(services.database, settings.disk_mb, settings.disk_mb_per_account)

    def problem(self, account: AccountRecord | None) -> str:
        """Why nothing more is taken of an account, or of anybody, as a sentence; empty where there is room."""
        try:
            return self._of_all() or ("" if account is None else self._of(account))
        except StoreError:
            # Whoever then writes is told of it by the store itself.
            return ""

    def _of(self, account: AccountRecord) -> str:
        if not self._each or self._roomy_until.get(account.id, 0.0) > time.monotonic():
            return ""
        used = self._disk.of_account(account.id)
        if used < self._each:
            self._roomy_until[account.id] = time.monotonic() + SECONDS
            return ""
        return (
            f"What {account.name} has made takes {used / 1e6:,.0f} MB in the store, and this server allows each "
            f"account {self._each / 1e6:,.0f}: delete sessions, evaluations or other things of yours that nobody "
            "needs, in any of your projects, or ask an admin for room. The server's owner sets that in "
            "COFT_DISK_MB_PER_ACCOUNT."
        )

    def _of_all(self) -> str:
        used = self._database.used_bytes if self._most else 0
        if not self._most or used < self._most:
            return ""
        return (
            f"The store takes {used / 1e6:,.0f} MB on the disk, and this server allows it {self._most / 1e6:,.0f}: "
            "delete sessions or evaluations that nobody needs. The server's owner sets that in COFT_DISK_MB."
        )

    def require(self) -> None:
        """Refuse what would make the store grow."""
        if problem := self.problem(present_account()):
            raise ServiceError(problem)


def require_room_for_job(unfinished: int, settings: Settings) -> None:
    """Refuse a visitor's job beyond those that may be at work or wait."""
    if settings.jobs_per_visitor and unfinished >= settings.jobs_per_visitor:
        raise ServiceError(
            f"{unfinished} of your jobs are at work or wait for their turn, and this server takes "
            f"{settings.jobs_per_visitor} of each visitor; wait for one, or cancel one. The server's owner sets that "
            "in COFT_JOBS_PER_VISITOR."
        )
