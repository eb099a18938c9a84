"""Figures with intervals: exact for shares of independent items, drawn over units where items hang together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import RLock
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache, cached
from scipy.optimize import brentq
from scipy.stats import binom

from coft_core.suites.base import Better, Figure, Mean, Outcome

RESAMPLES = 2000
LEVEL = 0.95
FEWEST_UNITS = 2
"""With fewer units than this, drawing among them says too little for an interval: none is given."""

PERCENT = 100.0

DRAWN_AT_ONCE = 100
KEPT_DRAWS = 1 << 28
"""Bytes of draws that are kept: figures of a suite share theirs, and of several methods too."""

EXACT_KEPT = 1 << 14
"""Exact intervals that are kept: methods that were right equally often share theirs."""

Floats = npt.NDArray[np.float64]

Detail = Literal["items", "value", "draws", "interval"]
"""What figures have besides their counts: their value alone, that with the items' values where it is their mean, its
draws too, or its draws and its interval."""

Bounds = tuple[float, float] | None
"""Between what values lie; None where nothing bounds them."""

UNIT = (0.0, 1.0)

_DETAIL: ContextVar[Detail] = ContextVar("detail", default="interval")


@contextmanager
def made_with(detail: Detail) -> Iterator[None]:
    """Figures that are made inside have no more than a detail, nor the cost of the rest.

    Drawing takes most of the time of a figure, and of a figure by seed a table shows the value alone.
    """
    token = _DETAIL.set(detail)
    try:
        yield
    finally:
        _DETAIL.reset(token)


def interval_wanted() -> bool:
    """Whether figures that are made now have an interval."""
    return _DETAIL.get() == "interval"


@cached(LRUCache(maxsize=KEPT_DRAWS, getsizeof=lambda draws: draws.nbytes), lock=RLock())
def unit_draws(units: int, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """How often each unit is drawn when as many are drawn with replacement, ``(R, U)``; not to be written to.

    The same numbers give the same draws, so that figures of two methods over the same units are paired.
    """
    generator = np.random.default_rng(seed)
    counts = np.empty((resamples, units))
    # Several times as fast as a multinomial draw; some rows at a time, for the room that the single units take.
    for start in range(0, resamples, DRAWN_AT_ONCE):
        rows = counts[start : start + DRAWN_AT_ONCE]
        drawn = generator.integers(units, size=rows.shape) + units * np.arange(len(rows))[:, None]
        rows[:] = np.bincount(drawn.ravel(), minlength=rows.size).reshape(rows.shape)
    counts.flags.writeable = False
    return counts


def unit_sums(units: Sequence[Hashable], values: npt.ArrayLike) -> Floats:
    """Sums of values by unit, ``(U, ...)``, units in the order in which they first appear."""
    places = {unit: place for place, unit in enumerate(dict.fromkeys(units))}
    array = np.asarray(values, dtype=float)
    sums = np.zeros((len(places), *array.shape[1:]))
    np.add.at(sums, [places[unit] for unit in units], array)
    return sums


def drawn_figure(
    key: str,
    title: str,
    units: Sequence[Hashable],
    values: npt.ArrayLike,
    statistic: Callable[[Floats], Floats],
    n: int,
    *,
    what: str = "items",
    unscored: int = 0,
    better: Better = "none",
    part: str = "",
) -> Figure:
    """A figure that is a function of sums over items, with its percentile bootstrap interval over units.

    Units are of all N items, unscored ones included, so that methods are compared on the same draws; values ``(N, K)``
    are zeros for an item that is not counted. The statistic makes figures ``(R,)`` of sums ``(R, K)``.
    """
    none = Figure(key, title, None, n=n, what=what, unscored=unscored, better=better, part=part)
    if not n:
        return none
    sums = unit_sums(units, np.asarray(values, dtype=float).reshape(len(units), -1))  # (U, K)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(sums.sum(0, keepdims=True))[0])
        if not np.isfinite(value):
            return none
        if len(sums) < FEWEST_UNITS or _DETAIL.get() in ("items", "value"):
            return Figure(key, title, value, None, None, n, what, unscored, better, part)
        draws = statistic(unit_draws(len(sums)) @ sums)  # (R,)
    low, high = _ends(draws) if interval_wanted() else (None, None)
    return Figure(key, title, value, low, high, n, what, unscored, better, part, draws)


def _ends(draws: Floats) -> tuple[float, float]:
    """Ends of the percentile interval of draws ``(R,)``, without those that have no value."""
    # The same numbers either way; looking for missing values takes longer than all the rest.
    quantile = np.nanquantile if np.isnan(draws).any() else np.quantile
    low, high = quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def mean_figure(
    key: str,
    title: str,
    units: Sequence[Hashable],
    values: Sequence[float | None],
    *,
    scale: float = 1.0,
    what: str = "items",
    better: Better = "none",
    part: str = "",
) -> Figure:
    """The mean of a value over items, those without one unscored; with a scale of 100 it is in percent.

    Where every item is a unit of its own and values are 0 or 1, the interval is the exact one of a share
    (Clopper and Pearson 1934); else it is drawn over units.
    """
    counted = [value for value in values if value is not None]
    figure = drawn_figure(
        key,
        title,
        units,
        [(0.0 if value is None else value, value is not None) for value in values],
        lambda sums: scale * sums[:, 0] / sums[:, 1],
        len(counted),
        what=what,
        unscored=len(values) - len(counted),
        better=better,
        part=part,
    )
    figure = replace(figure, percent=scale == PERCENT)
    alone = len(set(units)) == len(units) and set(counted) <= {0.0, 1.0}
    if figure.value is None or not interval_wanted() or not alone:
        return figure
    low, high = _exact_interval(int(sum(counted)), len(counted))
    return replace(figure, low=scale * low, high=scale * high)


@lru_cache(EXACT_KEPT)
def _exact_interval(hits: int, count: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share, as ``scipy.stats.binomtest`` finds it, without the test."""
    tail = (1 - LEVEL) / 2
    low = 0.0 if hits == 0 else brentq(lambda share: binom.sf(hits - 1, count, share) - tail, 0, 1)
    high = 1.0 if hits == count else brentq(lambda share: binom.cdf(hits, count, share) - tail, 0, 1)
    return float(low), float(high)


Value = TypeVar("Value")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sample(Generic[Value]):
    """Outcomes with what was read out of each: a suite or a part of it, of which figures are made."""

    outcomes: Sequence[Outcome]
    values: Sequence[Value]
    what: str = "items"
    part: str = ""

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], read: Callable[[Outcome], Value], what: str = "items") -> Sample[Value]:
        """All outcomes, with what is read out of each."""
        return cls(outcomes, [read(outcome) for outcome in outcomes], what)

    @property
    def units(self) -> list[str]:
        """The unit of each outcome."""
        return [outcome.unit for outcome in self.outcomes]

    def where(self, kept: Callable[[Outcome], bool], part: str | None = None) -> Sample[Value]:
        """Some of the outcomes; of the same part unless told."""
        pairs = [pair for pair in zip(self.outcomes, self.values, strict=True) if kept(pair[0])]
        part = self.part if part is None else part
        return replace(self, outcomes=[one for one, _ in pairs], values=[value for _, value in pairs], part=part)

    def parts(self, fact: str) -> Iterator[Sample[Value]]:
        """The outcomes by a fact, in the order in which its values first appear."""
        for part in dict.fromkeys(str(outcome.facts[fact]) for outcome in self.outcomes):
            yield self.where(lambda outcome, part=part: str(outcome.facts[fact]) == part, part)

    def each(self, of: Callable[[Outcome, Value], Result]) -> list[Result]:
        """Something of each outcome and its value."""
        return list(map(of, self.outcomes, self.values))

    def mean(
        self,
        key: str,
        title: str,
        of: Callable[[Outcome, Value], float | None],
        better: Better = "none",
        scale: float = 1.0,
        bounds: Bounds = UNIT,
    ) -> Figure:
        """The mean of something over the outcomes, those without it unscored; bounds are those of single values."""
        values = self.each(of)
        made = mean_figure(key, title, self.units, values, scale=scale, what=self.what, better=better, part=self.part)
        if bounds is None or _DETAIL.get() != "items":
            return made
        by_item = dict(zip((outcome.item for outcome in self.outcomes), values, strict=True))
        return replace(made, mean_of=Mean(by_item, *bounds))

    def share(
        self,
        key: str,
        title: str,
        of: Callable[[Outcome, Value], float | None],
        better: Better = "none",
        bounds: Bounds = UNIT,
    ) -> Figure:
        """The same in percent."""
        return self.mean(key, title, of, better, PERCENT, bounds)

    def drawn(
        self,
        key: str,
        title: str,
        rows: npt.ArrayLike,
        statistic: Callable[[Floats], Floats],
        n: int,
        better: Better = "none",
        unscored: int | None = None,
    ) -> Figure:
        """A function of sums over rows, one an outcome; what is not counted is unscored."""
        unscored = len(self.outcomes) - n if unscored is None else unscored
        return drawn_figure(
            key, title, self.units, rows, statistic, n, what=self.what, unscored=unscored, better=better, part=self.part
        )


def difference(first: Figure, second: Figure) -> tuple[float, float, float] | None:
    """How much larger the first figure is, with its 95 % interval over the same drawn units; None without draws.

    Both have to be of the same items, read by two methods.
    """
    if first.draws is None or second.draws is None or first.value is None or second.value is None:
        return None
    if len(first.draws) != len(second.draws):
        return None
    return first.value - second.value, *_ends(first.draws - second.draws)


Number = TypeVar("Number", float, Floats)


def badness(value: Number, better: Better) -> Number:
    """The value or values, turned so that less is better; of ``near the middle`` the distance from 50."""
    if better == "higher":
        return -value
    if better == "near the middle":
        return abs(value - 50.0)
    return abs(value) if better == "near zero" else value


def ahead(figures: Mapping[str, Figure]) -> dict[str, set[str]]:
    """By method those that are better beyond noise; methods without a value are left out.

    One is if the 95 % interval of the difference of badness, over the same drawn units, lies on its side of 0; without
    draws if its value is better at all.
    """
    values = {name: badness(own.value, own.better) for name, own in figures.items() if own.value is not None}
    drawn = {
        name: None if own.draws is None else badness(own.draws, own.better)
        for name, own in figures.items()
        if name in values
    }

    def is_ahead(name: str, other: str) -> bool:
        one, two = drawn[name], drawn[other]
        if values[name] >= values[other] or one is None or two is None or len(one) != len(two):
            return values[name] < values[other]
        return _above_zero(two - one)

    return {other: {name for name in values if is_ahead(name, other)} for other in values}


def _above_zero(draws: Floats) -> bool:
    """Whether the percentile interval of draws ``(R,)`` begins above 0; counted, where that decides it."""
    below = int((len(draws) - 1) * (1 - LEVEL) / 2)
    others = int(np.count_nonzero(draws <= 0))
    # The lower end lies between the draws at the places ``below`` and the next.
    if others == below + 1 or not np.isfinite(draws).all():
        return _ends(draws)[0] > 0
    return others <= below


def ranks(figures: Mapping[str, Figure]) -> dict[str, float]:
    """Ranks of methods by one figure, 1 the best; methods whose difference may be noise share the mean of their ranks.

    A method's rank is one more than the number of methods that are ahead of it (:func:`ahead`), plus half the number of
    those it is tied with.
    """
    return ranks_among(ahead(figures))


def ranks_among(better: Mapping[str, set[str]]) -> dict[str, float]:
    """:func:`ranks` by what :func:`ahead` has found."""
    ranked = {}
    for name, own in better.items():
        behind = sum(name in others for others in better.values())
        ranked[name] = 1 + len(own) + (len(better) - 1 - len(own) - behind) / 2
    return ranked
