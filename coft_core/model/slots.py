"""Keys and values of some rows, in tensors that are allocated ahead and written in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coft_core.model.language_model import LanguageModel

FIRST_CAPACITY = 64
"""Tokens a row for which memory is allocated at first; each larger capacity is the double of the one before."""


def capacity_for(length: int, context_length: int) -> int:
    """The smallest capacity that holds a length: 64, 128, 256 and so on, at most the model's context."""
    capacity = FIRST_CAPACITY
    while capacity < length:
        capacity *= 2
    return max(min(capacity, context_length), length)


@dataclass(slots=True)
class LayerMemory:
    """One layer's keys ``(R, heads, capacity, width)`` and values ``(R, heads, capacity, value width)``."""

    keys: Tensor
    values: Tensor

    @property
    def size(self) -> int:
        """Bytes of both."""
        return self.keys.nbytes + self.values.nbytes


class Slots:
    """R rows of fixed capacity, each with its own length; what lies behind a row's length is not read.

    The tensors stay where they are until a row outgrows its capacity. Cells are zero at first: an attention weight of
    0 times a value that was never written must be 0. A layer is allocated when it is first written.
    """

    @torch.inference_mode()
    def __init__(self, rows: int, context_length: int, device: torch.device) -> None:
        """Reserve nothing yet; no row will be longer than ``context_length``."""
        self.rows = rows
        self.layers: list[LayerMemory] = []
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self._context_length = context_length
        self._device = device
        # The host knows the lengths too, so that nothing has to be asked of the device.
        self._host_lengths, self.longest, self.uniform = [0] * rows, 0, True
        self.capacity = 0
        self._counted, self._size = (0, 0), 0

    @property
    def size(self) -> int:
        """Bytes allocated; counted again only where memory has changed, since every step of every rollout asks."""
        if self._counted != (counted := (len(self.layers), self.capacity)):
            self._counted, self._size = counted, sum(layer.size for layer in self.layers)
        return self._size

    def reserve(self, length: int) -> None:
        """Have every row hold so many tokens; where memory runs out on the way, the rows stay usable as they were."""
        if length > self.capacity:
            self._grow(length)

    @torch.inference_mode()
    def _grow(self, length: int) -> None:
        before, self.capacity = self.capacity, capacity_for(length, self._context_length)
        try:
            for layer in self.layers:
                layer.keys = self._larger(layer.keys)
                layer.values = self._larger(layer.values)
        except BaseException:
            # Some layers have moved. A captured graph knows a memory by its capacity and must not be replayed over
            # this one, so that one cell less is counted than every layer has.
            self.capacity = max(before - 1, 0)
            raise

    def write(self, index: int, keys: Tensor, values: Tensor, places: Tensor | None = None) -> None:
        """Put a layer's new keys and values, ``(R, heads, q, width)``, at their places; None is behind uniform rows."""
        if index == len(self.layers):
            self.layers.append(LayerMemory(self._allocated(keys), self._allocated(values)))
        layer, count = self.layers[index], keys.shape[2]
        if places is None:
            layer.keys.narrow(2, self.longest, count).copy_(keys)
            layer.values.narrow(2, self.longest, count).copy_(values)
            return
        # A layer of a model that is spread over devices may be elsewhere than the lengths.
        cells = places.to(keys.device)[:, None, :, None]  # (R, 1, q, 1)
        layer.keys.scatter_(2, cells.expand_as(keys), keys)
        layer.values.scatter_(2, cells.expand_as(values), values)

    def read(self, index: int, width: int) -> LayerMemory:
        """Views of a layer's first ``width`` cells."""
        layer = self.layers[index]
        return LayerMemory(layer.keys.narrow(2, 0, width), layer.values.narrow(2, 0, width))

    def places(self, count: int) -> Tensor:
        """Cells of each row's next tokens, ``(R, count)``."""
        return self.lengths[:, None] + torch.arange(count, device=self.lengths.device)

    @torch.inference_mode()
    def advance(self, count: int) -> None:
        """Count tokens that were written as held; a negative number goes back."""
        self._host_lengths = [length + count for length in self._host_lengths]
        self.longest += count
        self.lengths.add_(count)

    @torch.inference_mode()
    def settle(self, lengths: Sequence[int]) -> None:
        """Give every row its own length."""
        self._host_lengths = list(lengths)
        self.longest, self.uniform = max(lengths), min(lengths) == max(lengths)
        self.lengths.copy_(torch.tensor(self._host_lengths), non_blocking=True)

    @torch.inference_mode()
    def fill(self, layers: Sequence[LayerMemory], length: int) -> None:
        """Begin every row with the same ``length`` tokens; layers are ``(1, heads, length, width)``."""
        for layer in layers:
            filled = LayerMemory(self._allocated(layer.keys), self._allocated(layer.values))
            filled.keys[:, :, :length] = layer.keys
            filled.values[:, :, :length] = layer.values
            self.layers.append(filled)
        self.settle([length] * self.rows)

    @torch.inference_mode()
    def copied(self, back: int) -> Slots:
        """A second set of rows that lacks the last ``back`` tokens of each; only what both share is copied."""
        copy = Slots(self.rows, self._context_length, self._device)
        copy.settle([length - back for length in self._host_lengths])
        # One more than is copied, since a token follows in any case.
        copy.capacity = capacity_for(copy.longest + 1, self._context_length)
        copy.layers = [LayerMemory(copy._larger(layer.keys), copy._larger(layer.values)) for layer in self.layers]
        return copy

    @torch.inference_mode()
    def chosen(self, rows: Sequence[int]) -> Slots:
        """A copy of some of the rows."""
        copy = Slots(len(rows), self._context_length, self._device)
        copy.settle([self._host_lengths[row] for row in rows])
        copy.capacity = self.capacity
        copy.layers = [LayerMemory(layer.keys[list(rows)], layer.values[list(rows)]) for layer in self.layers]
        return copy

    def _larger(self, old: Tensor) -> Tensor:
        new = self._allocated(old)
        new[:, :, : self.longest] = old[:, :, : self.longest]
        return new

    def _allocated(self, like: Tensor) -> Tensor:
        return like.new_zeros((self.rows, like.shape[1], self.capacity, like.shape[3]))


def token_size(model: LanguageModel) -> int:
    """Bytes of one token's keys and values in all layers, at most; 0 where the model's configuration does not tell."""
    if model.engine is not None:
        return model.engine.token_bytes
    return token_numbers(model.module.config) * model.dtype.itemsize


def token_numbers(config: Any) -> int:
    """Numbers in one token's keys and values in all layers, at most; 0 where the configuration does not tell."""
    text: Any = config.get_text_config(decoder=True)
    # Where layers differ, each has a configuration of its own, and asking the whole one for a width is an error.
    layers = getattr(text, "per_layer_config", None) or [text] * (getattr(text, "num_hidden_layers", None) or 0)
    return sum(map(_width_of_layer, layers))


def _width_of_layer(layer: Any) -> int:
    """Numbers in one token's keys and values of a layer; 0 where its configuration does not tell."""
    heads = getattr(layer, "num_attention_heads", None)
    if not heads:
        return 0
    width = getattr(layer, "head_dim", None) or (getattr(layer, "hidden_size", None) or 0) // heads
    return int(2 * (getattr(layer, "num_key_value_heads", None) or heads) * width)


def rows_size(model: LanguageModel, rows: int, length: int) -> int:
    """Bytes that rows hold, the longest of a length, in the capacity that preallocated memory would have."""
    return rows * capacity_for(length, model.context_length) * token_size(model)


def in_pieces(model: LanguageModel, ids: Tensor) -> Sequence[Tensor]:
    """Tokens ``(R, q)`` by columns, as many of them as the model takes in one forward."""
    return torch.split(ids, max(1, model.prefill_tokens // len(ids)), dim=1)


class RowTokens:
    """Prompts of R rows, and the tokens generated behind them; column 0 of the latter is each prompt's last token."""

    def __init__(
        self, prompts: Sequence[Sequence[int]], context_length: int, device: torch.device, width: int = 1
    ) -> None:
        """Rows are branches of chains, so many of each chain, one after the other."""
        self.width = width
        self.prompts = tuple(tuple(prompt) for prompt in prompts)
        self.rows, self.longest = len(self.prompts), max(len(prompt) for prompt in self.prompts)
        self.uniform = all(len(prompt) == self.longest for prompt in self.prompts)
        self.generated = 0
        self._context_length = context_length
        self._tail = torch.tensor([[prompt[-1]] for prompt in self.prompts], device=device)  # (R, 1 + capacity)

    def shared(self) -> int:
        """Tokens at the beginning that are equal in all rows; every row has at least one more."""
        first, most = self.prompts[0], min(len(prompt) for prompt in self.prompts) - 1
        return next((i for i in range(most) if any(prompt[i] != first[i] for prompt in self.prompts)), most)

    def append(self, token_ids: Tensor) -> None:
        """Write one token a row, ``(R,)``."""
        place = self.generated + 1
        if place >= self._tail.shape[1]:
            wider = self._tail.new_zeros((self.rows, 1 + capacity_for(place, self._context_length)))
            wider[:, :place] = self._tail[:, :place]
            self._tail = wider
        self._tail[:, place].copy_(token_ids.reshape(-1), non_blocking=True)
        self.generated = place

    def after(self, held: int) -> Tensor:
        """Tokens that follow the first ``held`` generated ones, ``(R, q)``; -1 begins with the prompts' last tokens."""
        return self._tail[:, held + 1 : self.generated + 1]

    def rest(self, start: int) -> Tensor:
        """Prompts of one length from a token on, and all that was generated, ``(R, L - start + generated)``."""
        prompts = torch.tensor([prompt[start:] for prompt in self.prompts], device=self._tail.device)
        return torch.cat([prompts, self.after(0)], dim=1)

    def bodies(self, start: int) -> Tensor:
        """Prompts from a token on without their last ones, padded on the right, ``(R, L - 1 - start)``."""
        width = self.longest - 1 - start
        rows = [[*prompt[start:-1], *[0] * (self.longest - len(prompt))] for prompt in self.prompts]
        return torch.tensor(rows, dtype=torch.long, device=self._tail.device).view(self.rows, width)

    def padding(self) -> Tensor:
        """How many columns each row lacks to the longest, ``(R,)``."""
        return torch.tensor([self.longest - len(prompt) for prompt in self.prompts], device=self._tail.device)

    def padded(self) -> Tensor:
        """Prompts padded on the left, and all that was generated, ``(R, L + generated)``."""
        rows = [[0] * (self.longest - len(prompt)) + list(prompt) for prompt in self.prompts]
        return torch.cat([torch.tensor(rows, device=self._tail.device), self.after(0)], dim=1)

    def chosen(self, rows: Sequence[int]) -> RowTokens:
        """Some of the rows, with all that was generated."""
        width = 1 if len(rows) % self.width else self.width
        chosen = RowTokens([self.prompts[row] for row in rows], self._context_length, self._tail.device, width)
        chosen._tail, chosen.generated = self._tail[list(rows)], self.generated
        return chosen

    def copied(self, generated: int) -> RowTokens:
        """A second set of rows with the first ``generated`` tokens."""
        copy = object.__new__(RowTokens)
        copy.__dict__.update(self.__dict__)
        copy._tail = self._tail[:, : generated + 1].clone()
        copy.generated = generated
        return copy
