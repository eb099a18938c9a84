"""Lambda and alpha chosen together from a grid, over all suites and by families of them, and what the choice does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.evaluate.experiments.figures import Figures, Table
from app.evaluate.experiments.grid import Grid, Line, Value
from app.evaluate.experiments.tables import HIGHER, LOWER, average_notes, both_of, stand_in_notes
from app.evaluate.layout import Head
from app.shared.format import count, listed
from coft_core.errors import InvalidInputError
from coft_core.experiments.choice import Averaged, Selection, select

ALL = "All suites"


@dataclass(frozen=True)
class Pairs:
    """A method at every pair of a lambda and an alpha."""

    lams: tuple[float, ...]
    alphas: tuple[float, ...]
    without: tuple[float, float] = (0.0, 0.1)

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """All of them, the smallest lambda first and of one lambda the smallest alpha."""
        return tuple((lam, alpha) for lam in sorted(self.lams) for alpha in sorted(self.alphas))

    @property
    def methods(self) -> tuple[str, ...]:
        """As a command names them."""
        return tuple(f"{_label(lam, alpha)}=coft:calibrated,lam={lam:g},alpha={alpha:g}" for lam, alpha in self.pairs)


def _label(lam: float, alpha: float) -> str:
    return f"lambda {lam:g}, alpha {alpha:g}"


@dataclass(frozen=True)
class SelectionsTable(Table):
    """A row for all suites and one for each family of bias suites: the chosen pair, and bias and utility with it."""

    grid_of: Pairs
    families: Mapping[str, tuple[str, ...]]

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        at = f"({', '.join(f'{value:g}' for value in self.grid_of.without)})"
        heads = [
            Head("Lambda"), Head("Alpha"), Head(f"BiasAvg at {at}", LOWER), Head("BiasAvg at the choice", LOWER),
            Head(f"UtilityAvg at {at}", HIGHER), Head("UtilityAvg at the choice", HIGHER), Head("Chosen, %"),
        ]  # fmt: skip
        whole = figures.averaged
        lines, told, notes = [], [], []
        for title, suites in {ALL: None, **self.families}.items():
            bias = tuple(part for part in whole.bias if suites is None or part.suite in suites)
            named = listed([figures.suites[part.suite].title for part in bias]) or "none of its suites was read"
            if suites is not None:
                notes.append(f"{title}: {named}.")
            try:
                found = self._selected(figures, replace(whole, bias=bias))
            except InvalidInputError as error:
                told.append(f"{title}: nothing is chosen: {str(error).rstrip('.')}.")
                lines.append(Line(title, (None,) * len(heads), title))
                continue
            lines.append(self._line(title, found))
            validated, tested = count(found.validated), count(found.tested_on)
            said = f"chosen on {validated} units of validation and shown on {tested} others."
            if not found.validated:
                said = f"nothing is chosen: {found.knee.reason} Bias and utility are over all units."
            told.append(f"{title}: {said}")
        notes += [
            "The knee is looked for among all pairs together, as for one knob. Of those within 2 % of it the one with "
            "the smallest lambda is chosen, and of these the one with the smallest alpha. ± is the standard deviation "
            "over seeds. Chosen, %: how often it is this pair when units are drawn again.",
            *told,
            *average_notes(figures, ("bias", "utility")),
            *stand_in_notes(figures),
        ]
        return self.made(figures, "Suites", heads, lines, notes)

    def _selected(self, figures: Figures, averaged: Averaged) -> Selection:
        """What is chosen, by places among the pairs; it raises InvalidInputError where nothing can be."""
        if not (averaged.bias and averaged.utility):
            raise InvalidInputError("no suite of its averages was read")
        pairs = self.grid_of.pairs
        swept = {
            float(place): {suite: figures.read(suite, _label(*pair)) for suite in averaged.suites}
            for place, pair in enumerate(pairs)
        }
        without = float(pairs.index(self.grid_of.without))
        return select(swept, averaged, figures.suites, figures.outside, below=math.inf, beside=without)

    def _line(self, title: str, found: Selection) -> Line:
        chosen = found.knee.chosen
        lam, alpha = (None, None) if chosen is None else map(Value, self.grid_of.pairs[int(chosen)])
        before, after = (None if own is None else both_of(own) for own in (found.beside, found.tested))
        effects = [None if own is None else own[place] for place in (0, 1) for own in (before, after)]
        share = None if chosen is None else found.knee.shares.get(chosen)
        return Line(title, (lam, alpha, *effects, None if share is None else Value(100 * share)), title)
