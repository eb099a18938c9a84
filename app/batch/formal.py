"""The formal report of a batch: what its rows say, with selection and scoring rates, handed to the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from app.batch.impact import NUMBER, Outcomes, outcomes_of, scores_of
from app.batch.service import BatchView
from app.shared.formal_reports import AuditedBatch, RateTable
from app.shared.impact import OutcomeRule, impact_table


@dataclass(frozen=True)
class RatesRule(OutcomeRule):
    """How rates are read from a batch.

    Attributes:
        selected: whoever's text has this word or phrase is selected; without it there are no selection rates
        other: a second one; the one that stands first decides
        regex: they are regular expressions
        match_case: letter case counts
        score: "number" for the first number of a text as its score, or a regular expression with the number in its
            first group; without it there are no scoring rates
        exclude_small: leave groups below 2 % of the rows out of the impact ratios
    """

    selected: str = ""
    score: str = ""
    exclude_small: bool = False


def audited_batch(view: BatchView, rule: RatesRule) -> AuditedBatch:
    """A batch as its formal report needs it."""
    finished = [row for row in view.rows if row.state == "finished"]
    return AuditedBatch(
        id=view.id,
        name=view.name,
        file=view.filename,
        created_at=view.created_at,
        rows=len(view.rows),
        sessions=tuple(row.session_id for row in finished if row.session_id is not None),
        groups=tuple(dict.fromkeys(row.group for row in view.rows if row.group)),
        verdicts=Counter(row.verdict for row in finished if row.verdict),
        selection=_selection(view, rule) if rule.selected.strip() else None,
        scoring=_scoring(view, rule) if rule.score.strip() else None,
    )


def _selection(view: BatchView, rule: RatesRule) -> RateTable:
    read = {"pattern": rule.selected.strip(), "other": rule.other.strip(), "regex": rule.regex}
    return _rates("selection", outcomes_of(view.rows, rule), rule, **read)


def _scoring(view: BatchView, rule: RatesRule) -> RateTable:
    outcomes, middle = scores_of(view.rows, rule.score)
    return _rates("scoring", outcomes, rule, pattern="" if rule.score == NUMBER else rule.score, median=middle)


def _rates(kind: Literal["selection", "scoring"], outcomes: Outcomes, rule: RatesRule, **read: Any) -> RateTable:
    table = impact_table(outcomes.pairs, rule.exclude_small)
    return RateTable(
        kind=kind,
        rows=table.rows,
        unknown=table.unknown,
        undecided=len(outcomes.undecided) + len(outcomes.unanswered),
        unfinished=len(outcomes.unfinished),
        excluded=table.excluded,
        **read,
    )
