"""Which passwords are taken, and those that the program makes itself."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from app.shared.errors import ServiceError
from coft_core.assets import assets_path
from db.accounts import AccountRecord

SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1000
FEWEST_GUESSES = 10**8
"""Of somebody who tries common passwords, words, names, keyboard rows and years first, as zxcvbn counts them."""
READ = 72
"""Characters that are counted; what begins so that it takes enough guesses takes more as a whole."""

COMMON, DIGEST_BYTES = assets_path("passwords", "common_long.sha256"), 8
"""Digests of the 10,000 commonest passwords of 12 characters and more, of which zxcvbn counts many as hard to guess."""

PROGRAM_WORDS = ("coft",)
SHORTEST_WORD = 4
"""Letters of a part of a name that no password may have; shorter ones are in many words."""

_READABLE = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that are not mistaken for others when they are copied by hand."""
_GROUPS = 7


ONE_TIME = timedelta(days=3)
"""How long a password for one sign-in is valid."""


@dataclass(frozen=True, slots=True)
class OneTimePassword:
    """A password for one sign-in; its text is shown this once."""

    account: AccountRecord
    password: str


def one_time_password() -> str:
    """Twenty-eight letters and digits in fours: 138 bits."""
    return "-".join("".join(secrets.choice(_READABLE) for _ in range(4)) for _ in range(_GROUPS))


def usable(password: str, name: str) -> str:
    """A password that an account may have, as it was given."""
    # Read when it is needed: its dictionaries take longer to read than most commands take.
    from zxcvbn import zxcvbn

    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ServiceError(
            f"The password has {len(password)} characters; give {SHORTEST_PASSWORD} to {LONGEST_PASSWORD:,}."
        )
    for word in (*PROGRAM_WORDS, *_parts(name)):
        if word in _letters(password):
            raise ServiceError(f"The password has {word!r} in it, which is part of a name; leave names out of it.")
    guesses = zxcvbn(password[:READ], user_inputs=[name])["guesses"]
    if guesses < FEWEST_GUESSES or digest_of_common(password) in _common():
        raise ServiceError("The password is too easily guessed; several words that do not belong together are better.")
    return password


def digest_of_common(password: str) -> bytes:
    """The first bytes of a password's SHA-256, in whatever case it is written, by which common ones are kept."""
    return hashlib.sha256(password.casefold().encode()).digest()[:DIGEST_BYTES]


@cache
def _common() -> frozenset[bytes]:
    kept = COMMON.read_bytes()
    return frozenset(kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text.casefold())


def _parts(name: str) -> list[str]:
    """What of a name no password may have: each part that is long enough, and the whole."""
    parts = [_letters(part) for part in re.split(r"[\W_]+", name)]
    return [part for part in (*parts, _letters(name)) if len(part) >= SHORTEST_WORD]
