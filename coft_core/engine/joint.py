"""Forwards of one model that several threads ask for at the same time, run as one.

A step of decoding reads all weights for a handful of rows, so that many reviewers' steps cost little more than one.
Whoever asks first runs the forward of all who wait; the others find their logits done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Condition
from time import perf_counter
from typing import Protocol

from torch import Tensor

from coft_core.engine.branches import BranchBatch, joint_logits
from coft_core.engine.hooks import Hook, attached

MOST_ROWS = 64
"""Rows of one forward at most; a batch with more of its own is run alone."""


class Forwards(Protocol):
    """Where the forwards of a rollout are run."""

    def logits(self, batch: BranchBatch, hooks: Sequence[Hook] = ()) -> Tensor:
        """What is pending of a batch, ``(R, V)``, with hooks that are on for this forward alone."""

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

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody else is expected."""
        return nullcontext()


@dataclass(eq=False)
class _Request:
    """What one thread asks for, and what became of it."""

    batch: BranchBatch
    hooks: tuple[Hook, ...]
    found: list[Tensor] = field(default_factory=list)
    error: Exception | None = None
    asked: float = field(default_factory=lambda: perf_counter())

    @property
    def done(self) -> bool:
        return bool(self.found) or self.error is not None

    @property
    def joins(self) -> bool:
        """Whether others' rows may be run with these; hooks would change theirs."""
        return not self.hooks and self.batch.may_join

    def run_alone(self) -> None:
        try:
            with attached(self.batch.model.module, self.hooks):
                self.found.append(self.batch.logits())
        except Exception as error:
            self.error = error


class JointForwards:
    """Forwards of many rollouts on one processor: in the order of asking, and together where they can be.

    Steps of one token a row of batches of one model are joined. Prompts, batches with hooks and models whose attention
    takes no parts are run alone, in their turn. An error of a joint forward is nobody's yet: each batch is then run
    alone, and only those fail that fail by themselves.
    """

    def __init__(
        self, processor: Callable[[], AbstractContextManager[None]] = nullcontext, most_rows: int = MOST_ROWS
    ) -> None:
        """Nobody waits.

        Args:
            processor: Gives the processor for one forward, from which others may keep us meanwhile.
            most_rows: Rows of one forward at most.
        """
        self._processor = processor
        self._most_rows = most_rows
        self._changed = Condition()
        self._waiting: deque[_Request] = deque()
        self._led = False
        self._forwards = 0
        self._served = 0

    @property
    def forwards(self) -> int:
        """Forwards that were run, a joint one counted once."""
        return self._forwards

    @property
    def served(self) -> int:
        """Requests that were answered."""
        return self._served

    @property
    def waiting(self) -> int:
        """Requests that no forward has taken yet."""
        return len(self._waiting)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the processor, for forwards that are none of a batch's steps."""
        with self._processor():
            yield

    def logits(self, batch: BranchBatch, hooks: Sequence[Hook] = ()) -> Tensor:
        """What is pending of a batch, ``(R, V)``; equal to what it gives alone, up to sums in another order.

        Args:
            batch: The batch; no other thread touches it meanwhile.
            hooks: Hooks that are on for this forward alone.

        Raises:
            RolloutClosedError: The batch is closed.
        """
        request = _Request(batch, tuple(hooks))
        try:
            if self._leads(request):
                self._lead(request)
        except BaseException:
            self._withdraw(request)
            raise
        if request.error is not None:
            raise request.error
        return request.found[0]

    def _leads(self, request: _Request) -> bool:
        """Wait until the request is done or nobody runs forwards, which is then for this thread to do."""
        with self._changed:
            self._waiting.append(request)
            self._changed.wait_for(lambda: request.done or not self._led)
            if request.done:
                return False
            self._led = True
            return True

    def _lead(self, own: _Request) -> None:
        """Run forwards, oldest requests first, until the own one is done."""
        try:
            while not own.done:
                # The processor is given back after each forward, so that whoever else waits for it gets its turn.
                with self._processor():
                    self._serve(self._taken())
        finally:
            with self._changed:
                self._led = False
                self._changed.notify_all()

    def _taken(self) -> list[_Request]:
        """The oldest request, and all that can be run with it."""
        with self._changed:
            first = self._waiting.popleft()
            taken, rows = [first], first.batch.row_count
            if first.joins:
                for other in tuple(self._waiting):
                    same = other.batch.model.module is first.batch.model.module
                    if same and other.joins and rows + other.batch.row_count <= self._most_rows:
                        rows += other.batch.row_count
                        taken.append(other)
                        self._waiting.remove(other)
            return taken

    def _serve(self, taken: list[_Request]) -> None:
        began = perf_counter()
        for request in taken:
            request.batch.waited = began - request.asked
        try:
            if len(taken) == 1 or not self._served_together(taken):
                for request in taken:
                    request.run_alone()
                    self._forwards += 1
        finally:
            with self._changed:
                # Whoever was interrupted here has left others' requests unanswered; they keep their places.
                self._waiting.extendleft(request for request in reversed(taken) if not request.done)
                self._served += sum(request.done for request in taken)
                self._changed.notify_all()

    def _served_together(self, taken: list[_Request]) -> bool:
        try:
            found = joint_logits([request.batch for request in taken])
        except Exception:
            # Whatever it was, it is raised again by the batch whose it is, when that is run alone.
            return False
        self._forwards += 1
        for request, logits in zip(taken, found, strict=True):
            request.found.append(logits)
        return True

    def _withdraw(self, request: _Request) -> None:
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)
            self._changed.notify_all()
