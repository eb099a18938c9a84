"""Teacher forcing of several branches at once, as a stream of logits that is never held whole.

Hidden states are computed for a batch of items, the prefix that all branches of all its items share only once; the head
is then applied to some of the scored positions at a time. Memory grows with the batch's hidden states, not its logits;
batches larger than the model's ``prefill_tokens`` are read in pieces of as many tokens, over a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from coft_core.engine.head import SplitModel, accepted_arguments, split_model
from coft_core.engine.memory.size import token_size
from coft_core.engine.model import LanguageModel
from coft_core.engine.prefill import PrefixLayer, pieces
from coft_core.errors import InvalidInputError, PromptTooLongError


@dataclass(frozen=True, slots=True)
class ForcedItem:
    """A continuation that follows several branches of one prompt.

    Attributes:
        prompts: Tokens of each branch, the same number in all.
        continuation: Tokens that follow in every branch.
        first: First position of the continuation that is scored, 0-based.
    """

    prompts: tuple[tuple[int, ...], ...]
    continuation: tuple[int, ...]
    first: int = 0

    @property
    def length(self) -> int:
        """Tokens that are fed, of one branch; the last one predicts nothing that is scored."""
        return len(self.prompts[0]) + len(self.continuation) - 1

    @property
    def scored(self) -> int:
        """Number of scored positions."""
        return len(self.continuation) - self.first

    @property
    def shared(self) -> int:
        """Tokens at the beginning that all branches have in common, up to the first scored position."""
        columns = zip(*self.prompts, strict=True)
        equal = next((i for i, column in enumerate(columns) if len(set(column)) > 1), len(self.prompts[0]))
        return min(equal, len(self.prompts[0]) - 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is done at once; no result depends on it.

    Attributes:
        logits: Logits held at a time, over all branches.
        shared: Tokens that computing the common prefix once must save to be worth a second forward.
        waste: How much more a batch may compute than its items would one by one, for padding and for prefixes that
            only some of them share.
    """

    logits: int
    shared: int
    waste: float = 1.5

    @classmethod
    def of(cls, device: torch.device) -> Limits:
        """Limits that suit a device: larger pieces on an accelerator, where starting one costs more than its work."""
        return cls(1 << 23, 64, 1.05) if device.type == "cpu" else cls(1 << 26, 2048)


Chunk = tuple[Tensor, Tensor]
"""Indices of scored positions, ``(n,)``, and their logits in every branch, ``(n, B, V)``."""


class ForcedScorer:
    """Streams the logits of continuations under several branches."""

    def __init__(self, model: LanguageModel, limits: Limits | None = None) -> None:
        """Find out how the model's logits can be had; runs the model on a few tokens.

        Args:
            model: The model.
            limits: How much is done at once; what suits the device if None.
        """
        self._model = model
        self._limits = limits or Limits.of(model.device)
        self._parts: SplitModel | None = split_model(model)

    @property
    def split(self) -> bool:
        """Whether the head is applied by itself; otherwise the model's own forward runs over pieces of positions."""
        return self._parts is not None

    def memory_size(self, items: Sequence[ForcedItem]) -> int:
        """Bytes of keys and values that a batch holds while it is run: of its shared prefix, and of pieces read.

        Args:
            items: Items with one and the same number of branches B.
        """
        branches, longest = len(items[0].prompts), max(item.length for item in items)
        rows, shared = len(items) * branches, min(item.shared for item in items)
        if self._parts is None:
            return rows * longest * token_size(self._model)
        if not self._shares(len(items), branches, shared):
            shared = 0
        several = rows * (longest - shared) > self._model.prefill_tokens
        return (len(items) * shared + several * rows * (longest - shared)) * token_size(self._model)

    def fitting(self, most: int | None) -> Callable[[Sequence[ForcedItem]], bool] | None:
        """Whether a batch holds at most so many bytes of keys and values; None sets no limit."""
        return None if most is None else lambda items: self.memory_size(items) <= most

    @torch.inference_mode()
    def logits(self, items: Sequence[ForcedItem]) -> Iterator[Chunk]:
        """Run one batch.

        Args:
            items: Items with one and the same number of branches B.

        Yields:
            Every scored position once, in pieces: indices into the items' scored positions laid end to end, ``(n,)``,
            and the logits of the distribution from which the token there is drawn, ``(n, B, V)``, in the model's type
            and on its device.

        Raises:
            InvalidInputError: A prompt or a continuation is empty, or the branches of an item differ in length.
            PromptTooLongError: An item exceeds the model's context.
        """
        _check(items, self._model.context_length)
        layout = _Layout.of(items, self._model.device)
        chunks = self._by_own_forward(layout) if self._parts is None else self._by_head(layout, self._parts)
        for index, logits in chunks:
            # The head of a model that is spread over several devices may be on another one than its inputs.
            yield index.to(self._model.device), logits.to(self._model.device)

    def _by_head(self, layout: _Layout, parts: SplitModel) -> Iterator[Chunk]:
        hidden = self._hidden(layout, parts)  # (N, B, H)
        step = max(1, self._limits.logits // (layout.branches * self._model.vocabulary_size))
        for start in range(0, len(hidden), step):
            chunk = parts.head(hidden[start : start + step])  # (n, B, V)
            yield torch.arange(start, start + len(chunk), device=chunk.device), chunk

    def _hidden(self, layout: _Layout, parts: SplitModel) -> Tensor:
        """Hidden states at the scored positions, ``(N, B, H)``."""
        shared = layout.shared
        if not self._shares(layout.items, layout.branches, shared):
            return self._read(parts.base, layout, 0, None)
        prefix = DynamicCache()
        for start, stop in pieces(layout.items, 0, shared, self._model.prefill_tokens):
            first_rows = layout.ids[:: layout.branches, start:stop]  # (G, w)
            parts.base(input_ids=first_rows, past_key_values=prefix, use_cache=True)
        return self._read(parts.base, layout, shared, prefix)

    def _shares(self, items: int, branches: int, shared: int) -> bool:
        """Whether reading a common prefix once saves enough."""
        return shared * items * (branches - 1) >= max(self._limits.shared, 1)

    def _read(self, base: Callable[..., Any], layout: _Layout, begin: int, prefix: DynamicCache | None) -> Tensor:
        """Read all rows from a column on, in one piece where it is small enough; hidden states at scored positions."""
        rows, length = layout.ids.shape
        ranges = list(pieces(rows, begin, length, self._model.prefill_tokens))
        several = len(ranges) > 1
        if prefix is not None:
            layers: list[Any] = [
                PrefixLayer(keys, values, layout.branches, keep=several) for keys, values, *_ in prefix
            ]
            arguments: dict[str, Any] = {"past_key_values": Cache(layers=layers), "use_cache": True}
        else:
            arguments = {"past_key_values": DynamicCache(), "use_cache": True} if several else {"use_cache": False}
        found = []
        for start, stop in ranges:
            states = base(input_ids=layout.ids[:, start:stop], **arguments).last_hidden_state  # (G * B, w, H)
            found.append(_pick(states, layout, start, stop))
        if not several:
            return found[0][1]
        order = torch.cat([index for index, _ in found]).argsort()  # (N,)
        return torch.cat([picked for _, picked in found])[order]  # (N, B, H)

    def _by_own_forward(self, layout: _Layout) -> Iterator[Chunk]:
        forward: Callable[..., Any] = self._model.module
        some = "logits_to_keep" in accepted_arguments(self._model.module.forward)
        cache = DynamicCache()
        rows, length = layout.ids.shape
        begin = min(layout.columns) if some else 0
        for start, stop in pieces(rows, 0, begin, self._model.prefill_tokens):
            forward(input_ids=layout.ids[:, start:stop], past_key_values=cache, use_cache=True, logits_to_keep=1)
        limit = min(self._limits.logits // self._model.vocabulary_size, self._model.prefill_tokens)
        for start, stop in pieces(rows, begin, length, limit):
            logits = forward(input_ids=layout.ids[:, start:stop], past_key_values=cache, use_cache=True).logits
            index, found = _pick(logits, layout, start, stop)  # (n,), (n, B, V)
            if len(index):
                yield index, found


@dataclass(frozen=True, slots=True)
class _Layout:
    """A batch as a rectangle: rows are items times branches, padded on the right.

    What stands right of a token cannot change its logits in a causal model, so neither a mask nor positions are needed.

    Attributes:
        ids: ``(G * B, L)``.
        owners: Item of each of the N scored positions; on the host, where the ranges of columns are looked up.
        columns: Its column in ``ids``: the token before it.
        branches: B.
        shared: Columns that are equal in all branches of every item.
    """

    ids: Tensor
    owners: tuple[int, ...]
    columns: tuple[int, ...]
    branches: int
    shared: int

    @property
    def items(self) -> int:
        return len(self.ids) // self.branches

    @classmethod
    def of(cls, items: Sequence[ForcedItem], device: torch.device) -> _Layout:
        longest = max(item.length for item in items)
        rows = [
            [*prompt, *item.continuation[:-1], *[0] * (longest - item.length)]
            for item in items
            for prompt in item.prompts
        ]
        owners = [g for g, item in enumerate(items) for _ in range(item.scored)]
        columns = [len(item.prompts[0]) - 1 + c for item in items for c in range(item.first, len(item.continuation))]
        return cls(
            torch.tensor(rows, device=device),
            tuple(owners),
            tuple(columns),
            len(items[0].prompts),
            min(item.shared for item in items),
        )


def _pick(states: Tensor, layout: _Layout, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """The scored positions in some columns, ``(n,)``, and what a forward gave there, ``(n, B, *)``.

    Args:
        states: Hidden states or logits of the columns, ``(G * B, stop - start, *)``.
        layout: The batch.
        start: First column.
        stop: One past the last column.
    """
    scored = [n for n, column in enumerate(layout.columns) if start <= column < stop]
    by_item = states.reshape(layout.items, layout.branches, *states.shape[1:])  # (G, B, w, *)
    chosen = [(n, layout.owners[n], layout.columns[n] - start) for n in scored]
    index, owners, columns = torch.tensor(chosen, dtype=torch.long, device=states.device).reshape(-1, 3).unbind(1)
    return index, by_item[owners, :, columns]


def _check(items: Sequence[ForcedItem], context: int) -> None:
    if not items:
        raise InvalidInputError("There is nothing to score; give at least one item.")
    for item in items:
        lengths = {len(prompt) for prompt in item.prompts}
        if len(lengths) != 1 or 0 in lengths or item.scored < 1:
            raise InvalidInputError(
                "A prompt or a continuation has no tokens, or an item's branches differ in length; "
                "give at least one word each and branches of one length."
            )
        if item.length >= context:
            raise PromptTooLongError(
                f"Prompt and continuation have {item.length + 1:,} tokens and the model takes {context:,}; "
                "shorten them."
            )
    if len({len(item.prompts) for item in items}) != 1:
        raise InvalidInputError("The items of one batch differ in their number of branches; batch them apart.")
