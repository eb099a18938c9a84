"""Tokens of a given continuation, as the model would have produced them after the prompt."""

from __future__ import annotations

from coft_core.engine.model import ANCHOR, LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.masking.masker import MaskedPrompt
from coft_core.masking.surrogates import require_encodable


def continuation_ids(model: LanguageModel, prompt: MaskedPrompt, continuation: str) -> tuple[int, ...]:
    """Tokenize a continuation so that the prompt's own tokens stay as they are.

    Prompt and continuation are tokenized together when that leaves the prompt's tokens unchanged. Where a token would
    straddle the border, the continuation is tokenized on its own.

    Args:
        model: The model.
        prompt: The masked prompt.
        continuation: Text that follows it, taken literally.

    Raises:
        InvalidInputError: The continuation has no tokens, or holds a lone surrogate.
    """
    require_encodable(continuation, "The continuation")
    tokenizer = model.tokenizer
    prefix = list(prompt.factual_ids)
    if not model.chat:
        together = tokenizer(prompt.factual_text + continuation, verbose=False)["input_ids"]
        if together[: len(prefix)] == prefix and len(together) > len(prefix):
            return tuple(int(i) for i in together[len(prefix) :])
    anchor = tokenizer.encode(ANCHOR, add_special_tokens=False)
    alone = tokenizer.encode(ANCHOR + continuation, add_special_tokens=False)
    if alone[: len(anchor)] != anchor:
        alone = [*anchor, *tokenizer.encode(continuation, add_special_tokens=False)]
    if len(alone) == len(anchor):
        raise InvalidInputError("The continuation is empty; give at least one word.")
    return tuple(int(i) for i in alone[len(anchor) :])


def joined(prompt: str, reference: str) -> str:
    """The reference as it follows the prompt: a space is supplied where two words would run together."""
    if prompt and reference and not prompt[-1].isspace() and (reference[0].isalnum() or reference[0] in "\"'("):
        return f" {reference}"
    return reference
