"""Teacher forcing: logits at every token of given continuations, in one uncached forward a batch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError, PromptTooLongError


def teacher_forced_logits(model: LanguageModel, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
    """Logits before each continuation token, the head computed only there.

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
    # The last token predicts nothing that is scored, so it is not fed.
    sequences = [[*prompt, *continuation][:-1] for prompt, continuation in rows]
    longest = max(len(sequence) for sequence in sequences)
    if longest >= model.context_length:
        raise PromptTooLongError(
            f"Prompt and continuation have {longest + 1:,} tokens and the model takes {model.context_length:,}; "
            "shorten them."
        )
    kept = max(len(continuation) for _, continuation in rows)
    logits = _forward(model, sequences, longest, kept)  # (R, >= kept, V)
    return [logits[r, logits.shape[1] - len(c) :] for r, (_, c) in enumerate(rows)]


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


def _forward(model: LanguageModel, sequences: list[list[int]], longest: int, kept: int) -> Tensor:
    padding = torch.tensor([longest - len(s) for s in sequences])  # (R,)
    ids = torch.tensor([[0] * (longest - len(s)) + s for s in sequences], device=model.device)  # (R, L)
    accepts = inspect.signature(model.module.forward).parameters
    arguments: dict[str, object] = {"input_ids": ids, "use_cache": False}
    if "logits_to_keep" in accepts:
        arguments["logits_to_keep"] = kept
    if bool(padding.any()):
        columns = torch.arange(longest)  # (L,)
        arguments["attention_mask"] = (columns >= padding[:, None]).long().to(model.device)
        if "position_ids" in accepts:
            arguments["position_ids"] = (columns - padding[:, None]).clamp_min(0).to(model.device)
    with torch.inference_mode():
        logits: Tensor = model.module(**arguments).logits
    return logits
