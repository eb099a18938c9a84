"""Branches as rows of one batch over one key-value cache.

The cache always lacks the newest token: a forward feeds what is pending, returns the logits that follow it, and the
chosen token becomes pending. Stepping back and forking are therefore a crop and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from coft_core.engine.hooks import Hook
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError, PromptTooLongError, RolloutClosedError


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """A branch that a policy needs.

    Attributes:
        name: ``"factual"``, ``"masked"``, or a policy's own name.
        input_ids: Prompt tokens of this branch; branches of one prompt may differ in length.
        model: Which loaded model runs it; ``"base"`` is the audited one.
        hooks: Activation hooks that are on while this branch runs and off while others do; each attaches itself to the
            model's module and returns what removes it.
    """

    name: str
    input_ids: tuple[int, ...]
    model: str = "base"
    hooks: tuple[Hook, ...] = ()


class BranchBatch:
    """Rows that share one model, one cache and one number of generated tokens.

    Rows of unequal prompts are padded on the left, so that the newest token of every row stands in one column.
    """

    def __init__(self, model: LanguageModel, rows: Sequence[Sequence[int]]) -> None:
        """Lay the prompts out; nothing runs yet.

        Args:
            model: The model.
            rows: Prompt tokens of each row, at least one token each.

        Raises:
            InvalidInputError: There is no row, or a row is empty.
            PromptTooLongError: A row fills the model's context.
        """
        if not rows or any(len(row) == 0 for row in rows):
            raise InvalidInputError("The prompt has no tokens; type at least one word.")
        longest = max(len(row) for row in rows)
        if longest >= model.context_length:
            raise PromptTooLongError(
                f"The prompt has {longest:,} tokens and the model takes {model.context_length:,}; shorten it."
            )
        padding = torch.tensor([longest - len(row) for row in rows])  # (R,)
        ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows])  # (R, L)
        self._model = model
        self._accepts = frozenset(inspect.signature(model.module.forward).parameters)
        self._ids: Tensor = ids.to(model.device)  # (R, L + generated)
        self._padding: Tensor = padding.to(model.device)  # (R,)
        self._padded = bool(padding.any())
        self._prompt_length = longest
        self._cache: DynamicCache | None = DynamicCache()
        self._cached = 0

    @property
    def row_count(self) -> int:
        """Number of rows R."""
        return int(self._ids.shape[0])

    @property
    def generated(self) -> int:
        """Number of generated tokens, equal in every row."""
        return int(self._ids.shape[1]) - self._prompt_length

    @property
    def room(self) -> int:
        """How many more tokens the context can hold."""
        return self._model.context_length - int(self._ids.shape[1])

    @property
    def closed(self) -> bool:
        """Whether the cache has been released."""
        return self._cache is None

    def logits(self) -> Tensor:
        """Run what is pending through the model: the whole prompt at first, one token a step afterwards.

        Returns:
            Logits that follow the newest token, ``(R, V)``, in the model's dtype.

        Raises:
            RolloutClosedError: The batch is closed.
        """
        cache = self._open_cache()
        if self._cached == self._ids.shape[1]:
            self._drop_cached_beyond(self._cached - 1)
        with torch.inference_mode():
            output = self._model.module(**self._forward_arguments(cache))
        self._cached = int(self._ids.shape[1])
        logits: Tensor = output.logits[:, -1]  # (R, V)
        return logits

    def append(self, token_ids: Tensor) -> None:
        """Make one token a row the pending one.

        Args:
            token_ids: ``(R,)``; branches of one prompt get the same token.
        """
        self._open_cache()
        self._ids = torch.cat([self._ids, token_ids.to(self._ids).reshape(-1, 1)], dim=1)

    def crop(self, generated: int) -> None:
        """Go back to an earlier number of generated tokens; the cache is cut, nothing is recomputed.

        Raises:
            InvalidInputError: ``generated`` lies ahead or is negative.
        """
        self._open_cache()
        if not 0 <= generated <= self.generated:
            raise InvalidInputError(f"There is no step {generated}; this branch has {self.generated}.")
        self._ids = self._ids[:, : self._prompt_length + generated]
        self._drop_cached_beyond(int(self._ids.shape[1]) - 1)

    def fork(self, generated: int) -> BranchBatch:
        """A second, independent batch at an earlier number of generated tokens, from a copy of the cut cache."""
        cache = self._open_cache()
        if not 0 <= generated <= self.generated:
            raise InvalidInputError(f"There is no step {generated}; this branch has {self.generated}.")
        copy = object.__new__(BranchBatch)
        copy.__dict__.update(self.__dict__)
        keep = min(self._cached, self._prompt_length + generated - 1)
        copy._ids = self._ids[:, : self._prompt_length + generated]
        copy._cached = keep
        # The copy is cut before it is cloned, so that only what both share is held twice.
        copy._cache = DynamicCache(
            [(keys[..., :keep, :].clone(), values[..., :keep, :].clone()) for keys, values, _ in _tensors(cache)]
            if keep
            else None
        )
        return copy

    def close(self) -> None:
        """Release the cache; further steps raise :class:`RolloutClosedError`."""
        self._cache = None

    def _open_cache(self) -> DynamicCache:
        if self._cache is None:
            raise RolloutClosedError("This rollout has been closed; start it again from its session.")
        return self._cache

    def _drop_cached_beyond(self, length: int) -> None:
        if self._cached > length:
            if length == 0:
                self._cache = DynamicCache()
            else:
                self._open_cache().crop(length - self._cached)
            self._cached = length

    def _forward_arguments(self, cache: DynamicCache) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "input_ids": self._ids[:, self._cached :],  # (R, pending)
            "past_key_values": cache,
            "use_cache": True,
        }
        if "logits_to_keep" in self._accepts:
            arguments["logits_to_keep"] = 1
        if self._padded:
            columns = torch.arange(self._ids.shape[1], device=self._ids.device)  # (L,)
            mask = columns >= self._padding[:, None]  # (R, L)
            arguments["attention_mask"] = mask.long()
            if "position_ids" in self._accepts:
                positions = (columns - self._padding[:, None]).clamp_min(0)  # (R, L)
                arguments["position_ids"] = positions[:, self._cached :]
        return arguments


def _tensors(cache: DynamicCache) -> Iterator[tuple[Tensor, Tensor, Any]]:
    """Keys and values of each layer, ``(R, heads, cached, width)``."""
    return iter(cache)
