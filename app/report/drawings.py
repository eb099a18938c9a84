"""What the pictures of a chain show: sensitivity by step, and set size with threshold by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from app.report import words
from app.shared.audits import SENSITIVE
from app.shared.format import plural, probability, threshold
from app.shared.step_words import has_threshold
from coft_core.types import Step

WIDTH = 680
"""Pixels of a chart: the width of a printed A4 page, so that the same drawing serves screen and paper."""
MOST_CELLS = 340
COLOURS = {
    "ink": "#1b1c1e", "quiet": "#666a70", "line": "#e3e3df", "accent": "#2b59c3", "bars": "#84878d",
    "signal": "#b4470c", "caution": "#855200",
}  # fmt: skip
LEFT, RIGHT = 58, WIDTH - 6
SIZES = (24, 98)
"""Top and bottom of the chart of set sizes."""
PROBABILITIES = (114, 194)
"""Top and bottom of the chart of probabilities, which has a logarithmic axis."""
_UP, _DOWN, _SCALE = 28, 11, 22.5
_DASHES = {"calibrated": "", "mismatch": "", "inherited": "1.5 3"}
"""Of the baseline: solid where thresholds are calibrated, dotted where borrowed, dashed where there is none."""


def strip(steps: Sequence[Step]) -> Mapping[str, Any]:
    """Sensitivity of every token: bars up where the visible attribute makes it likelier, down where masking does.

    Long chains share a cell among neighbours, which then shows the strongest of them.
    """
    per = max(1, math.ceil(len(steps) / MOST_CELLS))
    groups = [steps[start : start + per] for start in range(0, len(steps), per)]
    width, cells = WIDTH / max(len(groups), 1), []
    for index, group in enumerate(groups):
        strongest = max((step.diagnostics.log_ratio for step in group), key=abs)
        cells.append(
            {
                "left": (index + 0.15) * width,
                "wide": min(width * 0.7, 14),
                "high": min(_DOWN if strongest < 0 else _UP, abs(strongest) * _SCALE),
                "down": strongest < 0,
                "sensitive": abs(strongest) >= SENSITIVE,
                "fallback": any(step.fallback for step in group),
            }
        )
    baseline, start = [], 0
    for state, run in groupby(steps, lambda step: step.state):
        end = start + len(list(run))
        baseline.append((start / len(steps) * WIDTH, end / len(steps) * WIDTH, _DASHES.get(state, "5 3")))
        start = end
    hot = [str(step.index + 1) for step in steps if abs(step.diagnostics.log_ratio) >= SENSITIVE]
    said = f"sensitive at {'step' if len(hot) == 1 else 'steps'} {', '.join(hot)}" if hot else "no step is sensitive"
    label = f"Sensitivity of {len(steps)} steps: {said}."
    return {**COLOURS, "width": WIDTH, "cells": cells, "baseline": baseline, "label": label}


def steps_chart(steps: Sequence[Step]) -> Mapping[str, Any]:
    """Certified-set size above, threshold and support of the written token below; each step tells its numbers.

    Steps without a threshold that says something have no bar, and those without any no threshold.
    """
    cell = (RIGHT - LEFT) / max(len(steps), 1)
    supports = [math.exp(step.log_support) for step in steps]
    taus = [math.exp(step.log_tau) if has_threshold(step) else None for step in steps]
    least = min((value for value in [*supports, *filter(None, taus)] if value > 0), default=0.1)
    decades = max(1, -math.floor(math.log10(least)))
    named = "probability as typed" if any(step.certified_in == "factual" for step in steps) else "lower probability"
    top, middle = SIZES
    largest = max((step.set_size for step in steps if _limited(step)), default=4) or 1
    drawn = [
        {
            "place": place,
            "bar": (middle - top) * step.set_size / largest if _limited(step) and step.set_size else None,
            "height": _height(support, decades),
            "said": _said(step, tau, named),
        }
        for place, (step, support, tau) in enumerate(zip(steps, supports, taus, strict=True))
    ]
    note = ""
    if not any(map(_limited, steps)):
        none = all(step.state == "none" for step in steps)
        note = "no calibration, so there is no set" if none else "the thresholds are too weak to say anything"
    # At most four powers of ten, however many the axis spans.
    powers = [10.0**-power for power in range(0, decades + 1, math.ceil(decades / 3))]
    return {
        **COLOURS,
        "width": WIDTH, "left": LEFT, "right": RIGHT, "top": top, "middle": middle, "upper": PROBABILITIES[0],
        "bottom": PROBABILITIES[1], "cell": cell, "wide": min(cell * 0.62, 24), "support": named, "steps": drawn,
        "sizes": [(value, middle - (middle - top) * value / largest) for value in sorted({0, largest // 2, largest})],
        "probabilities": [(value, _height(value, decades)) for value in powers],
        "numbers": _numbers(len(steps)),
        "path": _threshold_line(taus, cell, decades),
        "note": note,
    }  # fmt: skip


def _limited(step: Step) -> bool:
    return step.state not in ("none", "uninformative")


def _height(value: float, decades: int) -> float:
    """Where a probability is on an axis of so many powers of ten below 1; 0 is at the bottom."""
    top, bottom = PROBABILITIES
    below = decades if value <= 0 else min(decades, -math.log10(value))
    return top + (bottom - top) * below / decades


def _numbers(count: int) -> Sequence[int]:
    """About ten numbers of steps, the first and round ones."""
    exponent = 10 ** max(0, math.floor(math.log10(max(1, count / 10))))
    every = next(factor * exponent for factor in (1, 2, 5, 10, 20) if count / (factor * exponent) <= 12)
    return [1, *range(every, count + 1, every)] if every > 1 else range(1, count + 1)


def _threshold_line(taus: Sequence[float | None], cell: float, decades: int) -> str:
    """A line that is level over each step, and broken where there is no threshold."""
    path, before = [], None
    for place, tau in enumerate(taus):
        if tau is not None:
            left, y = LEFT + place * cell, _height(tau, decades)
            path.append(f"{'M' if before is None else 'L'}{left:.1f} {y:.1f}H{left + cell:.1f}")
        before = tau
    return "".join(path)


def _said(step: Step, tau: float | None, named: str) -> str:
    """What a field over a step tells where a pointer rests on it."""
    size = plural(step.set_size, "token") + " in the set" if _limited(step) else "no set that says anything"
    support = probability(math.exp(step.log_support), words.DIGITS)
    limit = "no threshold" if tau is None else f"τ {threshold(tau)}"
    return f"step {step.index + 1}, {words.printable_token(step.token)}: {size}; {named} {support}, {limit}"
