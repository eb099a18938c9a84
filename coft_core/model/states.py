"""Rows of models whose layers keep a state that cannot be cut: states are copied at every step, or else read again.

A recurrent or convolutional state holds all earlier tokens at once, so that a shorter text cannot be had from it. It is
copied before each token, and going back takes the copy up again. Copies are bounded by the model's ``snapshot_bytes``:
what was let go is read again from the nearest copy before it. Keys and values of hybrid models are held once and cut.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import (
    Cache,
    DynamicIndexedLayer,
    DynamicLayer,
    LinearAttentionAndFullAttentionLayer,
)

from coft_core.model.language_model import LanguageModel
from coft_core.model.memory_fit import Fit, run_with_state
from coft_core.model.slots import RowTokens, in_pieces, token_size

_GROWING_LAYERS = (DynamicLayer, DynamicIndexedLayer, LinearAttentionAndFullAttentionLayer)
"""Layers of transformers' caches whose keys and values of a shorter text are the beginning of those of a longer one."""

_GROWING_TENSORS = {"keys": 2, "values": 2, "indexer_keys": 1}
"""Their tensors, and the dimension of the tokens in each."""

Tape = dict[tuple[int, str], Tensor]
"""Growing tensors of a state by layer and name; nothing changes them in place, so that forks share them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state after some tokens, without its growing tensors; nothing changes it, so that forks share it."""

    state: Any
    lengths: dict[tuple[int, str], int]
    size: int

    @classmethod
    def of(cls, state: Any) -> Snapshot:
        """Copy a state."""
        tape = growing_tensors(state)
        # What deepcopy finds in its memo it takes instead of a copy.
        held = copy.deepcopy(state, {id(tensor): tensor.new_empty(0) for tensor in tape.values()})
        lengths = {place: tensor.shape[_GROWING_TENSORS[place[1]]] for place, tensor in tape.items()}
        return cls(held, lengths, state_size(held))

    def restored(self, tape: Tape) -> Any:
        """A state that a model may change, with the growing tensors of a text that begins like this one."""
        state = copy.deepcopy(self.state)
        for (layer, name), length in self.lengths.items():
            setattr(state.layers[layer], name, tape[layer, name].narrow(_GROWING_TENSORS[name], 0, length))
        return state


def growing_tensors(state: Any) -> Tape:
    """Tensors of a state whose beginnings are those of shorter texts."""
    if not isinstance(state, Cache):
        return {}
    return {
        (index, name): tensor
        for index, layer in enumerate(state.layers)
        if type(layer) in _GROWING_LAYERS
        for name in _GROWING_TENSORS
        if isinstance(tensor := getattr(layer, name, None), Tensor) and tensor.dim() > _GROWING_TENSORS[name]
    }


def state_size(state: Any) -> int:
    """Bytes of all tensors of a state, each counted once."""
    return sum({id(tensor): tensor.nbytes for tensor in _tensors(state)}.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "__dict__") and not isinstance(value, PreTrainedConfig | type):
        yield from _tensors(vars(value))


class StateGroup:
    """Rows whose prompts have one length, so that none of them is padded: what padding does to a state is unknown.

    Places count generated tokens that were read: 0 has read the prompts, -1 all but their last tokens.
    """

    def __init__(self, model: LanguageModel, tokens: RowTokens, fit: Fit, budget: int) -> None:
        self._model, self.tokens, self._fit, self._budget = model, tokens, fit, budget
        self._state: Any = None
        self._place: int | None = None
        self._tape: Tape = {}
        self._snapshots: dict[int, Snapshot] = {}

    @property
    def size(self) -> int:
        """Bytes held."""
        current = state_size(self._state) if self._state is not None else state_size(self._tape)
        return current + sum(snapshot.size for snapshot in self._snapshots.values())

    def size_after(self, count: int) -> int:
        """Bytes held when so many more tokens have been run, as far as it is known."""
        newest = next(reversed(self._snapshots.values()), None)
        if newest is None:
            longest = self.tokens.longest + self.tokens.generated + count
            return self.tokens.rows * longest * token_size(self._model)
        kept = sum(snapshot.size for snapshot in self._snapshots.values())
        more = min(count * newest.size, max(self._budget - kept, 0))
        read = max(next(iter(newest.lengths.values()), 0), 1)
        return self.size + more + count * (state_size(self._tape) // read)

    def logits(self) -> Tensor:
        """Run what is pending, ``(R, V)``; the state before the newest token is kept."""
        target = self.tokens.generated
        place = self._resume(target)
        ids = self.tokens.rest(0) if place is None else self.tokens.after(place)  # (R, q)
        before, newest, length = ids[:, :-1], ids[:, -1:], self.tokens.longest + target
        # A forward that fails leaves a state that counts for nothing.
        self._place = None
        if before.shape[1]:
            self._run(before, length - ids.shape[1])
        if self._state is not None:
            self._keep(target - 1)
        logits = self._run(newest, length - 1)
        self._place = target
        return logits

    def cut(self) -> None:
        """Forget what holds tokens that are no longer there."""
        left = self.tokens.generated
        self._snapshots = {place: held for place, held in self._snapshots.items() if place <= left}
        if self._place is not None and self._place > left:
            self._state = self._place = None

    def copied(self, tokens: RowTokens) -> StateGroup:
        """The same for fewer generated tokens; what both hold is shared, since nothing changes it."""
        other = StateGroup(self._model, tokens, self._fit, self._budget)
        other._snapshots, other._tape = dict(self._snapshots), dict(self._tape)
        other.cut()
        return other

    def _resume(self, target: int) -> int | None:
        """Bring the state to the nearest place before a target; None where it starts over."""
        if self._place is not None and self._place < target:
            return self._place
        nearest = max((place for place in self._snapshots if place < target), default=None)
        self._state = None if nearest is None else self._snapshots[nearest].restored(self._tape)
        return nearest

    def _run(self, ids: Tensor, start: int) -> Tensor:
        """Logits after the last of some tokens, ``(R, V)``, the first of which follows ``start`` others."""
        state, self._state = self._state, None
        logits = ids.new_empty(0)
        # As many tokens at once as the model may go on with from a state.
        pieces = in_pieces(self._model, ids) if self._fit.pieces else [ids] if state is None else ids.split(1, dim=1)
        for piece in pieces:
            logits, state = run_with_state(self._model, self._fit, piece, state, start)
            start += piece.shape[1]
        self._state = state
        self._tape = growing_tensors(state)
        return logits

    def _keep(self, place: int) -> None:
        """Copy the state; where copies outgrow the budget, those that lie closest together go, the older the sooner."""
        self._snapshots[place] = Snapshot.of(self._state)
        self._snapshots = dict(sorted(self._snapshots.items()))
        while len(self._snapshots) > 2 and sum(held.size for held in self._snapshots.values()) > self._budget:
            places = list(self._snapshots)
            gaps = {
                place: (after - before) / (places[-1] - place + 1)
                for before, place, after in zip(places, places[1:], places[2:], strict=False)
            }
            del self._snapshots[min(gaps, key=gaps.__getitem__)]


class StateRows:
    """Rows over states, in groups of one length each."""

    # Nothing is held once here, nor is a forward shared.
    shared_length, may_join = 0, False

    def __init__(self, model: LanguageModel, tokens: RowTokens, fit: Fit) -> None:
        self._model, self._tokens, self._fit = model, tokens, fit
        by_length: dict[tuple[int, int], list[int]] = {}
        for row, prompt in enumerate(tokens.prompts):
            by_length.setdefault((len(prompt), row if fit.alone else 0), []).append(row)
        self._rows = list(by_length.values())
        budget = model.snapshot_bytes // len(self._rows)
        self._groups = [StateGroup(model, part, fit, budget) for part in self._parts(tokens)]

    @property
    def size(self) -> int:
        """Bytes held; those that forks share are counted in each."""
        return sum(group.size for group in self._groups)

    def size_after(self, count: int) -> int:
        """Bytes held when so many more tokens have been run, as far as it is known."""
        return sum(group.size_after(count) for group in self._groups)

    def logits(self) -> Tensor:
        """Run what is pending, ``(R, V)``."""
        self._tell()
        each = [group.logits() for group in self._groups]
        if len(each) == 1:
            return each[0]
        order = torch.tensor([row for rows in self._rows for row in rows], device=each[0].device)  # (R,)
        return torch.cat(each)[order.argsort()]

    def cut(self) -> None:
        """Forget what holds tokens that are no longer there."""
        self._tell()
        for group in self._groups:
            group.cut()

    def copied(self, tokens: RowTokens) -> StateRows:
        """A second memory for earlier tokens of these rows."""
        other = object.__new__(StateRows)
        other.__dict__.update(self.__dict__)
        other._tokens = tokens
        other._groups = [group.copied(part) for part, group in zip(self._parts(tokens), self._groups, strict=True)]
        return other

    def keep(self, rows: Sequence[int], tokens: RowTokens) -> None:
        """Go on with some of the rows, which are read again: where rows stand in a state is its model's own affair."""
        del rows
        self.__init__(self._model, tokens, self._fit)

    def _tell(self) -> None:
        """Tell the groups what was generated since."""
        for part, group in zip(self._parts(self._tokens), self._groups, strict=True):
            group.tokens = part

    def _parts(self, tokens: RowTokens) -> list[RowTokens]:
        """The tokens of each group."""
        return [tokens] if len(self._rows) == 1 else [tokens.chosen(rows) for rows in self._rows]
