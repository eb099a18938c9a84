"""Keys and values of the rows of a batch, as far as the model has read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from coft_core.model.attention import Part, Prefix
from coft_core.model.compiled import step_logits
from coft_core.model.language_model import LanguageModel
from coft_core.model.memory_fit import Fit
from coft_core.model.slots import RowTokens, Slots, capacity_for, in_pieces, token_size


@dataclass(frozen=True, slots=True)
class Sharing:
    """When a shared prefix is held once, by the tokens that this saves: its length times the other rows."""

    read_once: int
    held_once: int | None

    @classmethod
    def of(cls, device: torch.device) -> Sharing:
        """What pays on a device, as ``docs/decoding_speed.md`` measured it; holding once was not measured on a GPU."""
        return cls(64, 768) if device.type == "cpu" else cls(2048, None)


class SlotRows:
    """Rows over preallocated memory, each of its own length, behind a prefix that is read once."""

    def __init__(self, model: LanguageModel, tokens: RowTokens, fit: Fit, sharing: Sharing | None) -> None:
        self._model, self._tokens, self._fit, self._sharing = model, tokens, fit, sharing
        # Where nothing is shared, hooks change the activations; a prepared path was made without them.
        self._prepared = sharing is not None
        self._slots = Slots(tokens.rows, model.context_length, model.device)
        self._prefix: Prefix | None = None
        # Generated tokens in memory; -1 lacks the prompts' last tokens too, and None has nothing.
        self._held: int | None = None

    @property
    def size(self) -> int:
        """Bytes held, a prefix that forks share included."""
        return self._slots.size + (self._prefix.size if self._prefix else 0)

    @property
    def shared_length(self) -> int:
        """Tokens that are held once, or will be when the prompts are read."""
        if self._held is not None:
            return self._prefix.length if self._prefix else 0
        shared = self._tokens.shared()
        return shared if self._holds_once(shared) else 0

    def size_after(self, count: int) -> int:
        """Bytes held when so many more tokens have been run."""
        ahead = self._slots.longest if self._held is not None else self._tokens.longest + self._tokens.generated
        needed = capacity_for(ahead + count, self._model.context_length)
        if needed <= self._slots.capacity:
            return self.size
        return needed * self._tokens.rows * token_size(self._model) + (self._prefix.size if self._prefix else 0)

    def logits(self) -> Tensor:
        """Run what is pending, ``(R, V)``."""
        if self._held is None:
            return self._first()
        part = self.next_part()
        logits = step_logits(self._model, [part], self._fit, self._prepared)
        self.done(part)
        return logits

    @property
    def may_join(self) -> bool:
        """Whether the next forward is over one token a row and may be shared with other memories."""
        return self._fit.joins and self._held is not None and self._held >= self._tokens.generated - 1

    def next_part(self) -> Part:
        """The pending tokens, with room for them; keys and values must be held."""
        if self._held is None:
            raise ValueError("The prompts have not been read yet.")
        if self._held == self._tokens.generated:
            self.cut()
        ids = self._tokens.after(self._held)  # (R, q)
        self._slots.reserve(self._slots.longest + ids.shape[1])
        return Part(self._slots, ids, self._prefix)

    def done(self, part: Part) -> None:
        """Count the tokens of a part as held, after its forward."""
        self._slots.advance(part.ids.shape[1])
        self._held = self._tokens.generated

    def cut(self) -> None:
        """Forget keys and values of the newest token and of those that are no longer there; nothing is copied."""
        if self._held is not None and (beyond := self._held - (self._tokens.generated - 1)) > 0:
            self._slots.advance(-beyond)
            self._held -= beyond

    def copied(self, tokens: RowTokens) -> SlotRows:
        """A second memory for earlier tokens of these rows; a prefix that is held once stays one."""
        copy = SlotRows(self._model, tokens, self._fit, self._sharing)
        if self._held is not None:
            copy._held = min(self._held, tokens.generated - 1)
            copy._slots = self._slots.copied(self._held - copy._held)
            copy._prefix = self._prefix
        return copy

    def keep(self, rows: Sequence[int], tokens: RowTokens) -> None:
        """Go on with some of the rows, whose tokens are given."""
        self._tokens = tokens
        if self._held is not None:
            self._slots = self._slots.chosen(rows)

    def _first(self) -> Tensor:
        """Read the prompts. A forward that failed before left nothing that counts."""
        self._slots = Slots(self._tokens.rows, self._model.context_length, self._model.device)
        self._prefix = None
        start = self._read_prefix()
        if self._tokens.uniform:
            logits = self._run(self._tokens.rest(start))
        else:
            # Rows of unequal lengths end in different columns: their last tokens are run together afterwards.
            bodies = self._tokens.bodies(start)
            if bodies.shape[1]:
                self._run(bodies)
            before = self._prefix.length if self._prefix else 0
            self._slots.settle([len(prompt) - 1 - before for prompt in self._tokens.prompts])
            logits = self._run(self._tokens.after(-1))
        self._held = self._tokens.generated
        return logits

    def _run(self, ids: Tensor) -> Tensor:
        """Read tokens and count them as held."""
        self._slots.reserve(self._slots.longest + ids.shape[1])
        logits = ids.new_empty(0)
        for piece in in_pieces(self._model, ids):
            logits = step_logits(self._model, [Part(self._slots, piece, self._prefix)], self._fit, self._prepared)
            self._slots.advance(piece.shape[1])
        return logits

    def _read_prefix(self) -> int:
        """Read what all rows begin with once, if that pays; return how many tokens it is."""
        shared = self._tokens.shared()
        saved = shared * (self._tokens.rows - 1)
        if self._sharing is None or saved < max(self._sharing.read_once, 1):
            return 0
        once = Slots(1, shared, self._model.device)
        once.reserve(shared)
        ids = torch.tensor([self._tokens.prompts[0][:shared]], device=self._model.device)
        for piece in in_pieces(self._model, ids):
            step_logits(self._model, [Part(once, piece)], self._fit)
            once.advance(piece.shape[1])
        if self._holds_once(shared):
            self._prefix = Prefix(tuple(once.layers))
        else:
            self._slots.reserve(self._tokens.longest + self._tokens.generated)
            self._slots.fill(once.layers, shared)
        return shared

    def _holds_once(self, shared: int) -> bool:
        """Whether it pays to keep so many common tokens once for all rows, and the model allows it."""
        if not self._fit.joins or self._sharing is None or self._sharing.held_once is None:
            return False
        return shared * (self._tokens.rows - 1) >= self._sharing.held_once


class GrowingRows:
    """Rows padded on the left, so that the newest token of every row stands in one column.

    Layers with a sliding window are kept whole here: they use more memory than the window needs, and can be cut.
    """

    # Nothing is held once here, nor is a forward shared.
    shared_length, may_join = 0, False

    def __init__(self, model: LanguageModel, tokens: RowTokens, accepts: frozenset[str]) -> None:
        self._model, self._tokens, self._accepts = model, tokens, accepts
        self._padding = tokens.padding()  # (R,)
        self._cache = DynamicCache()
        self._cached = 0

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(keys.nbytes + values.nbytes for keys, values, *_ in self._cache if keys is not None)

    def size_after(self, count: int) -> int:
        """Bytes held when so many more tokens have been run; 0 before the first where the configuration is silent."""
        known = self._tokens.rows * token_size(self._model)
        a_token = known or (self.size // self._cached if self._cached else 0)
        return (max(self._cached, self._length - 1) + count) * a_token

    def logits(self) -> Tensor:
        """Run what is pending, ``(R, V)``."""
        if self._cached == self._length:
            self.cut()
        ids = self._tokens.after(self._cached - self._tokens.longest) if self._cached else self._tokens.padded()
        logits = ids.new_empty(0)
        for piece in in_pieces(self._model, ids):
            with torch.inference_mode():
                output = self._model.module(**self._arguments(piece))
            self._cached += piece.shape[1]
            logits = output.logits[:, -1]  # (R, V)
        return logits

    def cut(self) -> None:
        """Forget keys and values of the newest token and of those that are no longer there."""
        length = self._length - 1
        if self._cached > length:
            if length == 0:
                self._cache = DynamicCache()
            else:
                self._cache.crop(length - self._cached)
            self._cached = length

    def copied(self, tokens: RowTokens) -> GrowingRows:
        """A second memory for earlier tokens of these rows."""
        copy = GrowingRows(self._model, tokens, self._accepts)
        keep = min(self._cached, copy._length - 1)
        # The copy is cut before it is cloned, so that only what both share is held twice.
        if keep:
            pairs = [(keys[..., :keep, :].clone(), values[..., :keep, :].clone()) for keys, values, *_ in self._cache]
            copy._cache, copy._cached = DynamicCache(pairs), keep
        return copy

    def keep(self, rows: Sequence[int], tokens: RowTokens) -> None:
        """Go on with some of the rows, whose tokens are given; columns in which all of them are padded go."""
        start = self._tokens.longest - tokens.longest
        self._tokens, self._padding = tokens, tokens.padding()
        if self._cached:
            pairs = [(keys[list(rows), :, start:], values[list(rows), :, start:]) for keys, values, *_ in self._cache]
            self._cache, self._cached = DynamicCache(pairs), self._cached - start

    @property
    def _length(self) -> int:
        return self._tokens.longest + self._tokens.generated

    def _arguments(self, ids: Tensor) -> dict[str, Any]:
        arguments: dict[str, Any] = {"input_ids": ids, "past_key_values": self._cache, "use_cache": True}
        if "logits_to_keep" in self._accepts:
            arguments["logits_to_keep"] = 1
        if not self._tokens.uniform:
            columns = torch.arange(self._cached + ids.shape[1], device=ids.device)  # (L,)
            arguments["attention_mask"] = (columns >= self._padding[:, None]).long()  # (R, L)
            if "position_ids" in self._accepts:
                positions = (columns - self._padding[:, None]).clamp_min(0)  # (R, L)
                arguments["position_ids"] = positions[:, self._cached :]
        return arguments
