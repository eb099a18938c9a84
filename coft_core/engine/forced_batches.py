"""Which continuations are scored together: of similar lengths, within a budget, and with a beginning in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from coft_core.engine.forced import ForcedItem


def forced_batches(
    items: Sequence[ForcedItem],
    token_budget: int,
    most: int | None = None,
    waste: float = 1.5,
    fitting: Callable[[Sequence[ForcedItem]], bool] | None = None,
) -> Iterator[list[int]]:
    """Group items by number of branches, by length, and among nearly equally long ones by their common prefix.

    Args:
        items: The items.
        token_budget: Largest padded batch in tokens, all branches counted; an item longer than it has a batch of its
            own.
        most: Items in a batch at most; None sets no limit.
        waste: See :class:`Limits`.
        fitting: Whether items may be a batch; an item for which none of this holds has a batch of its own.

    Yields:
        Lists of indices into ``items``; every index is in one of them.
    """
    batch: list[int] = []
    for index in sorted(range(len(items)), key=lambda i: _bucket(items[i])):
        wider = [items[i] for i in (*batch, index)]
        if batch and not (_fit(wider, token_budget, most, waste) and (fitting is None or fitting(wider))):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _fit(items: Sequence[ForcedItem], token_budget: int, most: int | None, waste: float) -> bool:
    """Whether items make a good batch."""
    branches, longest = len(items[0].prompts), max(item.length for item in items)
    if len(items[-1].prompts) != branches or (most is not None and len(items) > most):
        return False
    together = len(items) * _computed(branches, longest, min(item.shared for item in items))
    alone = sum(_computed(branches, item.length, item.shared) for item in items)
    return len(items) * branches * longest <= token_budget and together <= waste * alone


def _computed(branches: int, length: int, shared: int) -> int:
    """Tokens of one item that the model runs over."""
    return shared + branches * (length - shared)


def _bucket(item: ForcedItem) -> tuple[int, int, int, int]:
    steps = math.ceil(math.log(item.length) / math.log(1.1))
    return len(item.prompts), steps, item.shared, item.length
