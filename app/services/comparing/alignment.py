"""Aligning two chains of tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from app.services.views.comparisons import AlignedRow, ComparedRow


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


def beside(length: int, pairs: Sequence[Sequence[AlignedRow]]) -> tuple[ComparedRow, ...]:
    """Several alignments with the same first chain as one table.

    What other chains have between two tokens of the first one stands there in rows of its own, each chain's next token
    in the next of them; tokens beside each other there are not aligned, since neither is in the first chain.

    Args:
        length: Tokens of the first chain.
        pairs: The first chain aligned with each of the others.

    Returns:
        Rows in reading order; each token of each chain is in exactly one of them.
    """
    added: list[list[list[int]]] = [[[] for _ in range(length + 1)] for _ in pairs]
    facing: list[list[AlignedRow | None]] = [[None] * length for _ in pairs]
    for place, rows in enumerate(pairs):
        seen = 0
        for row in rows:
            if row.first is not None:
                facing[place][row.first] = row
                seen = row.first + 1
            elif row.other is not None:
                added[place][seen].append(row.other)
    found: list[ComparedRow] = []
    for index in range(length + 1):
        for number in range(max((len(own[index]) for own in added), default=0)):
            extra = [own[index][number] if number < len(own[index]) else None for own in added]
            found.append(ComparedRow((None, *extra), (False, *(step is not None for step in extra))))
        if index < length:
            found.append(_facing_row(index, [own[index] for own in facing]))
    return tuple(found)


def _facing_row(index: int, rows: Sequence[AlignedRow | None]) -> ComparedRow:
    others = tuple(None if row is None else row.other for row in rows)
    differs = tuple(row is None or row.kind != "same" for row in rows)
    return ComparedRow((index, *others), (bool(rows) and all(differs), *differs))


def first_divergence(first: Sequence[Hashable], other: Sequence[Hashable]) -> int | None:
    """The first place at which two chains differ, the shorter one's end included; None if they are equal."""
    for index, (left, right) in enumerate(zip(first, other, strict=False)):
        if left != right:
            return index
    return None if len(first) == len(other) else min(len(first), len(other))
