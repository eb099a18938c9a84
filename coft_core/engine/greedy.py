"""A text that a model writes by itself, the likeliest token at a time; for rewritten prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coft_core.engine.branches import BranchBatch
from coft_core.engine.model import LanguageModel


@dataclass(frozen=True, slots=True)
class WrittenText:
    """What a model wrote.

    Attributes:
        text: The text, without special tokens.
        cut: Whether it ended because there was no room for more.
    """

    text: str
    cut: bool


def write_greedily(
    model: LanguageModel, ids: Sequence[int], most: int, ended: Callable[[str], bool] = lambda text: False
) -> WrittenText:
    """Continue tokens with the likeliest ones, up to the model's end token.

    Args:
        model: The model.
        ids: Tokens to continue.
        most: Tokens at most.
        ended: Told the text so far; whether it is complete.

    Raises:
        InvalidInputError: There are no tokens.
        PromptTooLongError: They fill the model's context.
    """
    batch = BranchBatch(model, [ids])
    written: list[int] = []
    try:
        while len(written) < most and batch.room > 0:
            chosen = batch.logits().float().argmax(-1)  # (1,)
            token_id = int(chosen)
            if token_id in model.end_token_ids:
                return WrittenText(model.continuation_text(written), False)
            written.append(token_id)
            text = model.continuation_text(written)
            if ended(text):
                return WrittenText(text, False)
            batch.append(chosen)
        return WrittenText(model.continuation_text(written), True)
    finally:
        batch.close()
