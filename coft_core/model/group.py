"""Branches of several models, or with activation hooks, stepped as if they were rows of one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchBatch, BranchSpec, Hook, MemoryUse, attached
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.joint import Found, JointForwards, Sequel
from coft_core.model.language_model import LanguageModel
from coft_core.model.memory_fit import fit_of

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
    """Branches of one prompt or of several, in one batch for each model and set of hooks."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        branches: Sequence[BranchSpec],
        forwards: JointForwards | None = None,
    ) -> None:
        """Lay the prompts out, to be run by the forwards of many or, without any, alone; nothing runs yet."""
        parts = _parts(models, branches)
        # A prefix is not read by itself under hooks, since they may depend on where a forward begins and ends.
        chains = len(branches) // len({branch.name for branch in branches})
        batches = [
            BranchBatch(
                part.model,
                [branches[row].input_ids for row in part.rows],
                share=not part.hooks,
                width=len(part.rows) // chains,
            )
            for part in parts
        ]
        self._forwards, self._parts, self._batches, self._order = forwards, parts, batches, _order(parts)

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
        """How keys and values are kept, by the name of the model; of several batches of one model, the first one's."""
        uses: dict[str, MemoryUse] = {}
        for part, batch in zip(self._parts, self._batches, strict=True):
            uses.setdefault(part.name, batch.memory_use)
        return uses

    def logits(self) -> Tensor:
        """Logits that follow the newest token, ``(R, V)``, in the branches' order and on the first one's device."""
        found = []
        for part, batch in zip(self._parts, self._batches, strict=True):
            if self._forwards is not None:
                found.append(self._forwards.followed(batch, part.hooks)[0])
                continue
            with attached(part.model.module, part.hooks):
                found.append(batch.logits())
        return _merged(self._parts, found, self._order)

    def followed(self, sequel: Sequel[Found]) -> tuple[Tensor, Found]:
        """What :meth:`logits` gives, and what is made of it, perhaps together with that of other rollouts."""
        if self._order is None and self._forwards is not None:
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
    """Logits of every branch before each token of one continuation, ``(C, B, V)``, on the first branch's device."""
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
