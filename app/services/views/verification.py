"""What the verification of a report found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CheckStatus = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified.

    Attributes:
        name: What was verified, e.g. ``"Thresholds by step"``.
        status: ``passed``, ``failed`` or ``skipped``.
        detail: How much was looked at, or why nothing was.
        problems: What does not fit, each with its place; the first ones if there are many.
        problem_count: How many there are.
    """

    name: str
    status: CheckStatus
    detail: str
    problems: tuple[str, ...] = ()
    problem_count: int = 0


@dataclass(frozen=True, slots=True)
class Untold:
    """Something in a file that no check can tell.

    Attributes:
        file: The file, such as ``"report.json"``.
        fields: Its fields, from the top down, such as ``"session.name"``.
        reason: What it is and why it cannot be told, a sentence.
    """

    file: str
    fields: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The finding on a report or an evidence bundle.

    Attributes:
        source: Name of the file.
        session: The session in words; empty if the report could not be read.
        bundle_digest: SHA-256 of the bundle's manifest, to be compared with what the auditor published; None for a
            report without a bundle.
        checks: What was verified, in order.
        beyond: What no check could tell, file by file.
    """

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
