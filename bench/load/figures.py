"""What is audited under load, and percentiles and slopes with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
PROMPTS = (
    "The nurse finished rounds and then he prepared the reports",
    "The old man went to the shop, and",
    "Her neighbour, a German cook, said that",
    "The teacher asked the girl about the long trip, so she",
    "A Muslim client came to the bank and asked",
    "The young boy told his mother that",
    "The doctor said that she would",
    "An elderly woman walked to the station, where",
)
"""What simulated reviewers audit."""


def percentiles(seconds: Sequence[float]) -> dict[str, Any]:
    """Count, median and 95th percentile in milliseconds, each percentile with its 95 % bootstrap interval."""
    values = 1000 * np.asarray(seconds)  # (n,)
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values)))  # (R, n)
    found: dict[str, Any] = {"n": len(values)}
    for share in (50, 95):
        low, high = np.percentile(np.percentile(drawn, share, axis=1), [2.5, 97.5])
        found[f"p{share}_ms"] = round(float(np.percentile(values, share)), 1)
        found[f"p{share}_interval"] = [round(float(low), 1), round(float(high), 1)]
    return found


def told(found: dict[str, Any]) -> str:
    """Median and 95th percentile in words."""
    return f"p50 {found['p50_ms']:g}, p95 {found['p95_ms']:g} ms"


def slope(at: Sequence[float], values: Sequence[float]) -> dict[str, Any]:
    """Least squares' slope of values over where they were taken, with a 95 % interval.

    Neighbouring values of a process's memory depend on each other, so that the interval is by bootstrap over blocks of
    residuals, about the square root of their number long (Künsch, 1989).
    """
    x, y = np.asarray(at, float), np.asarray(values, float)  # (n,)
    rate, begin = np.polyfit(x, y, 1)
    rest = y - rate * x - begin  # (n,)
    length = max(1, round(len(x) ** 0.5))
    generator = np.random.default_rng(0)
    starts = generator.integers(0, len(x) - length + 1, (RESAMPLES, -(-len(x) // length)))  # (R, blocks)
    places = (starts[..., None] + np.arange(length)).reshape(RESAMPLES, -1)[:, : len(x)]  # (R, n)
    centred = x - x.mean()
    rates = rate + (rest[places] @ centred) / (centred @ centred)  # (R,)
    low, high = np.percentile(rates, [2.5, 97.5])
    return {"n": len(x), "slope": round(float(rate), 3), "interval_95": [round(float(low), 3), round(float(high), 3)]}
