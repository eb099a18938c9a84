"""Decisions by likelihood, and how differently groups are decided on.

A decision is the likelier one of two answers; where both are equally likely, nothing is decided, and the item is
unscored. Gaps are those of fairlearn (Bird et al. 2020): the largest difference between groups' rates. A gap is never
below 0, so chance alone makes it larger than 0; its interval tells how much that may be.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from coft_core.suites.base import Better, Choices, Figure, Outcome, Outside
from coft_core.suites.statistics import drawn_figure, mean_figure
from coft_core.types import Span

YES_NO = (" Yes", " No")


def yes_no(*pieces: str | tuple[str, str]) -> Choices:
    """A question that is answered by yes or no, whichever is likelier."""
    prompt, spans = "", []
    for piece in pieces:
        text, family = (piece, "") if isinstance(piece, str) else piece
        if family:
            spans.append(Span(len(prompt), len(prompt) + len(text), family, "list"))
        prompt += text
    return Choices(prompt, YES_NO, tuple(spans))


def log_odds(outcome: Outcome, outside: Outside) -> float | None:
    """Log-likelihood of the first answer less that of the second; infinite where one is impossible, None where both."""
    first, second = outcome.scored().log_likelihoods(outside)
    return None if first == second == -math.inf else first - second


def decision(outcome: Outcome, outside: Outside) -> float | None:
    """1 where the first answer is likelier, 0 where the second is; None where neither is."""
    odds = log_odds(outcome, outside)
    return None if odds is None or odds == 0 else float(odds > 0)


def probability(outcome: Outcome, outside: Outside) -> float | None:
    """Probability of the first answer, if one of both is given; None where both are impossible."""
    odds = log_odds(outcome, outside)
    return None if odds is None else float(expit(odds))


@dataclass(frozen=True, slots=True)
class Attribute:
    """A protected attribute of items."""

    fact: str
    title: str
    compared: tuple[str, ...]
    nouns: tuple[str, ...]

    def groups(self, outcomes: Sequence[Outcome]) -> list[str | None]:
        """The group of each item, None for one that is not compared."""
        found = [outcome.facts[self.fact] for outcome in outcomes]
        return [group if group in self.compared else None for group in found]


def parity_figures(outcomes: Sequence[Outcome], outside: Outside, attribute: Attribute, what: str) -> list[Figure]:
    """Demographic parity by an attribute: gap of the decisions' rates and of the mean probabilities.

    The keys are ``parity_gap_RACE``, ``parity_difference_RACE`` (the first group less the second, for two groups
    alone) and ``probability_gap_RACE``, with the attribute's name in the place of ``RACE``.
    """
    units, groups = [outcome.unit for outcome in outcomes], attribute.groups(outcomes)
    probabilities = [probability(outcome, outside) for outcome in outcomes]
    key, by = attribute.fact, f"by {attribute.title}"
    figures = [
        parity_gap(outcomes, outside, attribute, what),
        gap_figure(
            f"probability_gap_{key}", f"Gap of mean probabilities {by}", units, groups, probabilities, what=what
        ),
    ]
    if len(attribute.compared) == 2:
        decisions = [decision(outcome, outside) for outcome in outcomes]
        figures.insert(
            1,
            difference_figure(
                f"parity_difference_{key}", f"Rate of {attribute.nouns[0]} less that of {attribute.nouns[1]}", units,
                groups, decisions, (attribute.compared[0], attribute.compared[1]), what=what,
            ),
        )  # fmt: skip
    return figures


def parity_gap(outcomes: Sequence[Outcome], outside: Outside, attribute: Attribute, what: str) -> Figure:
    """The first of :func:`parity_figures`."""
    units, groups = [outcome.unit for outcome in outcomes], attribute.groups(outcomes)
    decisions = [decision(outcome, outside) for outcome in outcomes]
    title = f"Demographic parity gap by {attribute.title}"
    return gap_figure(f"parity_gap_{attribute.fact}", title, units, groups, decisions, what=what)


def error_figures(
    outcomes: Sequence[Outcome], outside: Outside, attribute: Attribute, truth: str, what: str
) -> list[Figure]:
    """Gaps of wrong decisions by an attribute, and equalised odds (Hardt et al. 2016): the larger of both gaps."""
    units, groups = [outcome.unit for outcome in outcomes], attribute.groups(outcomes)
    truths = [int(outcome.facts[truth]) for outcome in outcomes]
    decisions = [decision(outcome, outside) for outcome in outcomes]
    wrong = [None if made is None else float(made != true) for made, true in zip(decisions, truths, strict=True)]
    key, by = attribute.fact, f"by {attribute.title}"

    def gap(name: str, title: str, wanted: Sequence[int]) -> Figure:
        kept = [group if true in wanted else None for group, true in zip(groups, truths, strict=True)]
        return gap_figure(f"{name}_{key}", f"{title} {by}", units, kept, wrong, strata=truths, what=what)

    positive = gap("false_positive_gap", "Gap of false positive rates", (0,))
    negative = gap("false_negative_gap", "Gap of false negative rates", (1,))
    odds = gap("equalised_odds_gap", "Equalised odds gap", (0, 1))
    if positive.value is None or negative.value is None:
        # The larger one of two gaps is unknown while one of them is.
        odds = Figure(odds.key, odds.title, None, what=what, unscored=odds.n + odds.unscored, better="lower")
    return [positive, negative, odds]


def whole_figures(outcomes: Sequence[Outcome], outside: Outside, title: str, what: str) -> list[Figure]:
    """Share of items whose decision is the first answer, and how probable the two answers are together.

    Where the latter is small, the model would rather say something else, and its decision says little.
    """
    units = [outcome.unit for outcome in outcomes]
    made = [decision(outcome, outside) for outcome in outcomes]
    mass = [float(sum(np.exp(likelihood.log_p) for likelihood in outcome.scored().likelihoods)) for outcome in outcomes]
    return [
        mean_figure("rate", title, units, made, what=what),
        mean_figure("answer_mass", "Probability of the two answers together", units, mass, what=what, better="higher"),
    ]


def rate_figures(
    outcomes: Sequence[Outcome], outside: Outside, facts: Sequence[str], title: str, what: str
) -> list[Figure]:
    """Rate of the first answer in each group, by one fact or several together; the key is ``rate``."""
    figures = []
    groups = [", ".join(str(outcome.facts[fact]) for fact in facts) for outcome in outcomes]
    for group in sorted(set(groups)):
        part = [outcome for outcome, own in zip(outcomes, groups, strict=True) if own == group]
        made = [decision(outcome, outside) for outcome in part]
        figures.append(mean_figure("rate", title, [outcome.unit for outcome in part], made, what=what, part=group))
    return figures


def gap_figure(
    key: str,
    title: str,
    units: Sequence[Hashable],
    groups: Sequence[str | None],
    values: Sequence[float | None],
    *,
    strata: Sequence[Hashable] | None = None,
    least: int = 1,
    what: str = "items",
    better: Better = "lower",
    part: str = "",
) -> Figure:
    """The largest difference between the means of groups; of several strata the one with the largest.

    The interval is that of the difference of the two groups that differ most, the higher mean less the lower one, so
    that it reaches below 0 where the data do not tell which is higher. That these two were picked is not in it: of
    many groups, two differ by chance.
    """
    strata = [0] * len(units) if strata is None else strata
    cells = [None if group is None else (stratum, group) for stratum, group in zip(strata, groups, strict=True)]
    means = _cell_means(units, cells, values, least)
    pairs = [(high, low) for high in means for low in means if high[0] == low[0] and high != low]
    concerned = [value for cell, value in zip(cells, values, strict=True) if cell is not None]
    n = sum(cell in means and value is not None for cell, value in zip(cells, values, strict=True)) if pairs else 0
    if not pairs:
        return Figure(key, title, None, what=what, unscored=len(concerned), better=better, part=part)
    pair = max(pairs, key=lambda pair: means[pair[0]] - means[pair[1]])
    figure = difference_figure(key, title, units, cells, values, pair, what=what, part=part)
    return replace(figure, better=better, n=n, unscored=len(concerned) - n)


Cell = tuple[Hashable, str]


def _cell_means(
    units: Sequence[Hashable], cells: Sequence[Cell | None], values: Sequence[float | None], least: int
) -> dict[Cell, float]:
    """Mean of each group of a stratum that has as many units as it needs, where another one of its stratum has too."""
    scored: dict[Cell, list[tuple[Hashable, float]]] = defaultdict(list)
    for unit, cell, value in zip(units, cells, values, strict=True):
        if cell is not None and value is not None:
            scored[cell].append((unit, value))
    large = {cell: own for cell, own in scored.items() if len({unit for unit, _ in own}) >= least}
    groups = Counter(stratum for stratum, _ in large)
    return {cell: float(np.mean([value for _, value in own])) for cell, own in large.items() if groups[cell[0]] > 1}


def difference_figure(
    key: str,
    title: str,
    units: Sequence[Hashable],
    groups: Sequence[Hashable],
    values: Sequence[float | None],
    compared: tuple[Hashable, Hashable],
    *,
    what: str = "items",
    part: str = "",
) -> Figure:
    """The mean of one group less that of another."""
    summed = [
        [term for own in compared for term in ((value, 1.0) if group == own and value is not None else (0.0, 0.0))]
        for group, value in zip(groups, values, strict=True)
    ]
    concerned = [value for group, value in zip(groups, values, strict=True) if group in compared]
    n = sum(value is not None for value in concerned)
    return drawn_figure(
        key, title, units, summed, lambda sums: sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3], n, what=what,
        unscored=len(concerned) - n, better="near zero", part=part,
    )  # fmt: skip
