"""Aligning two chains of tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from app.services.views.comparisons import AlignedRow


def align(first: Sequence[Hashable], other: Sequence[Hashable]) -> tuple[AlignedRow, ...]:
    """Align two chains so that equal runs stand beside each other.

    Where both have something else between two equal runs, the tokens there stand beside each other one by one, and what
    is left over stands alone.

    Args:
        first: Tokens of the first chain.
        other: Tokens of the other.

    Returns:
        Rows in reading order; each token of each chain is in exactly one of them.
    """
    rows: list[AlignedRow] = []
    # A token that is frequent, such as a space, is no junk here.
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, first, other, autojunk=False).get_opcodes():
        for left, right in zip_longest(range(i1, i2), range(j1, j2)):
            if left is None:
                rows.append(AlignedRow("added", None, right))
            elif right is None:
                rows.append(AlignedRow("removed", left, None))
            else:
                rows.append(AlignedRow("same" if tag == "equal" else "changed", left, right))
    return tuple(rows)


def first_divergence(first: Sequence[Hashable], other: Sequence[Hashable]) -> int | None:
    """The first place at which two chains differ, the shorter one's end included; None if they are equal."""
    for index, (left, right) in enumerate(zip(first, other, strict=False)):
        if left != right:
            return index
    return None if len(first) == len(other) else min(len(first), len(other))
