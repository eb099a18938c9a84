"""Keys and values of some rows, in tensors that are allocated ahead and written in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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

    The tensors stay where they are until a row outgrows its capacity. Going back makes lengths shorter and copies
    nothing. Cells are zero at first: an attention weight of 0 times a value that was never written must be 0.
    """

    @torch.inference_mode()
    def __init__(self, rows: int, context_length: int, device: torch.device) -> None:
        """Reserve nothing yet; a layer is allocated when it is first written, in the shape that it then has.

        Args:
            rows: Number of rows R.
            context_length: Longest row that the model takes.
            device: Where the memory is.
        """
        self.rows = rows
        self.layers: list[LayerMemory] = []
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)  # (R,), in place
        self._context_length = context_length
        self._device = device
        # The host knows the lengths too, so that nothing has to be asked of the device.
        self._host_lengths, self._longest, self._uniform = [0] * rows, 0, True
        self._capacity = 0
        self._counted, self._size = (0, 0), 0

    @property
    def longest(self) -> int:
        """Length of the longest row, known without asking the device."""
        return self._longest

    @property
    def uniform(self) -> bool:
        """Whether all rows have one length."""
        return self._uniform

    @property
    def capacity(self) -> int:
        """Tokens a row for which memory is there."""
        return self._capacity

    @property
    def size(self) -> int:
        """Bytes allocated; counted again only where memory has changed, since every step of every rollout asks."""
        if self._counted != (counted := (len(self.layers), self._capacity)):
            self._counted, self._size = counted, sum(layer.size for layer in self.layers)
        return self._size

    @torch.inference_mode()
    def reserve(self, length: int) -> None:
        """See to it that every row can hold so many tokens; larger tensors are filled by copy, layer by layer.

        Where memory runs out on the way, the rows hold what they held and can be used and grown as before.
        """
        if length <= self._capacity:
            return
        before, self._capacity = self._capacity, capacity_for(length, self._context_length)
        try:
            for layer in self.layers:
                layer.keys = self._larger(layer.keys)
                layer.values = self._larger(layer.values)
        except BaseException:
            # Some layers have moved. A captured graph knows a memory by its capacity and must not be replayed over
            # this one, so that one cell less is counted than every layer has.
            self._capacity = max(before - 1, 0)
            raise

    def write(self, index: int, keys: Tensor, values: Tensor, cells: tuple[Tensor, Tensor] | None = None) -> None:
        """Put the states of new tokens behind each row's own; lengths change only by :meth:`advance`.

        Args:
            index: The layer.
            keys: ``(R, heads, q, width)``.
            values: ``(R, heads, q, value width)``.
            cells: Where they go, as :meth:`cells` says; None puts them behind rows that all have one length.
        """
        if index == len(self.layers):
            self.layers.append(LayerMemory(self._allocated(keys), self._allocated(values)))
        layer, count = self.layers[index], keys.shape[2]
        if cells is None:
            layer.keys.narrow(2, self._longest, count).copy_(keys)
            layer.values.narrow(2, self._longest, count).copy_(values)
            return
        # A layer of a model that is spread over devices may be elsewhere than the lengths.
        rows, places = (tensor.to(keys.device) for tensor in cells)
        layer.keys[rows, :, places] = keys.transpose(1, 2)
        layer.values[rows, :, places] = values.transpose(1, 2)

    def read(self, index: int, width: int) -> LayerMemory:
        """Views of a layer's first ``width`` cells."""
        layer = self.layers[index]
        return LayerMemory(layer.keys.narrow(2, 0, width), layer.values.narrow(2, 0, width))

    def places(self, count: int) -> Tensor:
        """Cells of each row's next tokens, ``(R, count)``."""
        return self.lengths[:, None] + torch.arange(count, device=self.lengths.device)

    def cells(self, count: int) -> tuple[Tensor, Tensor]:
        """Rows ``(R, 1)`` and cells ``(R, count)`` of the next tokens, from the lengths on the device."""
        return torch.arange(self.rows, device=self.lengths.device)[:, None], self.places(count)

    @torch.inference_mode()
    def advance(self, count: int) -> None:
        """Count tokens that were written as held; a negative number goes back."""
        self._host_lengths = [length + count for length in self._host_lengths]
        self._longest += count
        self.lengths.add_(count)

    @torch.inference_mode()
    def settle(self, lengths: Sequence[int]) -> None:
        """Give every row its own length."""
        self._host_lengths = list(lengths)
        self._longest, self._uniform = max(lengths), min(lengths) == max(lengths)
        self.lengths.copy_(torch.tensor(self._host_lengths), non_blocking=True)

    @torch.inference_mode()
    def fill(self, layers: Sequence[LayerMemory], length: int) -> None:
        """Begin every row with the same ``length`` tokens; layers are ``(1, heads, length, width)``."""
        for layer in layers:
            own = LayerMemory(self._allocated(layer.keys), self._allocated(layer.values))
            own.keys[:, :, :length] = layer.keys
            own.values[:, :, :length] = layer.values
            self.layers.append(own)
        self.settle([length] * self.rows)

    @torch.inference_mode()
    def copied(self, back: int) -> Slots:
        """A second set of rows that lacks the last ``back`` tokens of each; only what both share is copied."""
        copy = Slots(self.rows, self._context_length, self._device)
        copy.settle([length - back for length in self._host_lengths])
        # One more than is copied, since a token follows in any case.
        copy._capacity = capacity_for(copy.longest + 1, self._context_length)
        copy.layers = [LayerMemory(copy._larger(layer.keys), copy._larger(layer.values)) for layer in self.layers]
        return copy

    def _larger(self, old: Tensor) -> Tensor:
        new = self._allocated(old)
        new[:, :, : self.longest] = old[:, :, : self.longest]
        return new

    def _allocated(self, like: Tensor) -> Tensor:
        return like.new_zeros((self.rows, like.shape[1], self._capacity, like.shape[3]))
