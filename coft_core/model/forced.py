"""Teacher forcing of several branches at once, as a stream of logits that is never held whole.

Hidden states are computed for a batch of items, the prefix that all branches of all its items share only once; the head
is then applied to some of the scored positions at a time. Memory grows with the batch's hidden states, not its logits;
batches larger than the model's ``prefill_tokens`` are read in pieces of as many tokens, over a cache.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model.engine import Engine
from coft_core.model.language_model import LanguageModel
from coft_core.model.memory_fit import accepted_arguments, fit_of, told_positions
from coft_core.model.slots import token_size

Result = TypeVar("Result")


class Room(Protocol):
    """Memory for keys and values that is shared with others."""

    @property
    def most(self) -> int | None:
        """Bytes that one batch should take at most; None sets no limit. A single prompt may need more."""

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Run one batch while its memory is set aside."""


@runtime_checkable
class SharedOut(Protocol):
    """A room whose batches may run at several places at a time."""

    def share_out(self, works: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """Results of batches, in their order."""


def run_each(room: Room, batches: Iterable[tuple[int | None, Callable[[], Result]]]) -> Iterator[Result]:
    """Results of batches in their order, each run when the one before it was taken, unless the room shares them out."""
    if isinstance(room, SharedOut):
        yield from room.share_out(work for _, work in batches)
        return
    for size, work in batches:
        yield work() if size is None else room.run(size, work)


class OwnRoom:
    """Memory that is shared with nobody: every batch runs at once, whatever its size."""

    most: int | None = None

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Run the batch."""
        return work()


def pieces(rows: int, begin: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of columns of R rows, one forward each, with at most ``limit`` tokens over all rows but one column."""
    width = max(1, limit // rows)
    for start in range(begin, end, width):
        yield start, min(start + width, end)


LOGIT_SETTINGS = (
    "final_logit_softcapping",
    "final_logit_soft_cap",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
    "output_multiplier_scale",
    "mup_width_scale",
    "attention_logit_scale",
)
"""Configuration entries with which known architectures change the logits after their head."""

NEUTRAL = (None, False, 0, 1, 1.0)
"""Values of such an entry that change nothing; a true change that hides behind one is found by the probe."""

_PROBE_TOKENS = 8
_KEPT_AS = "parts"


@dataclass(frozen=True, slots=True)
class SplitModel:
    """The base model, which returns hidden states, and the head, whose output is the model's logits."""

    base: nn.Module
    head: nn.Module


def split_model(model: LanguageModel) -> SplitModel | None:
    """Take a model apart, if its logits are its head's output and nothing else; None if they are not.

    Models that cap or scale their logits after the head (Gemma 2, Granite, Cohere and others) are told by the entries
    :data:`LOGIT_SETTINGS` of their configuration, and whatever these miss by a probe: on random tokens, base and head
    must give the very bits that the model's own forward gives.
    """
    module = model.module
    if model.engine is not None:
        return None
    # Base and head would pass a hook on the module itself by.
    if getattr(module, "_forward_hooks", None) or getattr(module, "_forward_pre_hooks", None):
        return None
    kept: tuple[SplitModel | None] | None = model.finding(_KEPT_AS)
    if kept is None:
        model.keep_finding(_KEPT_AS, kept := (_parts(model),))
    return kept[0]


def _parts(model: LanguageModel) -> SplitModel | None:
    module = model.module
    base, head = getattr(module, "base_model", None), module.get_output_embeddings()
    if not (isinstance(base, nn.Module) and isinstance(head, nn.Module)) or base is module:
        return None
    settings = module.config.get_text_config(decoder=True)
    if any(getattr(settings, name, None) not in NEUTRAL for name in LOGIT_SETTINGS):
        return None
    parts = SplitModel(base, head)
    return parts if _same_bits(model, parts) else None


def _same_bits(model: LanguageModel, parts: SplitModel) -> bool:
    ids = model.arbitrary_tokens(2, min(_PROBE_TOKENS, model.context_length - 1)).to(model.device)  # (2, L)
    with torch.inference_mode():
        hidden = getattr(parts.base(input_ids=ids, use_cache=False), "last_hidden_state", None)
        width = getattr(parts.head, "in_features", None)
        if not isinstance(hidden, Tensor) or (width is not None and hidden.shape[-1] != width):
            return False
        return torch.equal(parts.head(hidden).float(), model.plain_logits(ids).float())


class PrefixLayer(DynamicLayer):
    """Keys and values of a prefix, one row an item, and of what comes after it in each branch, if more is to come."""

    def __init__(self, keys: Tensor, values: Tensor, branches: int, keep: bool) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self._prefix, self._branches, self._keep = (keys, values), branches, keep
        # What came after the prefix, (G * B, heads, t, width).
        self._after = tuple(states[..., :0, :].repeat_interleave(branches, dim=0) for states in (keys, values))

    def get_seq_length(self) -> int:
        """Tokens of the prefix and of what was kept after it."""
        return int(self._prefix[0].shape[-2]) + int(self._after[0].shape[-2])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Prefix, what was kept and new states together, ``(G * B, heads, shared + t + new, width)``."""
        new = (key_states, value_states)
        after = tuple(torch.cat([kept, states], dim=-2) for kept, states in zip(self._after, new, strict=True))
        if self._keep:
            self._after = after
        prefix = (states.repeat_interleave(self._branches, dim=0) for states in self._prefix)
        keys, values = (torch.cat(pair, dim=-2) for pair in zip(prefix, after, strict=True))
        return keys, values


@dataclass(frozen=True, slots=True)
class ForcedItem:
    """A continuation that follows several branches of one prompt."""

    prompts: tuple[tuple[int, ...], ...]
    continuation: tuple[int, ...]
    first: int = 0

    @property
    def rows(self) -> list[list[int]]:
        """What is fed, a row a branch, all of :attr:`length`."""
        return [[*prompt, *self.continuation[:-1]] for prompt in self.prompts]

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
class ForcedTexts(ForcedItem):
    """Several texts that follow one prompt, a branch each; the prompt is what they share."""

    texts: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, prompt: tuple[int, ...], texts: tuple[tuple[int, ...], ...]) -> ForcedTexts:
        """Texts after a prompt."""
        return cls((prompt,) * len(texts), max(texts, key=len), texts=texts)

    @property
    def rows(self) -> list[list[int]]:
        """What is fed, a row a text, padded on the right."""
        return [
            [*prompt, *text[:-1], *[0] * (self.length + 1 - len(prompt) - len(text))]
            for prompt, text in zip(self.prompts, self.texts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is done at once; no result depends on it."""

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
        """Find out how the model's logits can be had, by a run over a few tokens; limits suit the device if None."""
        self._model = model
        self._limits = limits or Limits.of(model.device)
        self._parts: SplitModel | None = split_model(model)
        # States are handed on whole: rows of different prompts cannot read one that is held once.
        self._fit = fit_of(model)
        self._stateful = self._fit.kind == "states"
        self._at_once = model.prefill_tokens if self._fit.pieces else sys.maxsize

    def __reduce__(self) -> tuple[type[ForcedScorer], tuple[LanguageModel, Limits]]:
        """What another process makes it again from."""
        return ForcedScorer, (self._model, self._limits)

    def memory_size(self, items: Sequence[ForcedItem]) -> int:
        """Bytes of keys and values that a batch holds while it is run: of its shared prefix, and of pieces read."""
        branches, longest = len(items[0].prompts), max(item.length for item in items)
        rows, shared = len(items) * branches, min(item.shared for item in items)
        if self._parts is None:
            return rows * longest * token_size(self._model)
        if not self._shares(len(items), branches, shared):
            shared = 0
        several = rows * (longest - shared) > self._at_once
        return (len(items) * shared + several * rows * (longest - shared)) * token_size(self._model)

    def fitting(self, most: int | None) -> Callable[[Sequence[ForcedItem]], bool] | None:
        """Whether a batch holds at most so many bytes of keys and values; None sets no limit."""
        return None if most is None else lambda items: self.memory_size(items) <= most

    @torch.inference_mode()
    def logits(self, items: Sequence[ForcedItem]) -> Iterator[Chunk]:
        """Run one batch of items with one number of branches B: every scored position once, in pieces.

        A piece has indices into the items' scored positions laid end to end, ``(n,)``, and the logits from which the
        tokens there are drawn, ``(n, B, V)``.
        """
        _check(items, self._model.context_length)
        if len({len(item.prompts) for item in items}) != 1:
            raise InvalidInputError(
                "A batch is empty, or its items differ in their number of branches; batch them apart."
            )
        layout = _Layout.of(items, self._model.device)
        if (engine := self._model.engine) is not None:
            chunks = _by_engine(engine, layout)
        else:
            chunks = self._by_own_forward(layout) if self._parts is None else self._by_head(layout, self._parts)
        for index, logits in chunks:
            # The head of a model that is spread over several devices may be on another one than its inputs.
            yield index.to(self._model.device), logits.to(self._model.device)

    def whole(self, items: Sequence[ForcedItem]) -> Tensor:
        """Logits of a batch at every scored position at once, ``(N, B, V)``; see :meth:`logits`."""
        count = sum(item.scored for item in items)
        logits_of_all: Tensor | None = None
        for index, logits in self.logits(items):
            if logits_of_all is None:
                logits_of_all = logits.new_empty(count, *logits.shape[1:])
            logits_of_all[index] = logits
        assert logits_of_all is not None  # every item has a scored position
        return logits_of_all

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
        return not self._stateful and shared * items * (branches - 1) >= max(self._limits.shared, 1)

    def _read(self, base: Callable[..., Any], layout: _Layout, begin: int, prefix: DynamicCache | None) -> Tensor:
        """Read all rows from a column on, in one piece where it is small enough; hidden states at scored positions."""
        rows, length = layout.ids.shape
        ranges = list(pieces(rows, begin, length, self._at_once))
        several = len(ranges) > 1
        if prefix is not None:
            layers: list[Any] = [
                PrefixLayer(keys, values, layout.branches, keep=several) for keys, values, *_ in prefix
            ]
            arguments: dict[str, Any] = {"past_key_values": Cache(layers=layers), "use_cache": True}
        else:
            arguments = self._anew() if several else {"use_cache": False}
        picked = []
        for start, stop in ranges:
            ids = layout.ids[:, start:stop]
            output = base(input_ids=ids, **arguments, **told_positions(self._fit, ids, start))
            picked.append(_pick(output.last_hidden_state, layout, start, stop))  # of (G * B, w, H)
            if several:
                self._go_on(arguments, output)
        if not several:
            return picked[0][1]
        order = torch.cat([index for index, _ in picked]).argsort()  # (N,)
        return torch.cat([states for _, states in picked])[order]  # (N, B, H)

    def _by_own_forward(self, layout: _Layout) -> Iterator[Chunk]:
        forward: Callable[..., Any] = self._model.module
        some = "logits_to_keep" in accepted_arguments(self._model.module.forward) and self._fit.pieces
        arguments = self._anew()
        rows, length = layout.ids.shape
        begin = min(layout.columns) if some else 0
        for start, stop in pieces(rows, 0, begin, self._at_once):
            ids = layout.ids[:, start:stop]
            output = forward(input_ids=ids, logits_to_keep=1, **arguments, **told_positions(self._fit, ids, start))
            self._go_on(arguments, output)
        limit = min(self._limits.logits // self._model.vocabulary_size, self._at_once)
        for start, stop in pieces(rows, begin, length, limit if self._fit.pieces else self._at_once):
            ids = layout.ids[:, start:stop]
            output = forward(input_ids=ids, **arguments, **told_positions(self._fit, ids, start))
            self._go_on(arguments, output)
            index, picked = _pick(output.logits, layout, start, stop)  # (n,), (n, B, V)
            if len(index):
                yield index, picked

    def _anew(self) -> dict[str, Any]:
        """What a module is given at the beginning of a text that is read in pieces."""
        if not self._stateful:
            return {"past_key_values": DynamicCache(), "use_cache": True}
        if self._fit.hands_back:
            return {"use_cache": True}
        return {self._fit.state: DynamicCache(config=self._model.module.config), "use_cache": True}

    def _go_on(self, arguments: dict[str, Any], output: Any) -> None:
        """Have the next piece read behind the state that a piece left; keys and values are in their cache already."""
        if self._stateful:
            arguments[self._fit.state] = getattr(output, self._fit.state, arguments.get(self._fit.state))


@dataclass(frozen=True, slots=True)
class _Layout:
    """A batch as a rectangle: rows are items times branches, padded on the right, which needs no mask."""

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
        rows = [[*row, *[0] * (longest - item.length)] for item in items for row in item.rows]
        owners = [g for g, item in enumerate(items) for _ in range(item.scored)]
        columns = [len(item.prompts[0]) - 1 + c for item in items for c in range(item.first, len(item.continuation))]
        return cls(
            torch.tensor(rows, device=device),
            tuple(owners),
            tuple(columns),
            len(items[0].prompts),
            min(item.shared for item in items),
        )


def _by_engine(engine: Engine, layout: _Layout) -> Iterator[Chunk]:
    """Logits at the scored positions, an item at a time, from an engine other than transformers."""
    for item in range(layout.items):
        index = [n for n, owner in enumerate(layout.owners) if owner == item]
        columns = [layout.columns[n] for n in index]
        rows = layout.ids[item * layout.branches : (item + 1) * layout.branches, : columns[-1] + 1]  # (B, L)
        for logits in engine.read(rows, columns[0]):  # (B, w, V)
            yield torch.tensor(index[: logits.shape[1]]), logits.transpose(0, 1)
            index = index[logits.shape[1] :]


def _pick(states: Tensor, layout: _Layout, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """The scored positions in some columns, ``(n,)``, and their states ``(n, B, *)`` of those, ``(G * B, w, *)``."""
    scored = [n for n, column in enumerate(layout.columns) if start <= column < stop]
    by_item = states.reshape(layout.items, layout.branches, *states.shape[1:])  # (G, B, w, *)
    chosen = [(n, layout.owners[n], layout.columns[n] - start) for n in scored]
    index, owners, columns = torch.tensor(chosen, dtype=torch.long, device=states.device).reshape(-1, 3).unbind(1)
    return index, by_item[owners, :, columns]


def _check(items: Sequence[ForcedItem], context: int) -> None:
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


def forced_batches(
    items: Sequence[ForcedItem],
    token_budget: int,
    most: int | None = None,
    waste: float = 1.5,
    fitting: Callable[[Sequence[ForcedItem]], bool] | None = None,
) -> Iterator[list[int]]:
    """Group items by number of branches, by length, and among nearly equally long ones by their common prefix."""
    batch: list[int] = []
    for index in sorted(range(len(items)), key=lambda i: _bucket(items[i])):
        wider = [items[i] for i in (*batch, index)]
        if batch and not (_fit(wider, token_budget, most, waste) and (fitting is None or fitting(wider))):
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
    batched = len(items) * _computed(branches, longest, min(item.shared for item in items))
    alone = sum(_computed(branches, item.length, item.shared) for item in items)
    return len(items) * branches * longest <= token_budget and batched <= waste * alone


def _computed(branches: int, length: int, shared: int) -> int:
    """Tokens of one item that the model runs over."""
    return shared + branches * (length - shared)


def _bucket(item: ForcedItem) -> tuple[int, int, int, int]:
    steps = math.ceil(math.log(item.length) / math.log(1.1))
    return len(item.prompts), steps, item.shared, item.length


def teacher_forced_logits(model: LanguageModel, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
    """Logits before each continuation token of each (prompt, continuation), ``(C, V)`` a row, the head only there.

    Rows with one continuation and prompts of one length are scored as branches of one item, whose common prefix is run
    once; all others are put together by their lengths.
    """
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for row, (prompt, continuation) in enumerate(rows):
        groups.setdefault((len(prompt), tuple(continuation)), []).append(row)
    items = [
        ForcedItem(tuple(tuple(rows[row][0]) for row in group), continuation)
        for (_, continuation), group in groups.items()
    ]
    _check(items, model.context_length)
    limits = Limits.of(model.device)
    scorer = ForcedScorer(model, limits)
    scored: dict[int, Tensor] = {}  # (C, B, V) an item
    for batch in forced_batches(items, model.prefill_tokens, waste=limits.waste):
        chosen = [items[i] for i in batch]
        logits = scorer.whole(chosen)  # (N, B, V)
        scored.update(zip(batch, torch.split(logits, [item.scored for item in chosen]), strict=True))
    by_row = {row: scored[i][:, b] for i, group in enumerate(groups.values()) for b, row in enumerate(group)}
    return [by_row[row] for row in range(len(rows))]
