"""What verification finds: checks with their problems, and what no check can tell."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, ParamSpec, TypeAlias

from app.shared.errors import ServiceError
from coft_core.errors import CoftError

P = ParamSpec("P")
CheckStatus = Literal["passed", "failed", "unsigned", "unknown", "skipped"]

MOST_PROBLEMS = 20
"""Problems of one check that are kept in words; the others are counted."""


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
        return not self.count("failed")

    @property
    def code(self) -> int:
        """How the command ends: 1 if something failed, 3 if only a signature is missing."""
        return 1 if not self.ok else 3 if self.count("unsigned") else 0

    def count(self, status: CheckStatus) -> int:
        """Number of checks with a status."""
        return sum(check.status == status for check in self.checks)


@dataclass(frozen=True, slots=True)
class Within:
    """What is computed where only bounds of a number follow."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        """The bounds in words."""
        if math.isinf(self.low):
            return f"at most {_shown(self.high)}"
        return f"at least {_shown(self.low)}" if math.isinf(self.high) else f"{_shown(self.low)} to {_shown(self.high)}"


class Skipped(Exception):  # noqa: N818 - a check that is not made is no error
    """A check cannot be made; the text says why."""


class Unproven(str):
    """The detail of a check in which nothing failed, and which proves nothing."""

    status: CheckStatus = "unknown"


class Unsigned(Unproven):
    """The same of a signature that is missing."""

    status = "unsigned"


Compared: TypeAlias = tuple[bool, str]
"""Whether a comparison holds, and the problem if it does not."""
Comparing: TypeAlias = Generator[Compared, None, str | None]
"""The comparisons of a check; it returns what was looked at, if that is more than a number of comparisons."""


def same(place: str, what: str, stated: object, computed: object, tolerance: float = 0.0) -> Compared:
    """Compare what is stated with what was computed, or with its bounds; numbers within a tolerance."""
    sentence = f"{place}: {what} is stated as {_shown(stated)} and computed as {_shown(computed)}."
    return _holds(stated, computed, tolerance), sentence


def check(name: str) -> Callable[[Callable[P, Comparing]], Callable[P, Check]]:
    """Declare a check by its comparisons."""

    def declared(body: Callable[P, Comparing]) -> Callable[P, Check]:
        @functools.wraps(body)
        def carried_out(*args: P.args, **kwargs: P.kwargs) -> Check:
            problems, looked_at, comparisons = [], 0, body(*args, **kwargs)
            try:
                while True:
                    holds, problem = next(comparisons)
                    looked_at += 1
                    if not holds:
                        problems.append(problem)
            except StopIteration as end:
                detail = end.value or f"{looked_at:,} comparisons"
            except Skipped as why:
                return Check(name, "skipped", str(why))
            except (CoftError, ServiceError) as error:
                return failed(name, str(error))
            proven: CheckStatus = detail.status if isinstance(detail, Unproven) else "passed"
            status: CheckStatus = "failed" if problems else proven
            return Check(name, status, str(detail), tuple(problems[:MOST_PROBLEMS]), len(problems))

        return carried_out

    return declared


def failed(name: str, problem: str) -> Check:
    """A check that ended before it had begun."""
    return Check(name, "failed", "could not be read", (problem,), 1)


def _holds(stated: object, computed: object, tolerance: float) -> bool:
    """Whether values are equal; infinities and absent numbers equal only themselves."""
    if isinstance(computed, Within) and isinstance(stated, int | float):
        return computed.low - tolerance <= stated <= computed.high + tolerance
    if tolerance and isinstance(stated, float) and isinstance(computed, int | float):
        infinite = math.isinf(stated) or math.isinf(computed)
        return stated == computed if infinite else abs(stated - computed) <= tolerance
    return stated == computed


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
