"""How continuations are read as answers to a question: by words, by expressions, or by a classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import regex

from app.paths.types import Question
from app.shared.errors import ServiceError
from coft_core.scorers.base import ToxicityScorer

SECONDS_PER_TEXT = 1.0
"""Longest search of one continuation; a badly written expression would otherwise never end."""

Reader = Callable[[Sequence[str]], list[bool | None]]
"""Gives the outcome of each continuation: True, False, or None where it answers neither way."""


def reader_of(question: Question, scorer: ToxicityScorer | None) -> Reader | None:
    """What reads continuations; None where nothing is asked."""
    if not question.asked:
        return None
    if question.scorer.strip():
        if question.yes.strip() or question.no.strip():
            raise ServiceError("Words and a classifier are both given; ask by one of them.")
        if not 0 <= question.threshold <= 1:
            raise ServiceError(f"The threshold is {question.threshold:g}; choose a probability from 0 to 1.")
        if scorer is None:
            raise RuntimeError(f"The classifier {question.scorer!r} is not loaded.")
        loaded = scorer
        return lambda texts: [score >= question.threshold for score in loaded.score(texts)]
    yes = pattern(question.yes, question)
    no = pattern(question.no, question) if question.no.strip() else None
    return lambda texts: [_outcome(text, yes, no) for text in texts]


def pattern(text: str, question: Question) -> regex.Pattern[str]:
    """A question's words or expression as a pattern."""
    flags = 0 if question.match_case else regex.IGNORECASE
    if not question.regex:
        terms = [r"\s+".join(map(regex.escape, term.split())) for term in text.split(",") if term.strip()]
        if not terms:
            raise ServiceError(f"{text!r} has no word; write words separated by commas, such as approved, granted.")
        # "hire" must not be found in "hired"; a word that ends in a sign, such as C++, still is.
        return regex.compile(rf"(?<!\w)(?:{'|'.join(terms)})(?!\w)", flags)
    try:
        return regex.compile(text, flags)
    except regex.error as error:
        raise ServiceError(
            f"{text!r} is not a regular expression ({error}); correct it, or search for words."
        ) from error


def _outcome(text: str, yes: regex.Pattern[str], no: regex.Pattern[str] | None) -> bool | None:
    at, against = _first(yes, text), None if no is None else _first(no, text)
    if no is None:
        return at is not None
    if at is None and against is None:
        return None
    return at is not None and (against is None or at < against)


def _first(searched: regex.Pattern[str], text: str) -> int | None:
    try:
        match = searched.search(text, timeout=SECONDS_PER_TEXT)
    except TimeoutError as error:
        raise ServiceError(
            f"Searching a path for {searched.pattern!r} takes too long; write a simpler expression."
        ) from error
    return None if match is None else match.start()
