"""Figures of several suites brought to one scale, and their averages: the paper's BiasAvg and UtilityAvg.

The paper averages six bias figures and four accuracies (Table 4 and App. "Model-Wise Ablation") without saying how
the figures' scales meet. Its own numbers do not tell: Qwen2 has a lower BiasAvg than Mistral-7B-v0.2 (0.142, 0.148)
although it is worse in all six columns of the bias tables, so that no average that grows with its parts gives both.
Here every part is a share between 0 and 1 in which 0 is no bias, and all parts count alike. CrowS-Pairs enters as its
distance from 50 %, as a share: of the simple readings (left out; 100 - accuracy; distance from half, over 100 or over
50) that one comes nearest to the BiasAvg of the paper's six models. UtilityAvg is the mean of the four accuracies, as
the paper says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError
from coft_core.suites.base import Better, Figure
from coft_core.suites.statistics import LEVEL

Floats = npt.NDArray[np.float64]

Shown = Literal["as it is", "share", "percent", "100 minus", "size", "distance from half"]
"""How a figure is brought to another scale: ``share`` of a percentage; ``percent`` of a share; what is left to 100;
its size without its sign; of a percentage that is best at 50 its distance from there, as a share."""

_MAPS: Mapping[Shown, Callable[[Floats], Floats]] = {
    "as it is": lambda values: values,
    "share": lambda values: values / 100,
    "percent": lambda values: 100 * values,
    "100 minus": lambda values: 100 - values,
    "size": np.abs,
    "distance from half": lambda values: np.abs(values - 50) / 100,
}
_MIDDLES: Mapping[Shown, float] = {"size": 0.0, "distance from half": 50.0}
"""Where a scale that folds its figure has its least value."""

_TURNED: Mapping[Better, Better] = {"lower": "higher", "higher": "lower"}


def shown_as(figure: Figure, how: Shown) -> Figure:
    """A figure on another scale with its draws; its interval is the set of what the values of the old one become."""
    turn, middle = _MAPS[how], _MIDDLES.get(how)
    better: Better = "lower" if middle is not None else figure.better
    if how == "100 minus":
        better = _TURNED.get(better, better)
    if figure.value is None:
        return replace(figure, better=better)
    low = high = None
    if figure.low is not None and figure.high is not None:
        folded = middle is not None and figure.low < middle < figure.high
        turned = turn(np.array([figure.low, figure.high, *([middle] if folded else [])], dtype=float))
        low, high = float(turned.min()), float(turned.max())
    return replace(
        figure,
        value=float(turn(np.array(figure.value))),
        low=low,
        high=high,
        better=better,
        draws=None if figure.draws is None else turn(figure.draws),
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A figure that an average is made of."""

    suite: str
    figure: str = ""
    shown: Shown = "as it is"


def average(key: str, title: str, parts: Mapping[str, Figure]) -> Figure:
    """The mean of one figure of each suite, all on one scale and with one direction, each counting alike.

    Draws of different suites are put into an order of their own first, the same one for all methods: suites with as
    many units are drawn alike, and their figures would else seem to rise and fall together.
    """
    directions = {figure.better for figure in parts.values()}
    if len(directions) != 1:
        raise InvalidInputError(
            f"The average {title} is of {len(parts)} figures, of which {', '.join(sorted(directions)) or 'nothing'} is "
            "good; bring them to one direction first."
        )
    values = [figure.value for figure in parts.values() if figure.value is not None]
    found = Figure(
        key, title, None, n=len(values), what="suites", unscored=len(parts) - len(values), better=directions.pop()
    )
    if len(values) < len(parts):
        return found
    found = replace(found, value=float(np.mean(values)))
    drawn = [_reordered(figure.draws, suite) for suite, figure in parts.items() if figure.draws is not None]
    if len(drawn) < len(parts) or len({len(draws) for draws in drawn}) > 1:
        return found
    draws: Floats = np.mean(drawn, axis=0)  # (R,)
    low, high = np.nanquantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return replace(found, low=float(low), high=float(high), draws=draws)


def _reordered(draws: Floats, suite: str) -> Floats:
    seed = int.from_bytes(hashlib.sha256(suite.encode()).digest()[:8], "big")
    return draws[np.random.default_rng(seed).permutation(len(draws))]
