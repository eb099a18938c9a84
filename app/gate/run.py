"""Runs a check: prompts and items are read in a random order until every claim is decided or the budget is spent.

Stopping as soon as a claim is decided costs nothing: all verdicts together are wrong with at most the file's risk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.evaluate.service import SuiteReading
from app.gate.file import Asked
from app.gate.judge import Item, Judged, Verdict
from app.gate.prompts import PromptClaims, Setting
from app.gate.suites import SuiteClaims, SuiteRead
from db.prompt_sets import PromptRow

Told = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Change:
    """How the rate of a group has changed, over contexts that both checks read.

    ``low`` and ``high`` are a 95 % bootstrap interval over contexts. ``p_value`` is that of McNemar's exact test, where
    outcomes are yes or no.
    """

    outcome: str
    group: str
    contexts: int
    change: float
    low: float
    high: float
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found.

    Attributes:
        prompts: Rows that were read.
        unread: Rows of the file that were not.
        suites: How far each suite was read.
        left_out: Rows and items that could not be used, with the reason.
    """

    asked: Asked
    model: str
    weights_digest: str
    prompts_digest: str
    judged: tuple[Judged, ...]
    prompts: int
    unread: int
    suites: tuple[SuiteRead, ...]
    seconds: float
    items: tuple[Item, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """That of the whole: one failure fails it, and undecided is never a pass."""
        verdicts = {one.verdict for one in self.judged}
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"


def run_check(
    asked: Asked,
    rows: Sequence[PromptRow],
    suites: Sequence[SuiteReading],
    setting: Setting,
    told: Told,
    digest: str = "",
    before: Sequence[Item] = (),
    clock: Callable[[], float] = time.monotonic,
) -> Checked:
    """Read prompts and suites in turn until every claim is decided, or the budget or what there is to read is spent."""
    began = clock()
    prompts = PromptClaims(asked, rows, setting, before)
    of_suites = [SuiteClaims(asked, reading, setting.policy) for reading in suites]
    parts: list[PromptClaims | SuiteClaims] = [prompts, *of_suites]
    while going := [part for part in parts if part.done < part.most and _undecided(part)]:
        if clock() - began >= asked.file.budget.seconds:
            break
        min(going, key=lambda part: part.done).read()
        told(sum(part.done for part in parts) / sum(part.most for part in parts), _so_far(parts))
    judged = {one.claim: one for part in parts for one in part.judged}
    return Checked(
        asked=asked,
        model=setting.model.name,
        weights_digest=setting.model.weights_digest,
        prompts_digest=digest,
        judged=tuple(judged[claim] for claim in asked.claims),
        prompts=prompts.done,
        unread=len(rows) - prompts.done,
        suites=tuple(part.read_so_far for part in of_suites),
        seconds=clock() - began,
        items=tuple(item for part in parts for item in part.items),
        left_out=tuple(one for part in parts for one in part.left_out),
    )


def _undecided(part: PromptClaims | SuiteClaims) -> int:
    return sum(one.verdict == "undecided" for one in part.judged)


def _so_far(parts: Sequence[PromptClaims | SuiteClaims]) -> str:
    open_claims, claims = sum(map(_undecided, parts)), sum(len(part.judged) for part in parts)
    return f"{sum(part.done for part in parts)} read, {claims - open_claims} of {claims} claims decided"
