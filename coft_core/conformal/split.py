"""From prompts to contexts, and from contexts to parts: what counts as one, and which are kept apart."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.quantile import minimum_contexts
from coft_core.errors import InvalidInputError
from coft_core.types import Example


def context_numbers(examples: Sequence[Example], by_group: bool = False) -> list[int]:
    """Number of each example's context, in the order in which contexts first appear.

    Rows that share a ``context`` are one context, every other row is its own. ``by_group`` requires a group of each
    row.

    Raises:
        InvalidInputError: By group, a row has no group, or the rows of one context have several.
    """
    numbers: dict[object, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in _keys(examples, by_group)]


def groups_of(examples: Sequence[Example]) -> ContextGroups:
    """The groups of contexts when thresholds are asked by group."""
    numbers = context_numbers(examples, by_group=True)
    return ContextGroups.of({number: str(e.group) for number, e in zip(numbers, examples, strict=True)})


def held_out_contexts(
    contexts: Mapping[str, Collection[int]],
    alphas: Mapping[str, float],
    share: float,
    seed: int,
    groups: ContextGroups | None = None,
) -> list[int]:
    """Draw the contexts that are kept apart to measure coverage; each threshold keeps as many as its level needs."""
    generator = np.random.default_rng(seed)
    owned = {name: set(members) for name, members in contexts.items()}
    everything = set().union(*owned.values())
    parts = [everything] if groups is None else [everything & set(members) for members in groups.members]
    chosen: list[int] = []
    for part in parts:
        spare = {name: len(members & part) - minimum_contexts(alphas[name]) for name, members in owned.items()}
        left = math.floor(share * len(part))
        for context in generator.permutation(sorted(part)).tolist():
            touched = [name for name, members in owned.items() if context in members]
            if left and all(spare[name] > 0 for name in touched):
                chosen.append(context)
                left -= 1
                spare.update({name: spare[name] - 1 for name in touched})
    return sorted(chosen)


def check_share(share: float) -> float:
    """Return the verification share if it is one."""
    if 0 <= share < 1:
        return share
    raise InvalidInputError(f"The verification share is {share}; choose 0 or more and below 1.")


def _keys(examples: Sequence[Example], by_group: bool) -> list[tuple[str, object]]:
    keys: list[tuple[str, object]] = []
    group_of: dict[str, tuple[str, int]] = {}
    for number, example in enumerate(examples, start=1):
        if by_group and not example.group:
            raise InvalidInputError(f"Example {number} has no group; fill it in, or calibrate without groups.")
        if example.context is not None:
            group, first = group_of.setdefault(example.context, (str(example.group), number))
            if by_group and group != example.group:
                raise InvalidInputError(
                    f"Examples {first} and {number} share the context {example.context!r} and have the groups "
                    f"{group!r} and {example.group!r}; rows of one context belong to one group."
                )
            keys.append(("context", example.context))
        else:
            keys.append(("row", number))
    return keys
