"""How texts are read as answers: by words or by expressions, of which the one that comes first decides."""

from __future__ import annotations

from collections.abc import Iterable

import regex

from app.shared.errors import ServiceError

SECONDS_PER_TEXT = 1.0
"""Longest search of one text; a badly written expression would otherwise never end."""


def expression(text: str) -> regex.Pattern[str]:
    """A regular expression as it was typed."""
    return _compiled(text, 0)


def phrases(terms: Iterable[str], as_expressions: bool = False, match_case: bool = False) -> regex.Pattern[str]:
    """A pattern that finds any of some words or phrases, or of some expressions."""
    flags = 0 if match_case else regex.IGNORECASE
    named = [term for term in terms if term.strip()]
    if not named:
        raise ServiceError("No word is given; write one, such as hired.")
    if as_expressions:
        return _compiled("|".join(named), flags)
    # "hire" must not be found in "hired"; a word that ends in a sign, such as C++, still is.
    words = "|".join(r"\s+".join(map(regex.escape, term.split())) for term in named)
    return regex.compile(rf"(?<!\w)(?:{words})(?!\w)", flags)


def found(pattern: regex.Pattern[str], text: str, where: str) -> regex.Match[str] | None:
    """The first match in a text, of which ``where`` says what it is."""
    try:
        return pattern.search(text, timeout=SECONDS_PER_TEXT)
    except TimeoutError as error:
        raise ServiceError(
            f"Searching {where} for {pattern.pattern!r} takes too long; write a simpler expression."
        ) from error


def answered(text: str, yes: regex.Pattern[str], no: regex.Pattern[str] | None, where: str) -> bool | None:
    """Whether a text says yes; where there is a no, too, the first of both decides, and without either nothing."""
    at, against = found(yes, text, where), None if no is None else found(no, text, where)
    if no is not None and at is None and against is None:
        return None
    return at is not None and (against is None or at.start() < against.start())


def _compiled(text: str, flags: int) -> regex.Pattern[str]:
    try:
        return regex.compile(text, flags)
    except regex.error as error:
        raise ServiceError(f"{text!r} is not a regular expression ({error}); correct it.") from error
