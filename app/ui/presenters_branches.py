"""What the audit page says of a policy's branches, of their cost, and of what each masked span contributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from app.services.views import FAMILY_NAMES, LeaveOneOut, SpanContribution
from app.ui.presenters_families import named
from app.ui.presenters_format import plural, signed

DECIMALS = 4


class SpanLine(TypedDict):
    """One masked span: ``t`` its words, ``f`` family key, ``n`` family's name, ``r`` log-ratios, ``z`` logits."""

    t: str
    f: str
    n: str
    r: list[float]
    z: list[float]


class Contributions(TypedDict):
    """Contributions by step: ``spans`` the lines, ``r`` and ``z`` totals, ``x`` what no span has alone, ``peak``."""

    kind: str
    spans: list[SpanLine]
    r: list[float]
    z: list[float]
    x: list[float]
    peak: str


def branches_text(branches: Sequence[str]) -> str:
    """Which readings of the prompt each step takes; empty where nobody knows."""
    if not branches:
        return ""
    if not _is_factorized(branches):
        own = len(branches) - 2
        more = f", and {plural(own, 'reading')} of the method’s own" if own > 0 else ""
        return f"{len(branches)} branches: as typed{',' if own > 0 else ', and'} masked{more}."
    each = " one at a time" if len(branches) > 2 else ""
    return f"{len(branches)} branches: as typed, and with {named(branches[1:])} masked{each}."


def reading_text(branches: Sequence[str]) -> str:
    """What the shown masked reading is when there are several; empty for the joint one."""
    if not _is_factorized(branches) or len(branches) < 3:
        return ""
    return f"Each of {named(branches[1:])} is masked in a branch of its own; here all of them are masked at once."


def contributions_message(prompt: str, found: LeaveOneOut) -> Contributions:
    """What each span contributes, step by step; contributions need not sum to the total."""
    return Contributions(
        kind="contributions",
        spans=[_line(prompt, own) for own in found.spans],
        r=_rounded(found.log_ratio),
        z=_rounded(found.sensitivity),
        x=_rounded(found.interaction),
        peak=_peak(prompt, found),
    )


def _line(prompt: str, own: SpanContribution) -> SpanLine:
    family = own.span.category
    return SpanLine(
        t=prompt[own.span.start : own.span.end],
        f=family,
        n=FAMILY_NAMES.get(family, family),
        r=_rounded(own.log_ratio),
        z=_rounded(own.sensitivity),
    )


def _peak(prompt: str, found: LeaveOneOut) -> str:
    """The largest contribution in a sentence, for those who do not see the picture."""
    cells = [
        (abs(value), value, step, own)
        for own in found.spans
        for value, step in zip(own.log_ratio, found.steps, strict=True)
    ]
    if not cells:
        return "No span is masked, so there is nothing to contribute."
    _, value, step, own = max(cells, key=lambda cell: cell[0])
    word = prompt[own.span.start : own.span.end]
    return f"The largest contribution is {signed(value)}, of “{word}” to the token of step {step + 1}."


def _is_factorized(branches: Sequence[str]) -> bool:
    return len(branches) > 1 and branches[1] != "masked"


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, DECIMALS) for value in values]
