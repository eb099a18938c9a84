"""How pages, commands and reports write numbers, times and tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from app.shared.audits import FAMILY_NAMES
from coft_core.effects import ABOUT_ONCE, factor_of
from coft_core.messages import catalogue

_DIGEST = re.compile(r"(?<![0-9A-Za-z])([0-9a-f]{12})[0-9a-f]{0,52}(?![0-9A-Za-z])")

MINUS = "\N{MINUS SIGN}"
MOST_DIGITS = 4


def probability(value: float, digits: int = 2) -> str:
    """A probability with fixed digits; a positive one never reads as zero."""
    text = f"{value:.{digits}f}"
    if value > 0 and float(text) == 0:
        return f"<{10**-digits:.{digits}f}"
    return text


def threshold(value: float) -> str:
    """A threshold with two significant digits and no exponent; ``"none"`` for 0."""
    if value <= 0:
        return "none"
    places = max(2, 1 - math.floor(math.log10(value)))
    return f"{value:.{places}f}" if places <= 2 else f"{value:.{places}f}".rstrip("0")


def table_threshold(value: float) -> str:
    """A threshold for a column: two significant digits, at least three places, zeros kept."""
    if value <= 0:
        return "none"
    return f"{value:.{max(3, 1 - math.floor(math.log10(value)))}f}"


def level(value: float) -> str:
    """A risk or coverage level: two places, more only where they are needed."""
    return f"{value:.2f}" if abs(value - round(value, 2)) < 1e-9 else f"{value:.4g}"


def percentage(share: float) -> str:
    """A share in a sentence, ``"97.5 %"`` unbroken; a small one never reads as none, and a large one never as all."""
    text = f"{100 * share:.1f}".removesuffix(".0")
    if share > 0 and text == "0":
        text = "<0.1"
    if share < 1 and text == "100":
        text = ">99.9"
    return f"{text}\N{NO-BREAK SPACE}%"


def p_text(p_value: float) -> str:
    """A p-value in a sentence."""
    return f"p = {p_value:.2g}" if p_value >= 0.001 else "p < 0.001"


def digits_for(values: list[float], tau: float) -> int:
    """Fewest digits (2 to 4) at which every value compares with tau as it does in full precision."""
    for digits in range(2, MOST_DIGITS):
        limit = round(tau, digits)
        agrees = all((round(value, digits) >= limit) == (value >= tau) for value in values)
        if agrees and (tau == 0 or limit > 0) and max(values, default=1.0) >= 10 ** (1 - digits):
            return digits
    return MOST_DIGITS


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, with a true minus; also an infinite one."""
    text = "\N{INFINITY}" if math.isinf(value) else f"{abs(value):.{digits}f}"
    if not math.isinf(value) and float(text) == 0:
        return text
    return f"+{text}" if value > 0 else f"{MINUS}{text}"


def count(value: int) -> str:
    """A whole number with thousands separated."""
    return f"{value:,}"


def duration(seconds: float) -> str:
    """A length of time, roughly: nobody can say more about a running job."""
    if seconds < 1:
        return "less than 1 s"
    if seconds < 90:
        return f"about {round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"about {minutes} min"
    return f"about {minutes // 60} h {minutes % 60:02d} min"


def plural(number: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def quoted(token: str) -> str:
    """A token in a sentence."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{shown_token(token)}\N{RIGHT DOUBLE QUOTATION MARK}"


def shown_token(token: str) -> str:
    """A token's text without its leading space, and with line ends and blanks made visible."""
    text = token[1:] if len(token) > 1 and token.startswith(" ") else token
    text = text.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}").replace("\t", "\N{RIGHTWARDS ARROW}")
    return text if text.strip() else "\N{OPEN BOX}" * max(1, len(text))


def times_likelier(log_ratio: float) -> str:
    """What a log ratio of factual to masked says, as a factor."""
    factor = factor_text(log_ratio)
    if factor is None:
        return "about as likely with the attribute masked"
    when = "when the attribute is visible" if log_ratio > 0 else "when the attribute is masked"
    return f"{factor} times likelier {when}"


def times(log_ratio: float) -> str:
    """The same for a column."""
    factor = factor_text(log_ratio)
    if factor is None:
        return "about equal"
    return f"{factor}\N{MULTIPLICATION SIGN} {'visible' if log_ratio > 0 else 'masked'}"


def factor_text(log_ratio: float) -> str | None:
    """How many times likelier or less likely a log ratio is; None where that is about once."""
    factor = factor_of(log_ratio)
    return None if factor < ABOUT_ONCE else catalogue("en").factor(factor)


def clock(moment: datetime) -> str:
    """Time of day in the computer's zone."""
    return moment.astimezone().strftime("%H:%M") if moment.tzinfo else moment.strftime("%H:%M")


def day(moment: datetime) -> str:
    """Date and time of day."""
    local = moment.astimezone() if moment.tzinfo else moment
    return local.strftime("%Y-%m-%d %H:%M")


def moment(time: datetime) -> str:
    """A time, in UTC so that a file reads the same everywhere."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def short(digest: str) -> str:
    """A digest's beginning."""
    return f"{digest[:12]}\N{HORIZONTAL ELLIPSIS}" if len(digest) > 12 else digest


def abbreviated(text: str) -> str:
    """A text in which digests show their first 12 digits; what is copied or exported holds them whole."""
    return _DIGEST.sub("\\1\N{HORIZONTAL ELLIPSIS}", text)


def listed(parts: Sequence[object], last: str = "and") -> str:
    """Parts of a sentence: ``a``, ``a and b``, ``a, b and c``; empty for none."""
    *others, final = map(str, parts) if parts else ("",)
    return f"{', '.join(others)} {last} {final}" if others else final


def named(families: Sequence[str], last: str = "and") -> str:
    """Families in a sentence."""
    return listed([FAMILY_NAMES.get(family, family) for family in families], last) or "no family"
