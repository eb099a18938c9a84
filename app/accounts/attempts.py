"""Limits of attempts to sign in, and what the trail has of them."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock

from cachetools import TTLCache

from app.shared.errors import ServiceError
from db.accounts import SignInsRepository
from db.trail import TrailFields, TrailRepository
from db.types import utc_now

WINDOW = timedelta(minutes=15)
PER_ACCOUNT, PER_ADDRESS = 8, 30
"""Attempts to sign in within the window: under one name, and from one address."""

SELDOM, SELDOM_SECONDS = 100, 60.0
"""Entries of the trail in so many seconds for what is refused without being looked at; more would fill the store."""


class SignInError(ServiceError):
    """A sign-in that is refused."""

    def __init__(self, sentence: str, throttled: bool = False, choose: bool = False) -> None:
        super().__init__(sentence)
        self.throttled, self.choose = throttled, choose


class Attempts:
    """Limits attempts for each name and address; all servers on one store count together."""

    def __init__(self, sign_ins: SignInsRepository, trail: TrailRepository) -> None:
        """Keep the store."""
        self._sign_ins, self._trail = sign_ins, trail
        self._told: TTLCache[tuple[str, str, str], bool] = TTLCache(SELDOM, SELDOM_SECONDS)
        self._lock = Lock()

    def begin(self, action: str, name: str, address: str) -> dict[str, int]:
        """Count an attempt from its beginning."""
        keys = {f"account:{name.lower()}": PER_ACCOUNT, f"address:{address}": PER_ADDRESS}
        if self._sign_ins.attempt(keys, utc_now() - WINDOW):
            minutes = int(WINDOW.total_seconds() // 60)
            self._note_seldom(action, name, "too many attempts", address)
            raise SignInError(f"There were too many attempts to sign in. Wait {minutes} minutes.", throttled=True)
        return keys

    def note_strange_token(self, address: str) -> None:
        """Write to the trail that a program has sent an invalid token."""
        self._note_seldom("show a token", "", "refused", address)

    def _note_seldom(self, action: str, subject: str, outcome: str, address: str) -> None:
        """Write what anybody may repeat without end once a minute for each name and address, and for few of them."""
        with self._lock:
            if (told := (action, subject.lower(), address)) in self._told or len(self._told) >= SELDOM:
                return
            self._told[told] = True
        self._trail.add(TrailFields(actor="", action=action, subject=subject, outcome=outcome, address=address))
