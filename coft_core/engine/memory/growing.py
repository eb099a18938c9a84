"""Rows over a transformers cache that grows by concatenation, for models that preallocated rows do not fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from coft_core.engine.memory.size import token_size
from coft_core.engine.memory.tokens import RowTokens
from coft_core.engine.model import LanguageModel


class GrowingRows:
    """Rows padded on the left, so that the newest token of every row stands in one column.

    Layers with a sliding window are kept whole here: they use more memory than the window needs, and can be cut.
    """

    def __init__(self, model: LanguageModel, tokens: RowTokens, accepts: frozenset[str]) -> None:
        """Stand over tokens; nothing runs yet."""
        self._model, self._tokens, self._accepts = model, tokens, accepts
        self._padding = tokens.padding()  # (R,)
        self._padded = not tokens.uniform
        self._cache = DynamicCache()
        self._cached = 0
        self._cell_size = token_size(model)

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(keys.nbytes + values.nbytes for keys, values, *_ in self._cache if keys is not None)

    @property
    def prefix_length(self) -> int:
        """Nothing is held once here."""
        return 0

    def size_after(self, count: int) -> int:
        """Bytes held when so many more tokens have been run; 0 before the first where the configuration is silent."""
        a_token = self._tokens.rows * self._cell_size or (self.size // self._cached if self._cached else 0)
        return (max(self._cached, self._length - 1) + count) * a_token

    def logits(self) -> Tensor:
        """Run what is pending, ``(R, V)``."""
        length = self._length
        if self._cached == length:
            self._drop_beyond(length - 1)
        ids = self._tokens.after(self._cached - self._tokens.longest) if self._cached else self._tokens.padded()
        logits = ids.new_empty(0)
        for piece in torch.split(ids, max(1, self._model.prefill_tokens // len(ids)), dim=1):
            with torch.inference_mode():
                output = self._model.module(**self._arguments(piece))
            self._cached += piece.shape[1]
            logits = output.logits[:, -1]  # (R, V)
        return logits

    def cut(self) -> None:
        """Forget keys and values of the newest token and of those that are no longer there."""
        self._drop_beyond(self._length - 1)

    def copied(self, tokens: RowTokens) -> GrowingRows:
        """A second memory for earlier tokens of these rows."""
        copy = GrowingRows(self._model, tokens, self._accepts)
        keep = min(self._cached, copy._length - 1)
        # The copy is cut before it is cloned, so that only what both share is held twice.
        if keep:
            pairs = [(keys[..., :keep, :].clone(), values[..., :keep, :].clone()) for keys, values, *_ in self._cache]
            copy._cache, copy._cached = DynamicCache(pairs), keep
        return copy

    @property
    def _length(self) -> int:
        return self._tokens.longest + self._tokens.generated

    def _drop_beyond(self, length: int) -> None:
        if self._cached > length:
            if length == 0:
                self._cache = DynamicCache()
            else:
                self._cache.crop(length - self._cached)
            self._cached = length

    def _arguments(self, ids: Tensor) -> dict[str, Any]:
        arguments: dict[str, Any] = {"input_ids": ids, "past_key_values": self._cache, "use_cache": True}
        if "logits_to_keep" in self._accepts:
            arguments["logits_to_keep"] = 1
        if self._padded:
            columns = torch.arange(self._cached + ids.shape[1], device=ids.device)  # (L,)
            arguments["attention_mask"] = (columns >= self._padding[:, None]).long()  # (R, L)
            if "position_ids" in self._accepts:
                positions = (columns - self._padding[:, None]).clamp_min(0)  # (R, L)
                arguments["position_ids"] = positions[:, self._cached :]
        return arguments
