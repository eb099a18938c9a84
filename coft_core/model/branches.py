"""Branches as rows of one batch over one key-value memory.

The memory always lacks the newest token: a forward feeds what is pending, returns the logits that follow it, and the
chosen token becomes pending. Stepping back and forking are therefore a shorter length and a copy, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coft_core.errors import InvalidInputError, PromptTooLongError, RolloutClosedError
from coft_core.model.compiled import step_logits
from coft_core.model.engine import Engine, Rows
from coft_core.model.language_model import LanguageModel
from coft_core.model.memory import GrowingRows, Sharing, SlotRows
from coft_core.model.memory_fit import MemoryKind, fit_of
from coft_core.model.slots import RowTokens
from coft_core.model.states import StateRows

Hook = Callable[[Any], Any]
"""Attaches itself to a transformers module and returns what takes it off again, as PyTorch does, by ``remove``."""


def attached(module: Any, hooks: Sequence[Hook]) -> AbstractContextManager[object]:
    """Attach hooks to a module for the length of a ``with`` block; an error in one takes off those before it."""
    if hooks and isinstance(module, Engine):
        raise InvalidInputError(
            f"This method changes activations inside the model, and {module.title} does not show them; choose another "
            "method, or load the model's safetensors with transformers."
        )
    with ExitStack() as stack:
        for hook in hooks:
            stack.callback(hook(module).remove)
        return stack.pop_all()


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """A branch that a policy needs."""

    name: str
    input_ids: tuple[int, ...]
    model: str = "base"
    hooks: tuple[Hook, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How the keys and values of a batch are kept."""

    kind: MemoryKind
    reason: str
    held_once: int
    joins: bool


class BranchBatch:
    """Rows that share one model, one memory of the kind that fits the model, and one number of generated tokens."""

    def __init__(
        self,
        model: LanguageModel,
        rows: Sequence[Sequence[int]],
        share: bool = True,
        sharing: Sharing | None = None,
        width: int = 1,
    ) -> None:
        """Lay the prompts out, so many of each chain; nothing runs yet."""
        if not rows or any(len(row) == 0 for row in rows):
            raise InvalidInputError("The prompt has no tokens; type at least one word.")
        longest = max(len(row) for row in rows)
        if longest >= model.context_length:
            raise PromptTooLongError(
                f"The prompt has {longest:,} tokens and the model takes {model.context_length:,}; shorten it."
            )
        self.model = model
        self.closed = False
        self.waited = 0.0
        """Seconds for which the newest logits waited on forwards of others; whoever runs those for many writes it."""
        self._tokens = RowTokens(rows, model.context_length, model.device, width)
        self._sharing = (sharing or Sharing.of(model.device)) if share else None
        self._memory: Rows | None = None

    @property
    def row_count(self) -> int:
        """Number of rows R."""
        return self._tokens.rows

    @property
    def generated(self) -> int:
        """Number of generated tokens, equal in every row."""
        return self._tokens.generated

    @property
    def room(self) -> int:
        """How many more tokens the context can hold."""
        return self.model.context_length - self._tokens.longest - self._tokens.generated

    @property
    def memory_use(self) -> MemoryUse:
        """How the rows' keys and values are kept."""
        fit = fit_of(self.model)
        # Nothing is shared by rows whose activations are changed.
        joins = fit.joins and self._sharing is not None
        return MemoryUse(fit.kind, fit.reason, self.opened().shared_length, joins)

    @property
    def memory_size(self) -> int:
        """Bytes of keys and values that are held."""
        return self._memory.size if self._memory else 0

    @property
    def memory_size_next(self) -> int:
        """Bytes that will be held after the next :meth:`logits`, as far as it is known before the first."""
        return 0 if self.closed else self.opened().size_after(1)

    @property
    def may_join(self) -> bool:
        """Whether the next :meth:`logits` may be one of several in :func:`joint_logits`."""
        return self._memory is not None and self._memory.may_join

    def logits(self) -> Tensor:
        """Run what is pending, the prompt at first: logits that follow the newest token, ``(R, V)``, in its dtype."""
        return self.opened().logits()

    def append(self, token_ids: Tensor) -> None:
        """Make one token a row the pending one, ``(R,)``; branches of one prompt get the same."""
        self._require_open()
        self._tokens.append(token_ids)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the rows alone, by their places; what is held of the others is released."""
        self._require_open()
        if not rows:
            raise InvalidInputError("A batch goes on with one row at least; close it instead.")
        self._tokens = self._tokens.chosen(rows)
        if self._memory is not None:
            self._memory.keep(rows, self._tokens)

    def crop(self, generated: int) -> None:
        """Go back to an earlier number of generated tokens; rows become shorter, nothing is copied or recomputed."""
        self._require_step(generated)
        self._tokens.generated = generated
        if self._memory is not None:
            self._memory.cut()

    def fork(self, generated: int) -> BranchBatch:
        """A second, independent batch at an earlier number of generated tokens, from a copy of the cut memory."""
        self._require_step(generated)
        copy = object.__new__(BranchBatch)
        copy.__dict__.update(self.__dict__)
        copy._tokens = self._tokens.copied(generated)
        copy._memory = None if self._memory is None else self._memory.copied(copy._tokens)
        return copy

    def close(self) -> None:
        """Release the memory; further steps raise :class:`RolloutClosedError`."""
        self.closed, self._memory = True, None

    def _require_open(self) -> None:
        if self.closed:
            raise RolloutClosedError("This rollout has been closed; start it again from its session.")

    def _require_step(self, generated: int) -> None:
        self._require_open()
        if not 0 <= generated <= self.generated:
            raise InvalidInputError(f"There is no step {generated}; this branch has {self.generated}.")

    def opened(self) -> Rows:
        """The keys and values of its rows, whose memory is taken when it is first needed."""
        self._require_open()
        if self._memory is None:
            fit = fit_of(self.model)
            if (engine := self.model.engine) is not None:
                self._memory = engine.open_rows(self._tokens)
            elif fit.kind == "slots":
                self._memory = SlotRows(self.model, self._tokens, fit, self._sharing)
            elif fit.kind == "states":
                self._memory = StateRows(self.model, self._tokens, fit)
            else:
                self._memory = GrowingRows(self.model, self._tokens, fit.accepts)
        return self._memory


def joint_logits(batches: Sequence[BranchBatch]) -> list[Tensor]:
    """Run what is pending of several batches of one model in a single forward."""
    memories = [batch._memory for batch in batches if batch.may_join and isinstance(batch._memory, SlotRows)]
    model = batches[0].model
    if len(memories) != len(batches) or any(batch.model.module is not model.module for batch in batches):
        raise InvalidInputError("These batches cannot share a forward; run each alone.")
    # Captured graphs are known by their memories in order, and whoever asks first is another one each time.
    order = sorted(range(len(memories)), key=lambda place: id(memories[place]))
    parts = [memories[place].next_part() for place in order]
    logits = step_logits(model, parts, fit_of(model))  # (sum of R, V)
    by_place = dict(zip(order, torch.split(logits, [part.slots.rows for part in parts]), strict=True))
    for place, part in zip(order, parts, strict=True):
        memories[place].done(part)
    return [by_place[place] for place in range(len(memories))]


@dataclass(frozen=True, slots=True)
class WrittenText:
    """What a model wrote."""

    text: str
    cut: bool


def write_greedily(
    model: LanguageModel, ids: Sequence[int], most: int, ended: Callable[[str], bool] = lambda text: False
) -> WrittenText:
    """Continue tokens with the likeliest ones, up to the model's end token."""
    batch = BranchBatch(model, [ids])
    written: list[int] = []
    text = ""
    try:
        while len(written) < most and batch.room > 0:
            chosen = batch.logits().float().argmax(-1)  # (1,)
            token_id = int(chosen)
            if token_id in model.end_token_ids:
                return WrittenText(text, False)
            written.append(token_id)
            text = model.continuation_text(written)
            if ended(text):
                return WrittenText(text, False)
            batch.append(chosen)
        return WrittenText(text, True)
    finally:
        batch.close()
