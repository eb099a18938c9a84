"""How continuations are read as answers to a question: by words, by expressions, or by a classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import regex

from app.paths.types import Question
from app.shared.answers import answered, phrases
from app.shared.errors import ServiceError
from coft_core.scorers.base import ToxicityScorer

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
    yes, no = _pattern(question.yes, question), _pattern(question.no, question) if question.no.strip() else None
    return lambda texts: [answered(text, yes, no, "a path") for text in texts]


def _pattern(text: str, question: Question) -> regex.Pattern[str]:
    terms = [text] if question.regex else text.split(",")
    return phrases(terms, question.regex, question.match_case)
