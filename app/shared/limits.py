"""What one visitor may ask of a server, so that the others are served too."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.visitors import present_account, visitor_asking
from app.shared.wiring import Services
from coft_core.errors import ModelLoadError
from db.accounts import AccountRecord
from db.database import Database
from db.disk import DiskRepository
from db.types import StoreError

HOUR = 3600.0
SECONDS = 60.0
"""For how long an account that has room is not measured again: it takes a walk through all that it made."""
SHARES = 4
"""A visitor's events take at most this part of the places that wait for their turn."""
NOT_OFFERED = (
    "This server does not load the model {name!r}; choose one that it offers: {offered}. The server's owner lists them "
    "in COFT_MODELS."
)


class OfferedModels:
    """Which models a server loads: all, or those that its settings list."""

    def __init__(self, listed: str) -> None:
        """Read the list."""
        self._listed = [part.strip() for part in listed.split(",") if part.strip()]
        self._folders = [Path(part).resolve() for part in self._listed if Path(part).is_absolute()]

    def require(self, name: str) -> None:
        """Refuse a model that is not offered, with the same sentence whether it exists or not."""
        if self._listed and not self._offers(name):
            raise ModelLoadError(NOT_OFFERED.format(name=name, offered=", ".join(self._listed)))

    def _offers(self, name: str) -> bool:
        # A folder may be reached by another path, or by a link.
        path = Path(name.partition("#")[0])
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((".",), ("~",)):
            return any(path.resolve().is_relative_to(folder) for folder in self._folders)
        return any(name == part or (part.endswith("/") and name.startswith(part)) for part in self._listed)


def address_of(connection: HTTPConnection) -> str:
    """Whose share a request takes: the account's, and else that of its address, which cookies cannot vary."""
    visitor = visitor_asking(connection)
    if visitor.account is not None:
        return visitor.owner or ""
    return "" if connection.client is None else connection.client.host


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


class UploadShares:
    """How much each visitor has uploaded in the last hour."""

    def __init__(
        self, megabytes: int, clock: Callable[[], float] = time.monotonic, room: DiskRoom | None = None
    ) -> None:
        """Allow each visitor so many megabytes an hour, 0 setting no limit, while the store has room."""
        self._most = megabytes * 1_000_000
        self._room = room
        self._clock = clock
        self._taken: deque[tuple[float, str, int]] = deque()

    def take(self, address: str, size: int) -> bool:
        """Count an upload; False where it is more than the visitor may, and is not counted."""
        if not self._most:
            return True
        now = self._clock()
        while self._taken and self._taken[0][0] <= now - HOUR:
            self._taken.popleft()
        if sum(one for _, whose, one in self._taken if whose == address) + size > self._most:
            return False
        self._taken.append((now, address, size))
        return True

    def problem(self, connection: HTTPConnection, largest: int) -> tuple[int, str] | None:
        """Why an upload is not taken; None where it is, or is none. One without a length counts as the largest."""
        if not connection.url.path.endswith("/upload"):
            return None
        if self._room is not None and (full := self._room.problem(visitor_asking(connection).account)):
            return 507, full
        stated = Headers(scope=connection.scope).get("content-length", "")
        if self.take(address_of(connection), int(stated) if stated.isdecimal() else largest):
            return None
        return 429, (
            f"More than {self._most // 1_000_000} MB were uploaded from here within an hour; upload more later. "
            "The server's owner sets that in COFT_UPLOADS_MB_PER_HOUR."
        )


def share_queue(queue: Any) -> None:
    """Let no visitor take more than her share of the places in which events wait for their turn."""
    push = queue.push

    async def shared(body: Any, request: Any, username: str | None) -> Any:
        waiting = [event for waits in queue.event_queue_per_concurrency_id.values() for event in waits.queue]
        asking = address_of(request)
        own = sum(address_of(event.request) == asking for event in waiting)
        if queue.max_size is not None and own >= max(1, queue.max_size // SHARES):
            said = f"{own} of your requests wait for their turn; wait until some are answered."
            return False, said, "queue_full"
        return await push(body, request, username)

    queue.push = shared


def require_room_for_job(unfinished: int, settings: Settings) -> None:
    """Refuse a visitor's job beyond those that she may have at work and waiting."""
    if settings.jobs_per_visitor and unfinished >= settings.jobs_per_visitor:
        raise ServiceError(
            f"{unfinished} of your jobs are at work or wait for their turn, and this server takes "
            f"{settings.jobs_per_visitor} of each visitor; wait for one, or cancel one. The server's owner sets that "
            "in COFT_JOBS_PER_VISITOR."
        )
