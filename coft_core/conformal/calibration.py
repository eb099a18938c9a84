"""A calibration: one part for each masked branch of its policy, which together hold at its risk level.

A joint mask has one part, :data:`JOINT`. With factorized masks (paper App. "Beyond tokens") family k is certified at
``alpha_k``, and by the union bound all certificates together hold with probability at least ``1 - sum of alpha_k``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np

from coft_core.conformal import archive
from coft_core.conformal.bins import Bin, PositionBins
from coft_core.conformal.coverage import CoverageReport, kept_report
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.part import (
    JOINT,
    OTHER_THRESHOLDS,
    BinSupport,
    Certifiable,
    ChainRecord,
    Part,
    Reading,
    ReadingChanges,
    certifiable,
)
from coft_core.conformal.quantile import Estimator, check_alpha, exact_alpha, level_at_least, minimum_contexts
from coft_core.conformal.sequence import SequenceThreshold
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.types import CertificateState, in_page_order

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


@dataclass(frozen=True)
class Calibration:
    """Thresholds by position for one policy, and all that is needed to read them off again.

    Attributes:
        alpha: Risk level of all parts together, averaged over the steps of each bin.
        parts: (family, its thresholds) in the order of the pages, or :data:`JOINT` with those of the joint mask.
        chosen: Joint support of the tokens that the policy itself chose: the baseline of drift; may be empty.
        unmasked: Calibration prompts in which no family is masked; they play no part.
        created: When it was computed, ISO 8601.
        name: The reviewer's name for it.

    Raises:
        InvalidInputError: The parts do not belong together, or their levels sum to more than ``alpha``.
    """

    alpha: float
    parts: tuple[tuple[str, Part], ...]
    chosen: CalibrationValues = field(default_factory=CalibrationValues.empty)
    unmasked: int = 0
    created: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        """Order and check the parts."""
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        by_family = dict(self.parts)
        if not self.parts or len(by_family) != len(self.parts):
            raise InvalidInputError("A calibration needs at least one part, and each of them once.")
        if self.layout == "joint":
            return
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

    @classmethod
    def of(
        cls,
        fingerprint: Fingerprint,
        alpha: float,
        values: CalibrationValues,
        verification: CalibrationValues | None = None,
        chosen: CalibrationValues | None = None,
        created: str = "",
        name: str = "",
        **settings: Any,
    ) -> Calibration:
        """A calibration of a joint mask; settings as :class:`coft_core.conformal.part.Part` has them."""
        part = Part(fingerprint, alpha, values, verification or CalibrationValues.empty(), **settings)
        return cls(part.alpha, ((JOINT, part),), chosen or CalibrationValues.empty(), created=created, name=name)

    @property
    def layout(self) -> Literal["joint", "factorized"]:
        """Whether one branch is masked, or one for each family."""
        return "joint" if [name for name, _ in self.parts] == [JOINT] else "factorized"

    @property
    def joint(self) -> Part:
        """The thresholds of a joint mask; an :class:`InvalidInputError` where there are thresholds by family."""
        if self.layout != "joint":
            raise InvalidInputError(
                f"This calibration has thresholds of its own for each family ({', '.join(self.families)}); choose one."
            )
        return self._first

    @property
    def _first(self) -> Part:
        return self.parts[0][1]

    @property
    def families(self) -> tuple[str, ...]:
        """The calibrated families; none of a joint mask."""
        return tuple(name for name, _ in self.parts if name != JOINT)

    @property
    def alphas(self) -> dict[str, float]:
        """Risk level by part."""
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
    def group(self) -> str | None:
        """Group that it is restricted to; None for all."""
        return self._first.group

    @property
    def context_groups(self) -> ContextGroups:
        """Which group each context belongs to; empty unless calibrated by group."""
        return self._first.context_groups

    @property
    def positions(self) -> PositionBins:
        """The position bins that tell all parts' bins apart: those of the part with the most."""
        return max((part.positions for _, part in self.parts), key=lambda positions: positions.count)

    @property
    def bins(self) -> tuple[Bin, ...]:
        """The thresholds of a joint mask, one per position bin."""
        return self.joint.bins

    @property
    def reading(self) -> Reading:
        """How the thresholds are read off the values at present; its alpha is that of all parts together."""
        return replace(self._first.reading, alpha=self.alpha)

    @property
    def chains(self) -> ChainRecord | None:
        """How the policy's chains were generated, with all parts' levels together; None without chains."""
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
        """Number of contexts that the thresholds of any part rest on."""
        return int(np.unique(np.concatenate([part.values.contexts for _, part in self.parts])).size)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that must be shown with the thresholds; empty when there is nothing to add."""
        sentences = [self._first.shift.sentence]
        if self.source == "rollout" and (record := self._first.chains) is not None:
            sentences += [record.sentence, "" if self.as_rolled_out else OTHER_THRESHOLDS]
        if self.unmasked:
            sentences.append(f"Prompts without anything masked ({self.unmasked}) play no part in this calibration.")
        if self.families:
            sentences += self._family_notes()
        return tuple(sentence for sentence in sentences if sentence)

    def _family_notes(self) -> Iterable[str]:
        for name, part in self.parts:
            needed = minimum_contexts(part.shift.level(part.exact_alpha))
            if part.context_count < needed:
                yield (
                    f"The family {name!r} has {part.context_count} contexts and its share of alpha needs {needed}; "
                    "it refuses nothing."
                )
        unmeasured = [name for name, part in self.parts if not len(part.verification)]
        if unmeasured and self.coverage.contexts:
            yield f"No context kept apart has {', '.join(unmeasured)} masked; coverage leaves this out."

    @property
    def silence(self) -> str:
        """Why no part's thresholds say anything; empty if one of them does."""
        reasons = [part.silence for _, part in self.parts]
        return reasons[0] if all(reasons) else ""

    def part(self, family: str) -> Part | None:
        """A family's thresholds; None if no calibration prompt had it masked."""
        return dict(self.parts).get(family)

    def each(self, change: Callable[[Part], Part]) -> Calibration:
        """Change every part."""
        return replace(self, parts=tuple((name, change(part)) for name, part in self.parts))

    def threshold(self, step: int, family: str = JOINT) -> float:
        """``log_tau`` at a step (0-based); ``-inf`` where every token passes."""
        return self.bound(step, family)[0]

    def bound(self, step: int, family: str = JOINT) -> tuple[float, CertificateState]:
        """A part's log-threshold at a step (0-based) and its state; a family never calibrated certifies everything."""
        if (part := self.part(family)) is None:
            return -math.inf, "uninformative"
        found = part.bin(step)
        return found.log_tau, found.state

    def read(self, by_family: Mapping[str, float] | None = None, **changes: Unpack[ReadingChanges]) -> Calibration:
        """Read other thresholds off the same values, without the model; what is left out or None stays as it is.

        Another estimator gives another fingerprint; alpha, the bins, the draws and a shift are not part of it.

        Args:
            by_family: Another level for each family; without it another alpha is shared out equally.
            changes: Settings of all parts.

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
    ) -> Calibration:
        """Thresholds for prompts whose density ratio to the calibration's is proportional to weights by context.

        Verification contexts need one too; a new prompt weighs as much as the largest if ``test_weight`` is None.

        Raises:
            InvalidInputError: A context has no weight, or too few effective contexts are left.
        """
        return self.under(Shift.weighted(weights, test_weight, estimated), floor)

    def under(self, shift: Shift, floor: float = EFFECTIVE_FLOOR) -> Calibration:
        """Thresholds under weights of contexts, see :meth:`reweighted`."""
        parts = []
        for name, part in self.parts:
            try:
                parts.append((name, part.under(shift, floor)))
            except InvalidInputError as error:
                raise InvalidInputError(_too_small(name, str(error))) from error
        return replace(self, parts=tuple(parts))

    def for_group(self, name: str) -> Calibration:
        """Thresholds that hold for a new context of one group; a family with too few contexts refuses nothing.

        Raises:
            InvalidInputError: There is no such group, or no part has enough contexts in it.
        """
        members = self.context_groups.contexts(name)
        summaries = {family: group for family, part in self.parts for group in part.groups if group.name == name}
        for family, group in summaries.items():
            if group.outweighed:
                raise InvalidInputError(_too_small(family, group.sentence))
        if not any(group.certifiable for group in summaries.values()):
            raise InvalidInputError(max(summaries.values(), key=lambda group: group.contexts).sentence)
        return replace(self.each(lambda part: part.restricted(name)), chosen=self.chosen.select(members))

    def sequence(self, alpha: float | None = None, horizon: int | None = None) -> SequenceThreshold:
        """Threshold of a joint mask for whole chains, see :meth:`coft_core.conformal.part.Part.sequence`."""
        return self.joint.sequence(alpha, horizon)

    def smallest_alpha(self) -> Certifiable:
        """The smallest levels that, shared out equally, give every part with any support a threshold."""
        supported = [certifiable(part.values, part.rule, self.positions, part.horizon) for _, part in self.parts]
        if not self.families:
            return supported[0]

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

    @cached_property
    def coverage(self) -> CoverageReport:
        """How often all parts keep the true next token together, on the contexts kept apart.

        Where rows of a context are not told apart, values at one step count as one: too little coverage rather than
        too much.
        """
        if not self.families:
            return self._first.coverage
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
        """Levels by part: by hand, else equal for another alpha, else the present ones."""
        if not self.families:
            if by_family is not None:
                raise InvalidInputError("This calibration has one masked branch and so one alpha.")
            return {JOINT: self.alpha if alpha is None else alpha}
        kept = self.alphas if alpha is None else None
        return split_alpha(self.alpha if alpha is None else alpha, self.families, by_family or kept)

    def to_bytes(self) -> bytes:
        """The calibration as a file's content; equal calibrations give equal bytes."""
        return archive.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Calibration:
        """Rebuild from :meth:`to_bytes`, or raise a :class:`CalibrationFormatError`; nothing is executed."""
        try:
            return cls(**archive.decode(data))
        except InvalidInputError as error:
            raise CalibrationFormatError(f"The calibration holds a setting that is not usable: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a file: whole, or not at all."""
        archive.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a calibration from a file."""
        data = archive.read(path)
        try:
            return cls.from_bytes(data)
        except CalibrationFormatError as error:
            raise CalibrationFormatError(f"{path}: {error}") from error


def _too_small(family: str, why: str) -> str:
    return why if family == JOINT else f"The family {family!r} is too small for weights: {why}"


def _common(part: Part) -> tuple[object, ...]:
    """What all parts share, so that their certificates can be intersected."""
    bins = (part.bin_width, part.max_position, part.bin_spacing)
    return (bins, part.shift, part.seed, part.draws, part.group, part.context_groups)
