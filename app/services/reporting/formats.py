"""How numbers, tokens and times are written in a report for people."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime

MINUS = "\N{MINUS SIGN}"

_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def probability(value: float) -> str:
    """A probability with three digits; a positive one never reads as zero."""
    text = f"{value:.3f}"
    return "<0.001" if value > 0 and float(text) == 0 else text


def threshold(value: float) -> str:
    """A threshold with two significant digits; ``"none"`` for 0."""
    if value <= 0:
        return "none"
    return f"{value:.{max(3, 1 - math.floor(math.log10(value)))}f}"


def signed(value: float) -> str:
    """A number with its sign, with a true minus."""
    text = f"{abs(value):.2f}"
    if math.isinf(value):
        return f"{MINUS if value < 0 else '+'}\N{INFINITY}"
    if float(text) == 0:
        return text
    return f"+{text}" if value > 0 else f"{MINUS}{text}"


def times(log_ratio: float) -> str:
    """A log ratio of factual to masked as a factor, for a column."""
    factor = math.exp(min(abs(log_ratio), 20.0))
    if factor < 1.05:
        return "about equal"
    shown = f"{factor:.1f}" if factor < 100 else f"{factor:,.0f}"
    return f"{shown}\N{MULTIPLICATION SIGN} {'visible' if log_ratio > 0 else 'masked'}"


def times_likelier(log_ratio: float) -> str:
    """What a log ratio of factual to masked says, in a sentence."""
    factor = math.exp(min(abs(log_ratio), 20.0))
    if factor < 1.05:
        return "about as likely with the attribute masked"
    shown = f"{factor:.1f}" if factor < 100 else f"{factor:,.0f}"
    return f"{shown} times likelier when the attribute is {'visible' if log_ratio > 0 else 'masked'}"


def shown_token(token: str) -> str:
    """A token's text without its leading space; line ends, blanks and control characters are made visible."""
    text = token[1:] if len(token) > 1 and token.startswith(" ") else token
    text = text.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}").replace("\t", "\N{RIGHTWARDS ARROW}")
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if text.strip() else "\N{OPEN BOX}" * max(1, len(text))


def visible(text: str) -> str:
    """Text in which nothing reorders or hides other text: such control characters are named in place."""
    return "".join(f"[U+{ord(char):04X}]" if _misleads(char) else char for char in text)


def quoted(token: str) -> str:
    """A token in a sentence."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{shown_token(token)}\N{RIGHT DOUBLE QUOTATION MARK}"


def moment(time: datetime) -> str:
    """A time, in UTC so that the report reads the same everywhere."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def plural(number: int, noun: str) -> str:
    """A count with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(digest: str) -> str:
    """A digest's beginning."""
    return f"{digest[:12]}\N{HORIZONTAL ELLIPSIS}" if len(digest) > 12 else digest


def _misleads(char: str) -> bool:
    """Control characters and those that change the direction of text; joiners, which scripts need, are neither."""
    return char in _DIRECTIONS or (unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t")
