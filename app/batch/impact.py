"""How the texts of a batch are read as outcomes: who is selected, and who scores above the median."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import regex

from app.prompts.rows import BatchRowView
from app.shared.answers import answered, expression, found, phrases
from app.shared.errors import ServiceError
from app.shared.format import plural
from app.shared.impact import ImpactTable, Outcome, OutcomeRule


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of a batch's decided rows with their contexts, and the lines of those that are in no rate."""

    pairs: tuple[Outcome, ...]
    undecided: tuple[int, ...]
    unfinished: tuple[int, ...]
    unanswered: tuple[int, ...] = ()
    contexts: tuple[str | None, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out and must be said with a table of them."""
        left_out = (
            (self.undecided, "with neither word in the continuation"),
            (self.unfinished, "without a finished continuation"),
            (self.unanswered, "without an answer, since the thinking before it did not end"),
        )
        return tuple(f"{plural(len(lines), 'row')} {why}: in no rate." for lines, why in left_out if lines)


def outcomes_of(rows: Iterable[BatchRowView], rule: OutcomeRule) -> Outcomes:
    """The outcomes of a batch's rows."""
    selected = phrases([rule.selected], rule.regex, rule.match_case)
    other = phrases([rule.other], rule.regex, rule.match_case) if rule.other.strip() else None
    decided, contexts, undecided, unfinished, unanswered = [], [], [], [], []
    for row in rows:
        if row.state != "finished":
            unfinished.append(row.line)
            continue
        if row.answer is None:
            unanswered.append(row.line)
            continue
        if (answer := answered(row.answer, selected, other, f"line {row.line}")) is None:
            undecided.append(row.line)
        else:
            decided.append((row.group, answer))
            contexts.append(row.context)
    return Outcomes(tuple(decided), tuple(undecided), tuple(unfinished), tuple(unanswered), tuple(contexts))


NUMBER = "number"
"""Asks for the first number of a text as its score."""
_FIRST_NUMBER = r"(?<![\w.])([-+]?\d+(?:\.\d+)?)(?![\w])"


def scores_of(rows: Iterable[BatchRowView], read: str) -> tuple[Outcomes, float]:
    """Whether each text scores above the median of all, also of those whose group is unknown; and the median.

    For tools that score, Local Law 144 asks for these rates in place of selection rates (sections 5-300, 5-301 (c)).
    """
    pattern = expression(_FIRST_NUMBER if read == NUMBER else read)
    if not pattern.groups:
        raise ServiceError(f"{read!r} has no group that holds the score; put the number in brackets, as in (\\d+).")
    scored, unscored, unfinished = [], [], []
    for row in rows:
        if row.state != "finished":
            unfinished.append(row.line)
        elif (score := _score(pattern, row)) is None:
            unscored.append(row.line)
        else:
            scored.append((row, score))
    if not scored:
        raise ServiceError("No text has a score, so there are no scoring rates; check how scores are to be read.")
    middle = median(score for _, score in scored)
    decided = tuple((row.group, score > middle) for row, score in scored)
    return Outcomes(decided, tuple(unscored), tuple(unfinished)), middle


def _score(pattern: regex.Pattern[str], row: BatchRowView) -> float | None:
    match = found(pattern, row.answer or "", f"line {row.line}")
    if match is None or match[1] is None:
        return None
    try:
        return float(match[1])
    except ValueError as error:
        raise ServiceError(
            f"{pattern.pattern!r} finds {match[1]!r} in line {row.line}, which is not a number; correct the expression."
        ) from error


def impact_json(table: ImpactTable, outcomes: Outcomes, rule: OutcomeRule) -> dict[str, Any]:
    """Selection rates and impact ratios, with the rule and the rows that they rest on."""
    return {
        "rule": asdict(rule),
        "groups": [{**asdict(row), "below_four_fifths": row.below_four_fifths} for row in table.rows],
        "unknown": table.unknown,
        "excluded": table.excluded,
        "undecided": list(outcomes.undecided),
        "unfinished": list(outcomes.unfinished),
        "notes": [*table.notes, *outcomes.notes],
    }
