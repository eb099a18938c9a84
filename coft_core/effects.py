"""One sentence for an effect: how likely a token is with the marked words shown, and with them masked."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from coft_core.messages import Catalogue
from coft_core.types import Span

NAMED_WORDS = 3
"""Masked words that a sentence names; more are counted."""
LARGEST_LOG = 20.0
"""Log ratios beyond this are given as this one: nobody needs more than a factor of some hundred millions."""
ABOUT_ONCE = 1.05
"""A factor under this is said to be about one."""
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def factor_of(log_ratio: float) -> float:
    """How many times likelier or less likely a log ratio is."""
    return math.exp(min(abs(log_ratio), LARGEST_LOG))


def visible(text: str) -> str:
    """Text in which nothing reorders or hides other text: such control characters are named in place."""
    return "".join(f"[U+{ord(char):04X}]" if _misleads(char) else char for char in text)


def _misleads(char: str) -> bool:
    """Control characters and those that change the direction of text; joiners, which scripts need, are neither."""
    return char in _DIRECTIONS or (unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t")


def masked_words(prompt: str, spans: Sequence[Span]) -> tuple[str, ...]:
    """The masked words of a prompt in its order; those that differ only by case or blanks appear once."""
    words = [" ".join(prompt[span.start : span.end].split()) for span in sorted(spans) if span.masked]
    return tuple(visible(word) for word in {word.casefold(): word for word in reversed(words)}.values())[::-1]


def named(words: Sequence[str], say: Catalogue) -> str:
    """Marked words in a sentence; beyond some they are counted."""
    quoted = [say.quoted(word) for word in words[:NAMED_WORDS]]
    if (more := len(words) - NAMED_WORDS) > 0:
        quoted.append(say.counted("effect.more_words", more))
    return say.listed(quoted)


def effect_sentence(
    log_ratio: float, words: Sequence[str], shown: str, masked: str, say: Catalogue, place: str = ""
) -> str:
    """How a token's probability differs between the two readings of a prompt, with both probabilities."""
    if not words:
        return say.say("effect.unmasked")
    factor = factor_of(log_ratio)
    kind = "little" if factor < ABOUT_ONCE else "more" if log_ratio > 0 else "less"
    values = {"words": named(words, say), "place": place, "shown": shown, "masked": masked}
    return say.counted(f"effect.{kind}", len(words), factor=say.factor(factor), **values)
