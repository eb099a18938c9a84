"""What verification finds: checks with their problems, and what no check can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

CheckStatus = Literal["passed", "failed", "unknown", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified."""

    name: str
    status: CheckStatus
    detail: str
    problems: tuple[str, ...] = ()
    problem_count: int = 0


@dataclass(frozen=True, slots=True)
class Untold:
    """Something in a file that no check can tell."""

    file: str
    fields: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The finding on a report or an evidence bundle."""

    source: str
    session: str
    bundle_digest: str | None
    checks: tuple[Check, ...]
    beyond: tuple[Untold, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.status != "failed" for check in self.checks)

    def count(self, status: CheckStatus) -> int:
        """Number of checks with a status."""
        return sum(check.status == status for check in self.checks)


MOST_PROBLEMS = 20
"""Problems of one check that are kept in words; the others are counted."""


class Findings:
    """Collects the problems of one check."""

    def __init__(self, name: str) -> None:
        """Begin a check."""
        self._name = name
        self._problems: list[str] = []
        self._looked_at = 0

    def expect(self, holds: bool, problem: str) -> bool:
        """Count one comparison, and keep the problem if it does not hold."""
        self._looked_at += 1
        if not holds:
            self._problems.append(problem)
        return holds

    def same(self, place: str, what: str, stated: object, recomputed: object) -> bool:
        """Expect a stated value to be the one that was found."""
        return self.expect(
            stated == recomputed, f"{place}: {what} is stated as {_shown(stated)} and is {_shown(recomputed)}."
        )

    def near(self, place: str, what: str, stated: float | None, recomputed: float | None, tolerance: float) -> bool:
        """Expect a stated number to be the one that was computed, within a tolerance."""
        return self.expect(
            is_near(stated, recomputed, tolerance),
            f"{place}: {what} is stated as {_shown(stated)} and computed as {_shown(recomputed)}.",
        )

    def check(self, detail: str = "", otherwise: CheckStatus = "passed") -> Check:
        """The finished check."""
        count = len(self._problems)
        return Check(
            name=self._name,
            status="failed" if count else otherwise,
            detail=detail or f"{self._looked_at:,} comparisons",
            problems=tuple(self._problems[:MOST_PROBLEMS]),
            problem_count=count,
        )


def skipped(name: str, why: str) -> Check:
    """A check that could not be made."""
    return Check(name, "skipped", why)


def failed(name: str, problem: str) -> Check:
    """A check that ended before it had begun."""
    return Check(name, "failed", "could not be read", (problem,), 1)


def is_near(stated: float | None, recomputed: float | None, tolerance: float) -> bool:
    """Whether two numbers are equal within a tolerance; infinities and absent numbers equal only themselves."""
    if stated is None or recomputed is None:
        return stated is recomputed
    if math.isinf(stated) or math.isinf(recomputed):
        return stated == recomputed
    return abs(stated - recomputed) <= tolerance


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
