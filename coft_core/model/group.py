"""Branches of several models, or with activation hooks, stepped as if they were rows of one batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchBatch, BranchSpec, Hook, MemoryUse, attached
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.language_model import LanguageModel
from coft_core.model.memory_fit import fit_of

Found = TypeVar("Found")
Found_co = TypeVar("Found_co", covariant=True)


class Sequel(Protocol[Found_co]):
    """What is made of a batch's logits after its forward: by itself, or at once with others of the same forward."""

    @property
    def key(self) -> Hashable | None:
        """Sequels with equal keys may be made together; None is always made alone."""

    def alone(self, logits: Tensor) -> Found_co:
        """Make it of the batch's own logits, ``(R, V)``."""

    def together(self, logits: Sequence[Tensor], sequels: Sequence[Any]) -> Sequence[Callable[[], Found_co]]:
        """Make several at once.

        Args:
            logits: ``(R, V)`` of each.
            sequels: All of them, this one included; their keys are equal.

        Returns:
            For each, what is left to do in the thread that asked for it.
        """


class Forwards(Protocol):
    """Where the forwards of a rollout are run."""

    def logits(self, batch: BranchBatch, hooks: Sequence[Hook] = ()) -> Tensor:
        """What is pending of a batch, ``(R, V)``, with hooks that are on for this forward alone."""

    def followed(self, batch: BranchBatch, hooks: Sequence[Hook], sequel: Sequel[Found]) -> tuple[Tensor, Found]:
        """What is pending of a batch, ``(R, V)``, and what is made of it."""

    def exclusive(self) -> AbstractContextManager[None]:
        """No forward of anybody else runs inside this block."""


class OwnForwards:
    """Every forward by itself, in the thread that asks; for whoever is alone with a model, or holds its turn."""

    def logits(self, batch: BranchBatch, hooks: Sequence[Hook] = ()) -> Tensor:
        """What is pending of a batch, ``(R, V)``, with hooks that are on for this forward alone."""
        with attached(batch.model.module, hooks):
            return batch.logits()

    def followed(self, batch: BranchBatch, hooks: Sequence[Hook], sequel: Sequel[Found]) -> tuple[Tensor, Found]:
        """What is pending of a batch, ``(R, V)``, and what is made of it."""
        logits = self.logits(batch, hooks)
        return logits, sequel.alone(logits)

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody else is expected."""
        return nullcontext()


BASE = "base"
"""Name under which branches ask for the audited model."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Branches that share a model and hooks, and so a batch; ``rows`` are their places among all branches."""

    name: str
    model: LanguageModel
    hooks: tuple[Hook, ...]
    rows: tuple[int, ...]


class BranchGroup:
    """Branches of one prompt or of several, in one batch for each model and set of hooks.

    Where all branches share one model, as those of COFT do, this is that one batch and costs nothing besides.
    """

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        branches: Sequence[BranchSpec],
        forwards: Forwards | None = None,
    ) -> None:
        """Lay the prompts out; nothing runs yet."""
        parts = _parts(models, branches)
        # A prefix is not read by itself under hooks, since they may depend on where a forward begins and ends.
        batches = [
            BranchBatch(part.model, [branches[row].input_ids for row in part.rows], share=not part.hooks)
            for part in parts
        ]
        self._forwards = forwards or OwnForwards()
        self._parts, self._batches, self._order = parts, batches, _order(parts)

    def prepare(self) -> None:
        """Find out which memory fits the models; the first time this runs each over a few tokens."""
        for batch in self._batches:
            fit_of(batch.model)

    @property
    def row_count(self) -> int:
        """Number of branches R."""
        return sum(batch.row_count for batch in self._batches)

    @property
    def generated(self) -> int:
        """Number of generated tokens, equal in every branch."""
        return self._batches[0].generated

    @property
    def room(self) -> int:
        """How many more tokens the context with the least room can hold."""
        return min(batch.room for batch in self._batches)

    @property
    def closed(self) -> bool:
        """Whether the caches have been released."""
        return self._batches[0].closed

    @property
    def waited(self) -> float:
        """Seconds for which the newest logits waited on forwards of others."""
        return sum(batch.waited for batch in self._batches)

    @property
    def memory_size(self) -> int:
        """Bytes of keys and values that are held."""
        return sum(batch.memory_size for batch in self._batches)

    @property
    def memory_size_next(self) -> int:
        """Bytes that will be held after the next :meth:`logits`, as far as it is known before the first."""
        return sum(batch.memory_size_next for batch in self._batches)

    @property
    def memory_uses(self) -> dict[str, MemoryUse]:
        """How keys and values are kept, by the name under which branches ask for their model.

        Where hooks divide the branches of one model into several batches, the first one's.
        """
        uses: dict[str, MemoryUse] = {}
        for part, batch in zip(self._parts, self._batches, strict=True):
            uses.setdefault(part.name, batch.memory_use)
        return uses

    def logits(self) -> Tensor:
        """Run what is pending through the models.

        Returns:
            Logits that follow the newest token, ``(R, V)``, in the branches' order and on the first one's device. Where
            models pad their vocabularies differently, V is the smallest.
        """
        pairs = zip(self._parts, self._batches, strict=True)
        return _merged(self._parts, [self._forwards.logits(batch, part.hooks) for part, batch in pairs], self._order)

    def followed(self, sequel: Sequel[Found]) -> tuple[Tensor, Found]:
        """What :meth:`logits` gives, and what is made of it, perhaps together with that of other rollouts."""
        if self._order is None:
            return self._forwards.followed(self._batches[0], self._parts[0].hooks, sequel)
        logits = self.logits()
        return logits, sequel.alone(logits)

    def append(self, token_ids: Tensor) -> None:
        """Make one token a branch the pending one, ``(R,)``, in the branches' order."""
        for part, batch in zip(self._parts, self._batches, strict=True):
            batch.append(token_ids if self._order is None else token_ids[list(part.rows)])

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the branches alone, by their places; what is held of the others is released."""
        parts = []
        for part, batch in zip(self._parts, self._batches, strict=True):
            places = [part.rows.index(row) for row in rows if row in part.rows]
            batch.keep(places)
            parts.append(replace(part, rows=tuple(place for place, row in enumerate(rows) if row in part.rows)))
        self._parts, self._order = tuple(parts), _order(parts)

    def crop(self, generated: int) -> None:
        """Go back to an earlier number of generated tokens."""
        for batch in self._batches:
            batch.crop(generated)

    def fork(self, generated: int) -> BranchGroup:
        """A second, independent group at an earlier number of generated tokens."""
        copy = object.__new__(BranchGroup)
        copy._forwards, copy._parts, copy._order = self._forwards, self._parts, self._order
        copy._batches = [batch.fork(generated) for batch in self._batches]
        return copy

    def close(self) -> None:
        """Release the caches; further steps raise :class:`coft_core.errors.RolloutClosedError`."""
        for batch in self._batches:
            batch.close()


def score_branches(
    models: Mapping[str, LanguageModel], branches: Sequence[BranchSpec], tokens: Sequence[int]
) -> Tensor:
    """Logits of every branch before each token of a given continuation.

    Args:
        models: Loaded models by name.
        branches: The branches.
        tokens: C tokens of the continuation, the same in every branch.

    Returns:
        ``(C, B, V)``, on the first branch's device.

    Raises:
        InvalidInputError: A branch or the continuation is empty, or a model is not there.
        PromptTooLongError: Prompt and continuation together exceed a model's context.
    """
    parts = _parts(models, branches)
    by_part = []
    for part in parts:
        with attached(part.model.module, part.hooks):
            scored = teacher_forced_logits(part.model, [(branches[row].input_ids, tokens) for row in part.rows])
        by_part.append(torch.stack(scored, dim=1))  # (C, R, V)
    return _merged(parts, by_part, _order(parts))


def _merged(parts: tuple[_Part, ...], logits: Sequence[Tensor], order: Tensor | None) -> Tensor:
    """Logits of all parts in the branches' order, on the first one's device, ``(..., B, V)``; V is the smallest."""
    first = logits[0]
    if order is None:
        return first
    # Models of one policy may be loaded in different types; the widest keeps what each of them says.
    widest = first.dtype if all(part.dtype == first.dtype for part in logits) else torch.float32
    width = min(part.model.vocabulary_size for part in parts)
    return torch.cat([part[..., :width].to(first.device, widest) for part in logits], dim=-2)[..., order, :]


def _parts(models: Mapping[str, LanguageModel], branches: Sequence[BranchSpec]) -> tuple[_Part, ...]:
    if not branches:
        raise InvalidInputError("A policy must have at least one branch.")
    places: dict[tuple[str, tuple[Hook, ...]], list[int]] = {}
    for place, branch in enumerate(branches):
        if branch.model not in models:
            raise InvalidInputError(
                f"The branch {branch.name!r} needs the model {branch.model!r}, which is not loaded."
            )
        places.setdefault((branch.model, branch.hooks), []).append(place)
    return tuple(_Part(name, models[name], hooks, tuple(rows)) for (name, hooks), rows in places.items())


def _order(parts: Sequence[_Part]) -> Tensor | None:
    """Where each branch stands when the parts are put one after the other; None with a single part."""
    if len(parts) == 1:
        return None
    return torch.tensor([row for part in parts for row in part.rows]).argsort()
