"""One calibration per attribute family: thresholds of factorized masks (paper App. "Beyond tokens").

Family k is certified at ``alpha_k`` where its tokens are masked; by the union bound the intersection of all
certificates holds with probability at least ``1 - sum of alpha_k``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from coft_core.conformal import archive
from coft_core.conformal.bins import PositionBins
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.certifiable import BinSupport, Certifiable, certifiable
from coft_core.conformal.coverage import CoverageReport, kept_report
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.quantile import Estimator, check_alpha, exact_alpha, level_at_least, minimum_contexts
from coft_core.conformal.record import OTHER_THRESHOLDS, ChainRecord, Reading, ReadingChanges
from coft_core.conformal.sequence import SequenceThreshold, chains_of, why_silent
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.types import CertificateState, Step, in_page_order

SHARE_DECIMALS = 9
"""Digits of an equal share: shares are rounded down, so that their sum stays within alpha."""


def split_alpha(
    alpha: float, families: Sequence[str], by_family: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Share a risk level out among families."""
    total = exact_alpha(alpha)
    if by_family is None:
        share = Fraction(math.floor(total / len(families) * 10**SHARE_DECIMALS), 10**SHARE_DECIMALS)
        return dict.fromkeys(families, check_alpha(float(share)))
    if missing := [name for name in families if name not in by_family]:
        raise InvalidInputError(f"The family {missing[0]!r} has no share of alpha; give one for each family.")
    shares = {name: check_alpha(by_family[name]) for name in families}
    if sum(exact_alpha(share) for share in shares.values()) > total:
        listed = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise InvalidInputError(f"The shares ({listed}) sum to more than alpha {alpha:g}; lower one of them.")
    return shares


def least_total(share: float, count: int) -> float | None:
    """Smallest level that gives each of some families at least a share; None if none below 1 does."""
    rounded = Fraction(math.ceil(exact_alpha(share) * 10**SHARE_DECIMALS), 10**SHARE_DECIMALS)
    return level_at_least(rounded * count)


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
        return min((threshold.horizon for _, threshold in self._calibrated), default=0)

    @property
    def _calibrated(self) -> tuple[tuple[str, SequenceThreshold], ...]:
        return tuple((name, threshold) for name, threshold in self.thresholds if threshold.state == "calibrated")

    @property
    def sentence(self) -> str:
        """What holds, in words."""
        without = [(name, threshold.reason) for name, threshold in self.thresholds if threshold.state != "calibrated"]
        silent = "".join(f" Nothing is refused for {name}: {why}" for name, why in without)
        if not self._calibrated:
            return f"For whole chains nothing is certified.{silent}"
        taus = ", ".join(f"{name} {threshold.tau:.3g}" for name, threshold in self._calibrated)
        return (
            f"With probability at least {1 - self.alpha:.3g}, all true tokens of a new chain, one of the "
            f"{self.applies}, reach the threshold of every family that its prompt has masked ({taus}).{silent}"
        )

    @property
    def applies(self) -> str:
        """Which chains all families' certificates speak of."""
        ended = all(threshold.lengths.ended for _, threshold in self._calibrated)
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
        calibrated = self._calibrated
        taus = {name: threshold.log_tau for name, threshold in calibrated}
        parts = [part for step in steps for part in step.families]
        decoded_so = all(part.state not in ("mismatch", "none") for part in parts)
        if not decoded_so or any(why_silent(threshold, len(steps), finished) for _, threshold in calibrated):
            return None
        supports = [(part.log_joint, taus[part.family]) for part in parts if part.family in taus]
        return all(log_joint >= log_tau for log_joint, log_tau in supports) if supports else None


@dataclass(frozen=True, slots=True)
class FactorizedCalibration(archive.Stored):
    """Calibrations by attribute family, for one policy.

    Attributes:
        alpha: Risk level of all families together.
        parts: (family, its calibration), in the order in which pages list families; each at its own level.
        chosen: Joint support of the tokens that the deployed policy itself chose on calibration prompts, against the
            mean of the families' masked views as an audit shows it: the baseline of drift; may be empty.
        unmasked: Calibration prompts in which no family is masked; they play no part.

    Raises:
        InvalidInputError: There is no part, a family comes twice, the parts belong to different policies or differ in
            bins, shift or seed, or their levels sum to more than ``alpha``.
    """

    alpha: float
    parts: tuple[tuple[str, Calibration], ...]
    chosen: CalibrationValues = field(default_factory=CalibrationValues.empty)
    unmasked: int = 0
    layout: ClassVar[Literal["factorized"]] = "factorized"
    _coverage: CoverageReport | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Order and check the parts."""
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        by_family = dict(self.parts)
        if not self.parts or len(by_family) != len(self.parts):
            raise InvalidInputError("A factorized calibration needs at least one family, and each of them once.")
        names = in_page_order(by_family)
        if len(names) != len(by_family):
            raise InvalidInputError(f"One of the families {', '.join(by_family)} is unknown.")
        object.__setattr__(self, "parts", tuple((name, by_family[name]) for name in names))
        for name, part in self.parts:
            self.fingerprint.require_equal(part.fingerprint)
            if _common(part) != _common(self._first):
                raise InvalidInputError(
                    f"The family {name!r} has other position bins, another shift, seed or group than {names[0]!r}; "
                    "read all families alike."
                )
        split_alpha(self.alpha, names, self.alphas)

    @property
    def coverage(self) -> CoverageReport:
        """Coverage of all families' certificates together on the contexts kept apart; measured when first asked for."""
        measured = self._coverage
        if measured is None:
            measured = self._measured()
            object.__setattr__(self, "_coverage", measured)
        return measured

    @property
    def _first(self) -> Calibration:
        return self.parts[0][1]

    @property
    def families(self) -> tuple[str, ...]:
        """The calibrated families."""
        return tuple(name for name, _ in self.parts)

    @property
    def alphas(self) -> dict[str, float]:
        """Risk level by family."""
        return {name: part.alpha for name, part in self.parts}

    @property
    def fingerprint(self) -> Fingerprint:
        """The policy that the values were computed with, equal in all parts."""
        return self._first.fingerprint

    @property
    def estimator(self) -> Estimator:
        """How dependent values of one context are counted."""
        return self._first.estimator

    @property
    def source(self) -> str:
        """Where the contexts come from: ``reference`` or ``rollout``."""
        return self.fingerprint.source

    @property
    def name(self) -> str:
        """The reviewer's name for it."""
        return self._first.name

    @property
    def created(self) -> str:
        """When it was computed, ISO 8601."""
        return self._first.created

    @property
    def group(self) -> str | None:
        """Group that it is restricted to; None for all."""
        return self._first.group

    @property
    def context_groups(self) -> ContextGroups:
        """Which group each context belongs to; empty unless calibrated by group."""
        return self._first.context_groups

    @property
    def positions(self) -> PositionBins:
        """The position bins that tell all families' bins apart: those of the family with the most."""
        return max((part.positions for _, part in self.parts), key=lambda positions: positions.count)

    @property
    def reading(self) -> Reading:
        """How the thresholds are read off the values at present; its alpha is that of all families together."""
        return replace(self._first.reading, alpha=self.alpha)

    @property
    def chains(self) -> ChainRecord | None:
        """How the policy's chains were generated, with all families' levels together; None without chains."""
        records = [part.chains for _, part in self.parts if part.chains is not None]
        if not records:
            return None
        alpha = float(sum(exact_alpha(record.reading.alpha) for record in records))
        return replace(records[0], reading=replace(records[0].reading, alpha=alpha))

    @property
    def as_rolled_out(self) -> bool:
        """Whether the chains, if there are any, were generated with these very thresholds in force."""
        return all(part.as_rolled_out for _, part in self.parts)

    @property
    def context_count(self) -> int:
        """Number of contexts that the thresholds of any family rest on."""
        return int(np.unique(np.concatenate([part.values.contexts for _, part in self.parts])).size)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that must be shown with the thresholds; empty when there is nothing to add."""
        sentences = [self._first.shift.sentence]
        if self.source == "rollout" and (record := self._first.chains) is not None:
            sentences += [record.sentence, "" if self.as_rolled_out else OTHER_THRESHOLDS]
        if self.unmasked:
            sentences.append(f"Prompts without anything masked ({self.unmasked}) play no part in this calibration.")
        for name, part in self.parts:
            needed = minimum_contexts(part.shift.level(part.exact_alpha))
            if part.context_count < needed:
                sentences.append(
                    f"The family {name!r} has {part.context_count} contexts and its share of alpha needs {needed}; "
                    "it refuses nothing."
                )
        unmeasured = [name for name, part in self.parts if not len(part.verification)]
        if unmeasured and self.coverage.contexts:
            sentences.append(f"No context kept apart has {', '.join(unmeasured)} masked; coverage leaves this out.")
        return tuple(sentence for sentence in sentences if sentence)

    @property
    def silence(self) -> str:
        """Why no family's thresholds say anything; empty if one of them does."""
        reasons = [part.silence for _, part in self.parts]
        return reasons[0] if all(reasons) else ""

    def part(self, family: str | None) -> Calibration | None:
        """A family's calibration; None if no calibration prompt had it masked."""
        return next((part for name, part in self.parts if name == family), None)

    def each(self, change: Callable[[Calibration], Calibration]) -> FactorizedCalibration:
        """Change the calibration of every family."""
        return replace(self, parts=tuple((name, change(part)) for name, part in self.parts))

    def threshold(self, family: str, step: int) -> tuple[float, CertificateState]:
        """A family's log-threshold at a step (0-based) and what it rests on.

        A family that was never calibrated certifies everything and is called uninformative: it cannot be violated, so
        the bound on the intersection stands.
        """
        part = self.part(family)
        return (-math.inf, "uninformative") if part is None else (part.threshold(step), part.state(step))

    def read(
        self, by_family: Mapping[str, float] | None = None, **changes: Unpack[ReadingChanges]
    ) -> FactorizedCalibration:
        """Read other thresholds off the same values, without the model; see :meth:`Calibration.read`.

        Args:
            by_family: Another level for each family; without it another alpha is shared out equally.
            changes: Settings of all families.

        Raises:
            InvalidInputError: A setting is outside its domain.
        """
        alpha, parts = changes.get("alpha"), []
        shares = self._shares(alpha, by_family)
        for name, part in self.parts:
            changes["alpha"] = shares[name]
            parts.append((name, part.read(**changes)))
        return replace(self, alpha=self.alpha if alpha is None else alpha, parts=tuple(parts))

    def reweighted(
        self,
        weights: Mapping[int, float],
        test_weight: float | None = None,
        estimated: bool = False,
        floor: float = EFFECTIVE_FLOOR,
    ) -> FactorizedCalibration:
        """Thresholds for prompts of another density, family by family; see :meth:`Calibration.reweighted`."""
        shift = Shift.weighted(weights, test_weight, estimated)
        parts = []
        for name, part in self.parts:
            try:
                parts.append((name, part.reweighted(weights, shift.test_weight, estimated, floor)))
            except InvalidInputError as error:
                raise InvalidInputError(f"The family {name!r} is too small for weights: {error}") from error
        return replace(self, parts=tuple(parts))

    def for_group(self, name: str) -> FactorizedCalibration:
        """Thresholds of one group alone; a family with too few contexts in it refuses nothing, and a note says so.

        Raises:
            InvalidInputError: There is no such group, or too few contexts in it, under weights of any one family.
        """
        members = self.context_groups.contexts(name)
        summaries = {family: group for family, part in self.parts for group in part.groups if group.name == name}
        for family, group in summaries.items():
            if group.outweighed:
                raise InvalidInputError(f"The family {family!r} is too small for weights: {group.sentence}")
        if not any(group.certifiable for group in summaries.values()):
            raise InvalidInputError(max(summaries.values(), key=lambda group: group.contexts).sentence)
        return replace(self.each(lambda part: part.restricted(name)), chosen=self.chosen.select(members))

    def sequence(self, alpha: float | None = None, horizon: int | None = None) -> FamilySequences:
        """Thresholds for whole chains, one a family: together they hold for a whole chain (union bound).

        Args:
            alpha: Risk level for the whole chain and all families, shared out equally; None takes the calibration's
                own levels.
            horizon: Steps of a chain that count; None takes the least that any family with a threshold has for its
                own, see :attr:`Calibration.horizon`.

        Raises:
            InvalidInputError: An argument is outside its domain.
        """
        shares = self._shares(alpha)
        own_horizons = (part.sequence(shares[name]) for name, part in self.parts)
        common = horizon or min((s.horizon for s in own_horizons if s.state == "calibrated"), default=None)
        thresholds = tuple((name, part.sequence(shares[name], common)) for name, part in self.parts)
        return FamilySequences(self.alpha if alpha is None else check_alpha(alpha), thresholds)

    def smallest_alpha(self) -> Certifiable:
        """What can be certified with this: the smallest levels that, shared out equally, give every family a threshold.

        A family without any supported true token is left out; it refuses nothing at any level.
        """
        supported = [certifiable(part.values, part.rule, self.positions, part.horizon) for _, part in self.parts]

        def together(levels: Iterable[float | None]) -> float | None:
            known = [level for level in levels if level is not None]
            return least_total(max(known), len(self.parts)) if known else None

        by_label: dict[str, list[float | None]] = {}
        for part in supported:
            for entry in part.bins:
                by_label.setdefault(entry.label, []).append(entry.smallest_alpha)
        everywhere = [part.everywhere for part in supported]
        contexts = np.concatenate([part.values.contexts for _, part in self.parts])  # (n,)
        bins = self.positions.bins_of(np.concatenate([part.values.steps for _, part in self.parts]))  # (n,)
        labels = {index: self.positions.label(index) for index in np.unique(bins).tolist()}
        return Certifiable(
            contexts=self.context_count,
            overall=together(part.overall for part in supported),
            everywhere=None if None in everywhere else together(everywhere),
            sequence=together(part.sequence for part in supported),
            bins=tuple(
                BinSupport(label, int(np.unique(contexts[bins == index]).size), together(by_label[label]))
                for index, label in labels.items()
            ),
        )

    def _measured(self) -> CoverageReport:
        """How often all families keep the true next token, on the contexts kept apart.

        A step counts as kept iff every family with a value at that step of that row keeps it. Where rows of a context
        are not told apart, values at the same step count as one, which errs on the side of too little coverage.
        """
        positions, shift, seed = self.positions, self._first.shift, self._first.seed
        contexts = np.unique(np.concatenate([part.verification.contexts for _, part in self.parts]))  # (K,)
        drawn = shift.thinned(contexts, seed).tolist()
        columns, flags = [], []
        for _, part in self.parts:
            values = part.verification.select(drawn)
            log_tau = np.array([entry.log_tau for entry in part.bins])  # (B,)
            flags.append(values.values >= log_tau[part.positions.bins_of(values.steps)])  # (n,)
            columns.append(np.stack([values.rows, values.steps, values.contexts]))  # (3, n)
        table = np.concatenate(columns, axis=1)  # (3, N)
        order = np.lexsort(table)  # (N,), by context, step and row
        keys, kept = table[:, order], np.concatenate(flags)[order]  # (3, N), (N,)
        differ = (keys[:, 1:] != keys[:, :-1]).any(axis=0)  # (N - 1,)
        begins = np.flatnonzero(np.concatenate([np.ones(min(kept.size, 1), dtype=bool), differ]))  # (steps,)
        rows, steps, numbers = keys[:, begins]
        together = np.logical_and.reduceat(kept, begins)  # (steps,)
        return kept_report(together, numbers, (steps, rows), positions, shift.level(exact_alpha(self.alpha)), seed)

    def _shares(self, alpha: float | None, by_family: Mapping[str, float] | None = None) -> dict[str, float]:
        """Levels by family: by hand, else equal for another alpha, else the present ones."""
        kept = self.alphas if alpha is None else None
        return split_alpha(self.alpha if alpha is None else alpha, self.families, by_family or kept)

    def to_bytes(self) -> bytes:
        """The calibration as a file's content: an archive with one part a family."""
        parts = {name: part.to_bytes() for name, part in self.parts}
        if len(self.chosen):
            parts[_CHOSEN] = self.chosen.to_bytes()
        settings = {
            "layout": archive.FACTORIZED,
            "alpha": self.alpha,
            "families": list(self.families),
            "unmasked": self.unmasked,
        }
        return archive.pack(settings, parts)

    @classmethod
    def _arguments(cls, data: bytes) -> dict[str, Any]:
        if archive.layout(data) != archive.FACTORIZED:
            raise CalibrationFormatError("This calibration has one threshold for all families; load it as such.")
        settings, _ = archive.unpack(data, ())
        names = [str(name) for name in archive.require(settings, "families", list)]
        _, parts = archive.unpack(data, names)
        arguments: dict[str, Any] = {
            "alpha": archive.require(settings, "alpha", float),
            "parts": tuple((name, Calibration.from_bytes(parts[name])) for name in names),
            "unmasked": archive.require({"unmasked": 0, **settings}, "unmasked", int),
        }
        return arguments | ({"chosen": CalibrationValues.from_bytes(parts[_CHOSEN])} if _CHOSEN in parts else {})


_CHOSEN = "chosen tokens"
"""Part of a file that holds the policy's own choices; no family has this name."""


AnyCalibration = Calibration | FactorizedCalibration
"""Either layout: one masked branch is one part of no family, and what both have is called alike."""


def load_calibration(data: bytes) -> AnyCalibration:
    """Rebuild a calibration of either layout from a file's content.

    Raises:
        CalibrationFormatError: The data is damaged, of another version, or no calibration.
    """
    if archive.layout(data) == archive.FACTORIZED:
        return FactorizedCalibration.from_bytes(data)
    return Calibration.from_bytes(data)


def _common(part: Calibration) -> tuple[object, ...]:
    """What all families share, so that their certificates can be intersected."""
    bins = (part.bin_width, part.max_position, part.bin_spacing)
    return (bins, part.shift, part.seed, part.draws, part.group, part.context_groups)
