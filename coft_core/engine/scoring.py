"""Teacher forcing: logits at every token of given continuations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from coft_core.engine.forced import ForcedItem, ForcedScorer, Limits
from coft_core.engine.forced_batches import forced_batches
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError, PromptTooLongError


def teacher_forced_logits(model: LanguageModel, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
    """Logits before each continuation token, the head computed only there.

    Rows with one continuation and prompts of one length are scored as branches of one item, whose common prefix is run
    once; all others are put together by their lengths. No forward reads more tokens than the model's
    ``prefill_tokens``.

    Args:
        model: The model.
        rows: (prompt tokens, continuation tokens) of each row; both non-empty.

    Returns:
        One ``(C_r, V)`` tensor a row, on the model's device and in its dtype: row ``c`` is the distribution from which
        continuation token ``c`` is drawn.

    Raises:
        InvalidInputError: A prompt or a continuation is empty.
        PromptTooLongError: Prompt and continuation together exceed the model's context.
    """
    if any(len(prompt) == 0 or len(continuation) == 0 for prompt, continuation in rows):
        raise InvalidInputError("A prompt or a continuation has no tokens; give at least one word each.")
    longest = max((len(prompt) + len(continuation) for prompt, continuation in rows), default=0)
    if longest > model.context_length:
        raise PromptTooLongError(
            f"Prompt and continuation have {longest:,} tokens and the model takes {model.context_length:,}; "
            "shorten them."
        )
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for row, (prompt, continuation) in enumerate(rows):
        groups.setdefault((len(prompt), tuple(continuation)), []).append(row)
    items = [
        ForcedItem(tuple(tuple(rows[row][0]) for row in group), continuation)
        for (_, continuation), group in groups.items()
    ]
    scored = _scored(model, items)  # (C, B, V) an item
    found = {row: scored[i][:, b] for i, group in enumerate(groups.values()) for b, row in enumerate(group)}
    return [found[row] for row in range(len(rows))]


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Group indices of similar lengths so that rows times longest row stays within a budget.

    Args:
        lengths: Length of each item in tokens.
        token_budget: Largest padded batch in tokens; one item longer than it makes a batch of its own.

    Yields:
        Lists of indices into ``lengths``.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[index] > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _scored(model: LanguageModel, items: Sequence[ForcedItem]) -> dict[int, Tensor]:
    """Logits of every item, ``(C, B, V)``."""
    limits = Limits.of(model.device)
    scorer = ForcedScorer(model, limits)
    found: dict[int, Tensor] = {}
    for batch in forced_batches(items, model.prefill_tokens, waste=limits.waste):
        chosen = [items[i] for i in batch]
        logits = _whole(scorer, chosen)  # (N, B, V)
        found.update(zip(batch, torch.split(logits, [item.scored for item in chosen]), strict=True))
    return found


def _whole(scorer: ForcedScorer, items: Sequence[ForcedItem]) -> Tensor:
    """Logits of a batch at every scored position, ``(N, B, V)``."""
    count = sum(item.scored for item in items)
    whole: Tensor | None = None
    for index, logits in scorer.logits(items):
        if whole is None:
            whole = logits.new_empty(count, *logits.shape[1:])
        whole[index] = logits
    assert whole is not None  # every item has a scored position
    return whole
