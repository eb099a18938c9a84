"""Column types that keep every value exactly, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import math
import re
import zlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, Double, LargeBinary, String
from sqlalchemy.types import TypeDecorator

JsonObject = dict[str, Any]
"""A JSON object with string keys; numbers in it must be finite."""


class StoreError(Exception):
    """The store could not do what was asked; the message says why and what to do."""


class NotFoundError(StoreError):
    """No row has the id that was asked for; whatever takes an id may raise it."""


class UnstorableValueError(StoreError, ValueError):
    """A value that no column can keep: NaN, a time without a zone, half of a character, or what JSON does not know."""


class ConflictError(StoreError):
    """The change contradicts what is already stored (a repeated step, branch or reference)."""


class CalibrationDeletedError(ConflictError):
    """A session cannot go on, because the calibration that its thresholds came from is no longer stored."""

    def __init__(self, label: str) -> None:
        """Name the calibration by what it was called."""
        super().__init__(
            f"The calibration “{label}” has been deleted, so this session cannot be continued; start a new one with "
            "another calibration."
        )


class ImportedSessionError(ConflictError):
    """A session that came from another server would be changed."""

    def __init__(self, session_id: int) -> None:
        """Name the session by its number."""
        super().__init__(
            f"Session {session_id} was imported from another server and is read-only; duplicate it to audit its prompt "
            "here."
        )


_ESCAPE = "\x10"
_TO_ESCAPE = re.compile("[\x00\x10]")
_ESCAPED = re.compile("\x10([0-9a-f]{4})")
_SURROGATE = re.compile("[\ud800-\udfff]")


def require_whole(text: str) -> str:
    """Return a text that holds no lone surrogate, which no page, file or UTF-8 database could take."""
    match = _SURROGATE.search(text)
    if match is None:
        return text
    before, after = text[max(0, match.start() - 20) : match.start()], text[match.end() : match.end() + 20]
    raise UnstorableValueError(
        f"The text “{mended(before)}\ufffd{mended(after)}” cannot be stored: it holds half of a character "
        f"(U+{ord(match.group()):04X}, a lone surrogate) where the \ufffd stands; delete it or type it again."
    )


def mended(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD, for words that the program itself puts together."""
    return _SURROGATE.sub("\ufffd", text)


def escape_text(text: str) -> str:
    """Rewrite a string so that any database accepts it, reversibly.

    PostgreSQL refuses NUL in text, yet a token or a pasted prompt can hold it. NUL and the escape itself (U+0010,
    "data link escape") become U+0010 and four hexadecimal digits; all other text is stored as it is.
    """
    return _TO_ESCAPE.sub(lambda match: f"{_ESCAPE}{ord(match.group()):04x}", text)


def unescape_text(stored: str) -> str:
    """Return the string that :func:`escape_text` rewrote."""
    # Nearly every text is as it was, and tables read many.
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), stored) if _ESCAPE in stored else stored


class AnyText(TypeDecorator[str]):
    """Text of any length that round-trips every string that is whole; see :func:`escape_text`."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape on the way in."""
        return None if value is None else escape_text(require_whole(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Unescape on the way out."""
        return None if value is None else unescape_text(value)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC and returned timezone-aware (SQLite itself drops the zone)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise UnstorableValueError(f"The time {value.isoformat()} has no timezone; give it one, such as UTC.")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Attach or convert to UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class RealNumber(TypeDecorator[float]):
    """A double that may be infinite (``log_tau = -inf`` certifies everything) and is never NaN.

    SQLite would turn NaN into NULL without a word, so NaN is refused.
    """

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """Refuse NaN."""
        if value is None:
            return None
        if math.isnan(value):
            raise UnstorableValueError("A number to be stored is NaN (not a number); compute it again or leave it out.")
        return float(value)


class CompressedBytes(TypeDecorator[bytes]):
    """Bytes kept zlib-compressed; readers get back exactly what was given."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Compress on the way in."""
        return None if value is None else zlib.compress(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Decompress on the way out."""
        return None if value is None else zlib.decompress(value)


def utc_now() -> datetime:
    """Return the present moment in UTC, timezone-aware."""
    return datetime.now(UTC)
