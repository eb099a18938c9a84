"""How many bytes keys and values take, known from a model's configuration before anything runs."""

from __future__ import annotations

from typing import Any

from coft_core.engine.memory.slots import capacity_for
from coft_core.engine.model import LanguageModel


def token_size(model: LanguageModel) -> int:
    """Bytes of one token's keys and values in all layers; 0 where the model's configuration does not tell.

    Keys and values are ``2 * layers * key-value heads * head width`` numbers of the model's type. A model whose layers
    look back only so far (sliding windows) needs at most this.
    """
    text: Any = model.module.config.get_text_config(decoder=True)
    heads, layers = getattr(text, "num_attention_heads", None), getattr(text, "num_hidden_layers", None)
    if not heads or not layers:
        return 0
    width = getattr(text, "head_dim", None) or (getattr(text, "hidden_size", None) or 0) // heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    return int(2 * layers * key_heads * width * model.dtype.itemsize)


def rows_size(model: LanguageModel, rows: int, length: int) -> int:
    """Bytes that rows of a length hold, in the capacity that preallocated memory would have; at least what they fill.

    Args:
        model: The model.
        rows: Number of rows.
        length: Tokens of the longest row.
    """
    return rows * capacity_for(length, model.context_length) * token_size(model)
