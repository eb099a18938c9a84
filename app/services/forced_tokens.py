"""Tokens that a reviewer forces."""

from __future__ import annotations

from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.masking.surrogates import require_encodable


def forced_token(model: LanguageModel, token: int | str) -> int:
    """The id of a token to force.

    Args:
        model: The model.
        token: An id, or a text that is one token when it continues a sentence.

    Raises:
        InvalidInputError: The text is not one token, or holds a lone surrogate.
    """
    if isinstance(token, int):
        return token
    require_encodable(token, "The token to force")
    token_id = model.single_token(token)
    if token_id is None:
        raise InvalidInputError(
            f"“{token}” is not one token of this model; type a shorter piece, and mind that a leading space counts."
        )
    return token_id
