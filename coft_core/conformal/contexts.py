"""Contexts, the exchangeable units of a calibration: numbering them and drawing one row of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from coft_core.conformal.support import as_vector
from coft_core.errors import InvalidInputError


def context_codes(groups: Sequence[Hashable] | npt.NDArray[Any] | Tensor | None, n: int) -> npt.NDArray[np.intp]:
    """Number the contexts 0..K-1 in the order of their ids, whatever the order of the rows.

    Args:
        groups: Context id of each row, ``(n,)``; None makes every row its own context.
        n: Number of rows.

    Returns:
        ``(n,)`` codes; every code from 0 to K-1 occurs.

    Raises:
        InvalidInputError: The length is not ``n``, or an id is missing, NaN or not hashable.
    """
    if groups is None:
        return np.arange(n)
    if isinstance(groups, (Tensor, np.ndarray)):
        array = as_vector(groups, "groups")
        _check_length(array.size, n)
        if array.dtype.kind in "iu":
            codes: npt.NDArray[np.intp] = np.unique(array, return_inverse=True)[1]
            return codes
        return _codes_of_list(array.tolist())
    _check_length(len(groups), n)
    return _codes_of_list(groups)


def draw_one_per_context(
    codes: npt.NDArray[np.intp],
    keys: tuple[npt.NDArray[Any], ...],
    generator: np.random.Generator,
    draws: int = 1,
) -> npt.NDArray[np.intp]:
    """Draw one row of each context, uniformly and independently; several times over, with replacement, if asked.

    Args:
        codes: Context of each row, ``(n,)``, numbered 0..K-1 without gaps.
        keys: What orders the rows of one context, most important first, each ``(n,)``. Rows that are equal in
            all keys are interchangeable, so the drawn rows do not depend on the order in which rows are
            given.
        generator: Source of the draws, used once.
        draws: Rows drawn of each context.

    Returns:
        Row indices, ``(draws * K,)``: all contexts in their order, once a draw.
    """
    order = np.arange(codes.size) if _in_order(codes, keys[0]) else np.lexsort((*reversed(keys), codes))  # (n,)
    sizes = np.bincount(codes)  # (K,)
    first = np.cumsum(sizes) - sizes  # (K,)
    drawn: npt.NDArray[np.intp] = order[first + generator.integers(sizes, size=(draws, sizes.size))].ravel()
    return drawn


def _in_order(codes: npt.NDArray[np.intp], key: npt.NDArray[Any]) -> bool:
    """Whether rows stand by context and strictly by a key within it, as calibration writes them; saves the sort."""
    same, rises = codes[1:] == codes[:-1], key[1:] > key[:-1]  # (n - 1,)
    return bool(np.all((codes[1:] > codes[:-1]) | (same & rises)))


def _check_length(length: int, n: int) -> None:
    if length != n:
        raise InvalidInputError(f"groups has {length} entries for {n} values; give one context id per value.")


def _codes_of_list(groups: Sequence[Hashable]) -> npt.NDArray[np.intp]:
    for index, group in enumerate(groups):
        if not isinstance(group, Hashable) or isinstance(group, Tensor):
            raise InvalidInputError(
                f"groups[{index}] is a {type(group).__name__}; use a text or a number as context id."
            )
        if group is None or group != group:
            raise InvalidInputError(f"groups[{index}] is {group}; give every value a context id.")
    distinct = set(groups)
    # Ids of mixed types have no order of their own; the printed form gives them one that no hash seed
    # changes.
    ordered: list[Any] = (
        sorted(distinct)  # type: ignore[type-var]
        if all(type(group) is int for group in distinct)
        else sorted(distinct, key=lambda group: (type(group).__name__, repr(group)))
    )
    code_of = {group: code for code, group in enumerate(ordered)}
    return np.fromiter((code_of[group] for group in groups), dtype=np.intp, count=len(groups))
