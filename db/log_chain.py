"""The hash chain of a session's verdict log: every entry names the digest of the one before it.

An entry's digest is the SHA-256 of its content in canonical JSON (keys sorted, no spaces, ASCII only) together with the
digest of the entry before it. Whoever changes, removes or inserts an entry must therefore change every later digest.
Removing the newest entries leaves a whole, shorter chain: that shows against a digest that was written down before,
such as one in a report.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FORMAT = 1
"""Version of what goes into a digest; it never changes for entries that are written."""

FIRST = "0" * 64
"""Stands for the digest before the first entry."""

LogContent = Mapping[str, str | int | bool | None]
"""What an entry says, in JSON's types."""


@dataclass(frozen=True, slots=True)
class LogBreak:
    """The first place at which a log does not hold together.

    Attributes:
        entry: Number of the entry, 1-based.
        reason: What is wrong with it, one sentence.
    """

    entry: int
    reason: str


def entry_digest(content: LogContent, previous: str) -> str:
    """Digest of an entry.

    Args:
        content: What the entry says.
        previous: Digest of the entry before it; :data:`FIRST` for the first one.

    Returns:
        64 hexadecimal digits.
    """
    text = json.dumps(
        {**content, "format": FORMAT, "previous": previous}, sort_keys=True, ensure_ascii=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def first_break(entries: Sequence[tuple[LogContent, str, str]]) -> LogBreak | None:
    """The first broken link of a log; None if it is whole.

    Args:
        entries: Content, digest of the entry before and own digest of each entry, oldest first. The content's
            ``entry`` is its number, 1-based.
    """
    last = FIRST
    for number, (content, previous, digest) in enumerate(entries, 1):
        if content["entry"] != number:
            return LogBreak(number, f"Entry {number} is missing: entry {content['entry']} stands in its place.")
        if previous != last:
            return LogBreak(number, f"Entry {number} does not follow the entry before it: one of them was replaced.")
        if entry_digest(content, previous) != digest:
            return LogBreak(number, f"Entry {number} was changed after it was written: its digest does not fit.")
        last = digest
    return None
