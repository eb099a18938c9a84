"""Teacher forcing of several branches at once, as a stream of logits that is never held whole.

Hidden states are computed for a batch of items, the prefix that all branches of all its items share only once; the head
is then applied to some of the scored positions at a time. Memory grows with the batch's hidden states, not its logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from coft_core.engine.head import SplitModel, accepted_arguments, split_model
from coft_core.engine.model import LanguageModel
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

    @torch.inference_mode()
    def logits(self, items: Sequence[ForcedItem]) -> Iterator[Chunk]:
        """Run one batch.

        Args:
            items: Items with one and the same number of branches B.

        Yields:
            Every scored position once, in pieces: indices into the items' scored positions laid end to end, ``(n,)``,
            and the logits of the distribution from which the token there is drawn, ``(n, B, V)``, in the model's type.

        Raises:
            InvalidInputError: A prompt or a continuation is empty, or the branches of an item differ in length.
            PromptTooLongError: An item exceeds the model's context.
        """
        _check(items, self._model.context_length)
        layout = _Layout.of(items, self._model.device)
        if self._parts is None:
            yield from self._by_own_forward(layout)
        else:
            yield from self._by_head(layout, self._parts)

    def _by_head(self, layout: _Layout, parts: SplitModel) -> Iterator[Chunk]:
        hidden = self._hidden(layout, parts)  # (N, B, H)
        step = max(1, self._limits.logits // (layout.branches * self._model.vocabulary_size))
        for start in range(0, len(hidden), step):
            chunk = parts.head(hidden[start : start + step])  # (n, B, V)
            yield torch.arange(start, start + len(chunk), device=chunk.device), chunk

    def _hidden(self, layout: _Layout, parts: SplitModel) -> Tensor:
        """Hidden states at the scored positions, ``(N, B, H)``."""
        shared = layout.shared
        saved = shared * layout.items * (layout.branches - 1)
        if saved < max(self._limits.shared, 1):
            states = parts.base(input_ids=layout.ids, use_cache=False).last_hidden_state  # (G * B, L, H)
            return _pick(states, layout, 0)
        cache = DynamicCache()
        first_rows = layout.ids[:: layout.branches, :shared]  # (G, shared)
        parts.base(input_ids=first_rows, past_key_values=cache, use_cache=True)
        prefix = Cache(layers=[_PrefixLayer(keys, values, layout.branches) for keys, values, *_ in cache])
        states = parts.base(
            input_ids=layout.ids[:, shared:], past_key_values=prefix, use_cache=True
        ).last_hidden_state  # (G * B, L - shared, H)
        return _pick(states, layout, shared)

    def _by_own_forward(self, layout: _Layout) -> Iterator[Chunk]:
        forward: Callable[..., Any] = self._model.module
        some = "logits_to_keep" in accepted_arguments(self._model.module.forward)
        cache = DynamicCache()
        rows, length = layout.ids.shape
        width = max(1, self._limits.logits // (rows * self._model.vocabulary_size))
        begin = int(layout.columns.min()) if some else 0
        if begin:
            forward(input_ids=layout.ids[:, :begin], past_key_values=cache, use_cache=True, logits_to_keep=1)
        for start in range(begin, length, width):
            piece = layout.ids[:, start : start + width]
            logits = forward(input_ids=piece, past_key_values=cache, use_cache=True).logits  # (G * B, w, V)
            index = ((layout.columns >= start) & (layout.columns < start + width)).nonzero()[:, 0]  # (n,)
            if len(index):
                by_item = logits.unflatten(0, (layout.items, layout.branches))  # (G, B, w, V)
                yield index, by_item[layout.owners[index], :, layout.columns[index] - start]


@dataclass(frozen=True, slots=True)
class _Layout:
    """A batch as a rectangle: rows are items times branches, padded on the right.

    What stands right of a token cannot change its logits in a causal model, so neither a mask nor positions are needed.

    Attributes:
        ids: ``(G * B, L)``.
        owners: Item of each scored position, ``(N,)``.
        columns: Its column in ``ids``: the token before it, ``(N,)``.
        branches: B.
        shared: Columns that are equal in all branches of every item.
    """

    ids: Tensor
    owners: Tensor
    columns: Tensor
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
            torch.tensor(owners, device=device),
            torch.tensor(columns, device=device),
            len(items[0].prompts),
            min(item.shared for item in items),
        )


class _PrefixLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of a prefix, one row an item, read by every branch of that item; nothing is added to them."""

    def __init__(self, keys: Tensor, values: Tensor, branches: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(keys, values)
        # DynamicLayer reads these two for its length; the states that are handed on are the private ones, never None.
        self.keys, self.values = self._prefix = keys, values
        self._branches = branches

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Prefix and new states together, ``(G * B, heads, shared + new, width)``; the new ones are not kept."""
        keys, values = (states.repeat_interleave(self._branches, dim=0) for states in self._prefix)
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)


def _pick(states: Tensor, layout: _Layout, skipped: int) -> Tensor:
    """Hidden states at the scored positions, ``(N, B, H)``, from ``(G * B, L - skipped, H)``."""
    by_item = states.view(layout.items, layout.branches, *states.shape[1:])  # (G, B, L - skipped, H)
    return by_item[layout.owners, :, layout.columns - skipped]


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


def forced_batches(
    items: Sequence[ForcedItem], token_budget: int, most: int | None = None, waste: float = 1.5
) -> Iterator[list[int]]:
    """Group items by number of branches, by length, and among nearly equally long ones by their common prefix.

    Args:
        items: The items.
        token_budget: Largest padded batch in tokens, all branches counted; an item longer than it has a batch of its
            own.
        most: Items in a batch at most; None sets no limit.
        waste: See :class:`Limits`.

    Yields:
        Lists of indices into ``items``; every index is in one of them.
    """
    batch: list[int] = []
    for index in sorted(range(len(items)), key=lambda i: _bucket(items[i])):
        if batch and not _fit([items[i] for i in (*batch, index)], token_budget, most, waste):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _fit(items: Sequence[ForcedItem], token_budget: int, most: int | None, waste: float) -> bool:
    """Whether items make a good batch."""
    branches, longest = len(items[0].prompts), max(item.length for item in items)
    if len(items[-1].prompts) != branches or (most is not None and len(items) > most):
        return False
    together = len(items) * _computed(branches, longest, min(item.shared for item in items))
    alone = sum(_computed(branches, item.length, item.shared) for item in items)
    return len(items) * branches * longest <= token_budget and together <= waste * alone


def _computed(branches: int, length: int, shared: int) -> int:
    """Tokens of one item that the model runs over."""
    return shared + branches * (length - shared)


def _bucket(item: ForcedItem) -> tuple[int, int, int, int]:
    steps = math.ceil(math.log(item.length) / math.log(1.1))
    return len(item.prompts), steps, item.shared, item.length
