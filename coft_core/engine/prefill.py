"""Reading long prompts in pieces, so that activations never grow with a prompt's length.

A transformer's activations take memory for every token of a forward, its keys and values for every token read so far.
Reading a prompt in pieces over a cache bounds the former and leaves the latter, and every logit, as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer


def pieces(rows: int, begin: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of columns, one forward each.

    Args:
        rows: Rows R that are read together.
        begin: First column that is read.
        end: One past the last column.
        limit: Tokens that one forward reads at most, over all rows; a single column is read whatever its rows.

    Yields:
        ``(start, stop)`` with ``R * (stop - start) <= limit``, in order, together ``[begin, end)``.
    """
    width = max(1, limit // rows)
    for start in range(begin, end, width):
        yield start, min(start + width, end)


class PrefixLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of a prefix, one row an item, read by every branch of that item.

    What comes after it differs between branches; it is kept beside the prefix if more is to come, and else handed on.
    """

    def __init__(self, keys: Tensor, values: Tensor, branches: int, keep: bool) -> None:
        """Hold a prefix.

        Args:
            keys: Its keys, ``(G, heads, shared, width)``.
            values: Its values, of the same shape but for the width.
            branches: Branches B of each item.
            keep: Whether what comes after it is read in several pieces.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(keys, values)
        self._prefix, self._branches, self._keep = (keys, values), branches, keep
        # What came after the prefix, (G * B, heads, t, width).
        self._after = tuple(states[..., :0, :].repeat_interleave(branches, dim=0) for states in (keys, values))

    def get_seq_length(self) -> int:
        """Tokens of the prefix and of what was kept after it."""
        return int(self._prefix[0].shape[-2]) + int(self._after[0].shape[-2])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Prefix, what was kept and new states together, ``(G * B, heads, shared + t + new, width)``."""
        new = (key_states, value_states)
        after = tuple(torch.cat([kept, states], dim=-2) for kept, states in zip(self._after, new, strict=True))
        if self._keep:
            self._after = after
        prefix = (states.repeat_interleave(self._branches, dim=0) for states in self._prefix)
        keys, values = (torch.cat(pair, dim=-2) for pair in zip(prefix, after, strict=True))
        return keys, values
