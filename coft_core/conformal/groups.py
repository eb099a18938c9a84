"""Groups of contexts, for group-conditional (Mondrian) thresholds: each group calibrated on its own contexts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from coft_core.conformal.quantile import exact_alpha, level_at_least, minimum_contexts
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError


@dataclass(frozen=True, slots=True)
class ContextGroups:
    """Which group each context belongs to."""

    names: tuple[str, ...] = ()
    members: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, group_of_context: Mapping[int, str]) -> ContextGroups:
        """Collect the groups of a calibration's contexts."""
        names = tuple(sorted(set(group_of_context.values())))
        places: dict[str, list[int]] = {name: [] for name in names}
        for context in sorted(group_of_context):
            places[group_of_context[context]].append(context)
        return cls(names, tuple(tuple(places[name]) for name in names))

    def contexts(self, name: str) -> tuple[int, ...]:
        """Contexts of a group."""
        if name not in self.names:
            known = ", ".join(self.names) or "none: calibrate with by_group=True"
            raise InvalidInputError(f"There is no group {name!r} in this calibration; its groups are {known}.")
        return self.members[self.names.index(name)]

    def to_dict(self) -> dict[str, list[int]]:
        """Contexts by name."""
        return {name: list(contexts) for name, contexts in zip(self.names, self.members, strict=True)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ContextGroups:
        """Rebuild from :meth:`to_dict`."""
        group_of_context: dict[int, str] = {}
        for name, contexts in data.items():
            if not isinstance(contexts, list) or not all(type(context) is int for context in contexts):
                raise CalibrationFormatError(f"The calibration's group {name!r} is no list of contexts.")
            group_of_context.update(dict.fromkeys(contexts, name))
        if len(group_of_context) != sum(len(contexts) for contexts in data.values()):
            raise CalibrationFormatError("A context of the calibration belongs to two groups.")
        return cls.of(group_of_context)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """How much is known of one group."""

    name: str
    contexts: int
    verification_contexts: int
    needed: int
    smallest_alpha: float | None
    effective: float | None = None
    rows: int = 0

    @property
    def effective_needed(self) -> float:
        """Effective contexts that are needed under shift weights, as for all groups together."""
        return max(EFFECTIVE_FLOOR, float(self.needed))

    @property
    def outweighed(self) -> bool:
        """Whether there are shift weights that leave the group's contexts too few effective ones."""
        return bool(self.contexts) and self.effective is not None and self.effective < self.effective_needed

    @property
    def certifiable(self) -> bool:
        """Whether the group has enough contexts for a threshold of its own."""
        return self.contexts >= self.needed and not self.outweighed

    @property
    def sentence(self) -> str:
        """What can be claimed for the group."""
        if self.outweighed and self.contexts >= self.needed:
            return (
                f"The weights leave the {self.contexts} contexts of the group {self.name!r} worth {self.effective:.1f} "
                f"and at least {self.effective_needed:g} are needed; calibrate on prompts that are more like those of "
                "the deployment."
            )
        if self.certifiable:
            return f"The group {self.name!r} has {self.contexts} contexts, and {self.needed} are needed."
        short = f"{self.needed} are needed; nothing is certified for it"
        if self.rows > self.contexts:
            return (
                f"The {self.rows} rows of the group {self.name!r} count as {self.contexts} because of the column "
                f"context, and {short}: give rows that do not belong together contexts of their own, add rows of the "
                "group, or accept more misses (alpha)."
            )
        return (
            f"The group {self.name!r} has {self.contexts} contexts, and {short}: add rows of the group, or accept more "
            "misses (alpha)."
        )


def group_summary(
    groups: ContextGroups,
    name: str,
    values: CalibrationValues,
    verification: CalibrationValues,
    alpha: float,
    shift: Shift,
) -> GroupSummary:
    """How much is known of a group; under weights, a level must exceed the new prompt's share of all weights."""
    members = groups.contexts(name)
    own = values.select(members)
    calibrated, unit = np.unique(own.contexts), shift.level(Fraction(1))
    weights = shift.of(calibrated)  # (n,)
    smallest = 1 / (unit * (calibrated.size + 1))
    if weights is not None:
        total = sum(map(Fraction, weights.tolist()), Fraction(shift.test_weight))
        smallest = Fraction(shift.test_weight) / total
    return GroupSummary(
        name=name,
        contexts=int(calibrated.size),
        verification_contexts=verification.select(members).context_count,
        needed=minimum_contexts(shift.level(exact_alpha(alpha))),
        smallest_alpha=level_at_least(smallest),
        effective=shift.effective(calibrated.tolist()) if calibrated.size else None,
        rows=int(np.unique(own.rows).size),
    )
