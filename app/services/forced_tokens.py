"""Tokens that a reviewer forces."""

from __future__ import annotations

from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError


def forced_token(model: LanguageModel, token: int | str) -> int:
    """The id of a token to force.

    Args:
        model: The model.
        token: An id, or a text that is one token when it continues a sentence.

    Raises:
        InvalidInputError: The text is not one token.
    """
    if isinstance(token, int):
        return token
    token_id = model.single_token(token)
    if token_id is None:
        raise InvalidInputError(
            f"“{token}” is not one token of this model; type a shorter piece, and mind that a leading space counts."
        )
    return token_id
