"""What holds for all families at once: coverage of the intersection, its smallest levels, and its chain certificate.

A family that a prompt does not mask cannot refuse, so every statement is about the families that are masked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.certifiable import BinSupport, Certifiable
from coft_core.conformal.coverage import CoverageReport, kept_report
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.sequence import SequenceThreshold, chains_of, why_silent
from coft_core.conformal.shares import least_total
from coft_core.conformal.shift import Shift
from coft_core.errors import InvalidInputError
from coft_core.types import Step


def intersected_coverage(parts: Mapping[str, Calibration], alpha: Fraction) -> CoverageReport:
    """Measure how often all families keep the true next token, on the contexts kept apart.

    A step counts as kept iff every family with a value at that step of that row keeps it. Where rows of a context are
    not told apart, values at the same step count as one, which errs on the side of too little coverage.

    Args:
        parts: The families' calibrations, with equal bins, shift and seed.
        alpha: Risk level of all families together.
    """
    first = next(iter(parts.values()))
    positions, shift = first.positions, first.shift
    held_out = [part.verification for part in parts.values()]
    contexts = np.unique(np.concatenate([values.contexts for values in held_out]))  # (K,)
    drawn = shift.thinned(contexts, first.seed).tolist()
    columns, flags = [], []
    for part, values in zip(parts.values(), (values.select(drawn) for values in held_out), strict=True):
        log_tau = np.array([entry.log_tau for entry in part.bins])  # (B,)
        flags.append(values.values >= log_tau[positions.bins_of(values.steps)])  # (n,)
        columns.append(np.stack([values.rows, values.steps, values.contexts]))  # (3, n)
    order = np.lexsort(np.concatenate(columns, axis=1))  # (N,), by context, step and row
    keys, kept = np.concatenate(columns, axis=1)[:, order], np.concatenate(flags)[order]  # (3, N), (N,)
    differ = (keys[:, 1:] != keys[:, :-1]).any(axis=0)  # (N - 1,)
    begins = np.flatnonzero(np.concatenate([np.ones(min(kept.size, 1), dtype=bool), differ]))  # (steps,)
    rows, steps, numbers = keys[:, begins]
    together = np.logical_and.reduceat(kept, begins)  # (steps,)
    return kept_report(together, numbers, (steps, rows), positions, shift.level(alpha), first.seed)


def reweighted_parts(
    parts: Sequence[tuple[str, Calibration]], shift: Shift, floor: float
) -> tuple[tuple[str, Calibration], ...]:
    """The families' calibrations under shift weights.

    Args:
        parts: The families with their calibrations.
        shift: The weights.
        floor: Effective number of contexts below which they are refused.

    Raises:
        InvalidInputError: They leave a family too few effective contexts, or a context of it has no weight.
    """
    weights = dict(zip(shift.contexts, shift.weights, strict=True))
    found = []
    for name, part in parts:
        try:
            found.append((name, part.reweighted(weights, shift.test_weight, shift.estimated, floor)))
        except InvalidInputError as error:
            raise InvalidInputError(f"The family {name!r} is too small for weights: {error}") from error
    return tuple(found)


def check_group(parts: Mapping[str, Calibration], name: str) -> None:
    """Refuse a group for which no family, or under weights not every one, has thresholds of its own.

    Args:
        parts: The families' calibrations.
        name: The group; one that there is not is left to whoever looks for its contexts.

    Raises:
        InvalidInputError: No family has enough contexts in it, or weights leave one too few effective ones.
    """
    summaries = {family: group for family, part in parts.items() for group in part.groups if group.name == name}
    for family, group in summaries.items():
        if group.outweighed:
            raise InvalidInputError(f"The family {family!r} is too small for weights: {group.sentence}")
    if summaries and not any(group.certifiable for group in summaries.values()):
        raise InvalidInputError(max(summaries.values(), key=lambda group: group.contexts).sentence)


def family_notes(parts: Mapping[str, Calibration], unmasked: int, measured: int) -> list[str]:
    """What must be said of the families of a calibration.

    Args:
        parts: The families' calibrations.
        unmasked: Calibration prompts in which no family is masked.
        measured: Contexts kept apart that coverage was measured on.
    """
    sentences = []
    if unmasked:
        sentences.append(f"Prompts without anything masked ({unmasked}) play no part in this calibration.")
    for name, part in parts.items():
        needed = minimum_contexts(part.shift.level(part.exact_alpha))
        if part.context_count < needed:
            sentences.append(
                f"The family {name!r} has {part.context_count} contexts and its share of alpha needs {needed}; "
                "it refuses nothing."
            )
    unmeasured = [name for name, part in parts.items() if not len(part.verification)]
    if unmeasured and measured:
        sentences.append(f"No context kept apart has {', '.join(unmeasured)} masked; coverage leaves this out.")
    return sentences


def intersected_certifiable(parts: Mapping[str, Calibration], contexts: int) -> Certifiable:
    """The smallest levels that all families support together when each has an equal share.

    Args:
        parts: The families' calibrations.
        contexts: Number of contexts of all of them together.
    """
    found = [part.smallest_alpha() for part in parts.values()]

    def together(levels: Iterable[float | None]) -> float | None:
        known = [level for level in levels if level is not None]
        return least_total(max(known), len(parts)) if known else None

    by_label: dict[str, list[BinSupport]] = {}
    for own in found:
        for entry in own.bins:
            by_label.setdefault(entry.label, []).append(entry)
    reached = _contexts_by_bin(parts)
    everywhere = [own.everywhere for own in found]
    return Certifiable(
        contexts=contexts,
        overall=together(own.overall for own in found),
        everywhere=None if None in everywhere else together(everywhere),
        sequence=together(own.sequence for own in found),
        bins=tuple(
            BinSupport(label, count, together(entry.smallest_alpha for entry in by_label[label]))
            for label, count in reached.items()
        ),
    )


def _contexts_by_bin(parts: Mapping[str, Calibration]) -> dict[str, int]:
    """Contexts with a value of any family, by label of the bin; bins without any are left out."""
    positions = next(iter(parts.values())).positions
    contexts = np.concatenate([part.values.contexts for part in parts.values()])  # (n,)
    bins = positions.bins_of(np.concatenate([part.values.steps for part in parts.values()]))  # (n,)
    return {positions.label(index): int(np.unique(contexts[bins == index]).size) for index in np.unique(bins).tolist()}


@dataclass(frozen=True, slots=True)
class FamilySequences:
    """Thresholds for whole chains, one a family: together they hold for a whole chain of a new context.

    Attributes:
        alpha: Risk level of all families together, for the whole chain at once.
        thresholds: (family, its threshold), each at its share of ``alpha``.
    """

    alpha: float
    thresholds: tuple[tuple[str, SequenceThreshold], ...]

    @property
    def by_family(self) -> dict[str, SequenceThreshold]:
        """Threshold by family."""
        return dict(self.thresholds)

    @property
    def horizon(self) -> int:
        """Steps of a chain that count, the least of any family: none says anything of longer ones."""
        return min((own.horizon for _, own in self._calibrated), default=0)

    @property
    def _calibrated(self) -> tuple[tuple[str, SequenceThreshold], ...]:
        return tuple((name, own) for name, own in self.thresholds if own.state == "calibrated")

    @property
    def sentence(self) -> str:
        """What holds, in words."""
        without = [(name, own.reason) for name, own in self.thresholds if own.state != "calibrated"]
        silent = "".join(f" Nothing is refused for {name}: {why}" for name, why in without)
        if not self._calibrated:
            return f"For whole chains nothing is certified.{silent}"
        taus = ", ".join(f"{name} {own.tau:.3g}" for name, own in self._calibrated)
        return (
            f"With probability at least {1 - self.alpha:.3g}, all true tokens of a new chain, one of the "
            f"{self.applies}, reach the threshold of every family that its prompt has masked ({taus}).{silent}"
        )

    @property
    def applies(self) -> str:
        """Which chains all families' certificates speak of."""
        ended = all(own.lengths.ended for _, own in self._calibrated)
        return chains_of(self.horizon, ended)

    def certifies(self, steps: Sequence[Step], finished: str | None = None) -> bool | None:
        """Whether every token of a chain reaches the threshold of each family masked in its prompt.

        Args:
            steps: The chain so far, from its first step.
            finished: How the chain ended, as :attr:`coft_core.types.Run.finished` says it; None if it can still go on.

        Returns:
            None where nothing can be said: there is no step, the chain is none of those that the certificates speak of
            (:attr:`applies`), it was decoded without these thresholds, or none of its families has one.
        """
        found = self._calibrated
        taus = {name: own.log_tau for name, own in found}
        parts = [part for step in steps for part in step.families]
        decoded_so = all(part.state not in ("mismatch", "none") for part in parts)
        if not decoded_so or any(why_silent(own, len(steps), finished) for _, own in found):
            return None
        supports = [(part.log_joint, taus[part.family]) for part in parts if part.family in taus]
        return all(log_joint >= log_tau for log_joint, log_tau in supports) if supports else None
