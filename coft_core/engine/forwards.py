"""Where the forwards of a rollout are run, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from torch import Tensor

from coft_core.engine.branches import BranchBatch
from coft_core.engine.hooks import Hook, attached

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
        """What is pending of a batch, ``(R, V)``.

        Raises:
            RolloutClosedError: The batch is closed.
        """
        with attached(batch.model.module, hooks):
            return batch.logits()

    def followed(self, batch: BranchBatch, hooks: Sequence[Hook], sequel: Sequel[Found]) -> tuple[Tensor, Found]:
        """What is pending of a batch, ``(R, V)``, and what is made of it.

        Raises:
            RolloutClosedError: The batch is closed.
        """
        logits = self.logits(batch, hooks)
        return logits, sequel.alone(logits)

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody else is expected."""
        return nullcontext()
