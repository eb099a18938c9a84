"""Claims on suites: items are read in a random order until every claim is decided.

A claim is about the figure that an evaluation of all items would have. Where that is the mean of something, the items
that were read give an interval of it, valid however often one looks (:func:`interval_of_rest`). No such interval is
known of other figures, which are judged when all items are read.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from app.evaluate.service import SuiteReading
from app.gate.figures import figures_of, require_figure
from app.gate.file import LOSS, Asked, Claim
from app.gate.judge import Item, Judged
from app.shared.errors import ServiceError
from coft_core.conformal.betting import interval_of_rest
from coft_core.policies.base import Policy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.suites.base import Figure, Mean, Outcome

BATCH, SHARE = 16, 10
"""Items that are read between two looks: this many, or one in so many of those that were read."""
SURELY = 64
"""Items after which a figure that never appeared is taken for one that is not there."""


@dataclass(frozen=True, slots=True)
class SuiteRead:
    """How far a suite was read."""

    key: str
    source: str
    digest: str
    items: int
    read: int


class SuiteClaims:
    """The claims on one suite, with what was read of it."""

    def __init__(self, asked: Asked, reading: SuiteReading, policy: Policy) -> None:
        self._asked, self._reading, self._suite = asked, reading, reading.suite
        self._claims = [claim for claim in asked.claims if claim.suite == self._suite.key]
        self._queue = list(reading.items)
        random.Random(f"{asked.file.seed} {self._suite.key}").shuffle(self._queue)
        plain = VanillaPolicy(**{name: getattr(policy, name) for name in ("temperature", "top_p", "top_k")})
        losses = any(claim.measure == LOSS for claim in self._claims)
        self._policies = (policy, plain) if losses else (policy,)
        self._outcomes: list[list[Outcome]] = [[] for _ in self._policies]
        self._known = figures_of(self._suite, ())
        self._values: dict[str, dict[str, float | None]] = {claim.measure: {} for claim in self._claims}
        self.most, self.done = min(len(self._queue), asked.file.budget.prompts), 0
        self.left_out: list[tuple[str, str]] = []
        for claim in self._claims:
            if claim.outcome in self._known and not self._mean_of(claim, self._known) and self.most < len(self._queue):
                raise ServiceError(
                    f"{asked.path.name}, line {claim.line}: {claim.measure} is not a mean over items, so that it is "
                    f"judged after all {len(self._queue):,} items; give budget: prompts: {len(self._queue)} or more."
                )
        self.judged = [self._look(claim) for claim in self._claims]

    @property
    def read_so_far(self) -> SuiteRead:
        """How far the suite was read."""
        return SuiteRead(self._suite.key, self._reading.source, self._reading.digest, len(self._queue), self.done)

    @property
    def items(self) -> list[Item]:
        """The values of items, where figures are their means."""
        return [
            Item(0, item, self._suite.key, measure, value)
            for measure, values in self._values.items()
            for item, value in values.items()
            if value is not None
        ]

    def read(self) -> None:
        """Read some more items, and look again."""
        batch = self._queue[self.done : min(self.most, self.done + max(BATCH, self.done // SHARE))]
        rows = self._reading.outcomes(batch, self._policies, self._asked.file.seed)
        self.done += len(batch)
        # An item counts for both policies or for neither.
        unread = {outcome.item: outcome.unread for row in rows for outcome in row if outcome.unread}
        self.left_out += [(f"{self._suite.key} {item}", why) for item, why in unread.items()]
        usable = [[outcome for outcome in row if outcome.item not in unread] for row in rows]
        for kept, row in zip(self._outcomes, usable, strict=True):
            kept.extend(row)
        if any(self._mean_of(claim, self._known) for claim in self._claims) or self._suite.judges:
            self._add([figures_of(self._suite, row) for row in usable])
        self.judged = [self._look(claim) for claim in self._claims]

    def _add(self, found: Sequence[dict[str, Figure]]) -> None:
        self._known |= found[0]
        for claim in self._claims:
            if claim.outcome not in self._known and (self.done >= SURELY or self.done == self.most):
                where = f"{self._asked.path.name}, line {claim.line}"
                require_figure(where, self._suite, claim.outcome, list(self._known))
            means = [mean.values for figures in found if (mean := self._mean_of(claim, figures))]
            if claim.measure == LOSS and means:
                means = [{item: _less(means[1][item], value) for item, value in means[0].items()}]
            self._values[claim.measure] |= means[0] if means else {}

    def _mean_of(self, claim: Claim, figures: dict[str, Figure]) -> Mean | None:
        return figures[claim.outcome].mean_of if claim.outcome in figures else None

    def _look(self, claim: Claim) -> Judged:
        complete, mean = self.done == len(self._queue), self._mean_of(claim, self._known)
        values = [self._values[claim.measure].get(item.id) for item in self._queue[: self.done]]
        scored = [value for value in values if value is not None]
        low = high = estimate = fmean(scored) if scored else None
        if mean is None:
            low = high = estimate = self._whole(claim) if complete else None
        elif not complete:
            span, alpha = mean.most - mean.least, self._asked.file.risk / len(self._asked.claims)
            least, span = (-span, 2 * span) if claim.measure == LOSS else (mean.least, span)
            scaled = np.clip((np.array(values, dtype=float) - least) / span, 0.0, 1.0)
            low, high = (least + span * end for end in interval_of_rest(scaled, len(self._queue), alpha))
        verdict = "undecided" if low is None or high is None else claim.judged(low, high)
        return Judged(claim, verdict, low, high, estimate, len(scored) if mean else len(self._outcomes[0]))

    def _whole(self, claim: Claim) -> float | None:
        """The figure of all items; shares in percent become shares of 1, as claims have them."""
        figure = figures_of(self._suite, self._outcomes[0])[claim.outcome]
        return figure.value if figure.value is None or not figure.percent else figure.value / 100


def _less(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second
