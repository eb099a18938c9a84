"""Scoring rates: how often each group scores above the median of all, against the group that does so most often.

For tools that score, New York City's Local Law 144 asks for these in place of selection rates (Rules of the City of New
York, title 6, sections 5-300 and 5-301 (c)).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import regex

from app.batch.impact import Outcome
from app.shared.answers import expression, found
from app.shared.errors import ServiceError
from app.shared.prompt_rows import BatchRowView

NUMBER = "number"
"""Asks for the first number of a text as its score."""
_FIRST_NUMBER = r"(?<![\w.])([-+]?\d+(?:\.\d+)?)(?![\w])"


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a batch's finished rows."""

    scored: tuple[tuple[str | None, float], ...]
    unscored: tuple[int, ...]
    unfinished: tuple[int, ...]

    @property
    def median(self) -> float:
        """The median of all scores, also of those whose group is unknown."""
        if not self.scored:
            raise ServiceError("No text has a score, so there are no scoring rates; check how scores are to be read.")
        return median(score for _, score in self.scored)

    @property
    def pairs(self) -> list[Outcome]:
        """Group, and whether the score is above the median, as impact tables take them."""
        middle = self.median
        return [(group, score > middle) for group, score in self.scored]


def scores_of(rows: Iterable[BatchRowView], read: str) -> Scores:
    """The scores of a batch's rows."""
    pattern = expression(_FIRST_NUMBER if read == NUMBER else read)
    if not pattern.groups:
        raise ServiceError(f"{read!r} has no group that holds the score; put the number in brackets, as in (\\d+).")
    scored: list[tuple[str | None, float]] = []
    unscored, unfinished = [], []
    for row in rows:
        if row.state != "finished":
            unfinished.append(row.line)
        elif (score := _score(pattern, row)) is None:
            unscored.append(row.line)
        else:
            scored.append((row.group, score))
    return Scores(tuple(scored), tuple(unscored), tuple(unfinished))


def _score(pattern: regex.Pattern[str], row: BatchRowView) -> float | None:
    match = found(pattern, row.answer or "", f"line {row.line}")
    if match is None or match[1] is None:
        return None
    try:
        return float(match[1])
    except ValueError as error:
        raise ServiceError(
            f"{pattern.pattern!r} finds {match[1]!r} in line {row.line}, which is no number; correct the expression."
        ) from error
