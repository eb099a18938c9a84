"""Rows of similar lengths, put together into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Group indices of similar lengths so that rows times longest row stays within a budget."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[index] > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
