"""Reading continuations as outcomes: selected or not, by a word, a regular expression, or which of two comes first."""

from __future__ import annotations

from collections.abc import Iterable

import regex  # type: ignore[import-untyped]

from app.services.errors import ServiceError
from app.services.views.batches import BatchRowView, OutcomeRule, Outcomes, RowOutcome

SECONDS_PER_TEXT = 1.0
"""Longest search of one continuation; a badly written expression would otherwise never end."""


def outcomes_of(rows: Iterable[BatchRowView], rule: OutcomeRule) -> Outcomes:
    """The outcomes of a batch's rows.

    Args:
        rows: The rows; only finished ones have an outcome.
        rule: How a continuation is read.

    Raises:
        ServiceError: The rule has no word, an expression cannot be read, or a search takes too long.
    """
    selected, other = _pattern(rule.selected, rule), _pattern(rule.other, rule) if rule.other.strip() else None
    decided, undecided, unfinished = [], [], []
    for row in rows:
        if row.state != "finished":
            unfinished.append(row.line)
            continue
        at = _first(selected, row)
        against = None if other is None else _first(other, row)
        if other is not None and at is None and against is None:
            undecided.append(row.line)
        else:
            decided.append(RowOutcome(row.line, row.group, at is not None and (against is None or at < against)))
    return Outcomes(tuple(decided), tuple(undecided), tuple(unfinished))


def _pattern(text: str, rule: OutcomeRule) -> regex.Pattern[str]:
    if not text.strip():
        raise ServiceError("No word is given, so nothing tells who is selected; write one, such as hired.")
    flags = 0 if rule.match_case else regex.IGNORECASE
    if not rule.regex:
        # "hire" must not be found in "hired"; a word that ends in a sign, such as C++, still is.
        words = r"\s+".join(regex.escape(word) for word in text.split())
        return regex.compile(rf"(?<!\w){words}(?!\w)", flags)
    try:
        return regex.compile(text, flags)
    except regex.error as error:
        raise ServiceError(
            f"{text!r} is not a regular expression ({error}); correct it, or search for words."
        ) from error


def _first(pattern: regex.Pattern[str], row: BatchRowView) -> int | None:
    try:
        found = pattern.search(row.text, timeout=SECONDS_PER_TEXT)
    except TimeoutError as error:
        raise ServiceError(
            f"Searching line {row.line} for {pattern.pattern!r} takes too long; write a simpler expression."
        ) from error
    return None if found is None else found.start()
