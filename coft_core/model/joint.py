"""Forwards of one model that several threads ask for at the same time, run as one.

A step of decoding reads all weights for a handful of rows, so that many reviewers' steps cost little more than one.
Whoever asks first runs the forward of all who wait; the others find their logits done, and what follows them too where
it is the same for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Condition, Lock
from time import perf_counter
from traceback import clear_frames
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor

from coft_core.model.branches import BranchBatch, Hook, attached, joint_logits

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
        """Make several of equal keys at once: for each, what is left to do in the thread that asked for it."""


PATIENCE = 1.0
"""How long a forward waits after the one before it, as a share of the time that one took.

Whoever misses a forward waits for the whole of it, so that up to there waiting costs no more than it saves.
"""


class Gathering:
    """Knows who took part in the newest forward and how long each is usually away; keeps no batch alive."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._newest: WeakSet[BranchBatch] = WeakSet()
        self._served_at: WeakKeyDictionary[BranchBatch, float] = WeakKeyDictionary()
        self._away: WeakKeyDictionary[BranchBatch, float] = WeakKeyDictionary()
        self._seconds, self._ended = 0.0, 0.0

    def asked(self, batch: BranchBatch, now: float) -> None:
        """A batch is back, at a time in seconds."""
        if (served_at := self._served_at.get(batch)) is not None:
            self._away[batch] = now - served_at

    def served(self, batches: Sequence[BranchBatch], began: float, ended: float) -> None:
        """A forward of these batches is done, one token a row, from and to a time in seconds."""
        self._newest = WeakSet(batches)
        self._seconds, self._ended = self._patience * (ended - began), ended
        for batch in batches:
            self._served_at[batch] = ended

    def left(self, now: float) -> float:
        """Seconds for which it still pays to wait."""
        return self._ended + self._seconds - now

    def complete(self, back: Collection[BranchBatch], model: object) -> bool:
        """Whether nobody is missing who could share the next forward and was in time before."""
        known = {id(batch) for batch in back}
        return not any(
            batch.model.module is model and batch.may_join and self._away.get(batch, 0.0) <= self._seconds
            for batch in self._newest
            if id(batch) not in known
        )


MOST_ROWS = 64
"""Rows of one forward at most; a batch with more of its own is run alone."""


@dataclass(eq=False)
class _Request:
    """What one thread asks for, and what became of it."""

    batch: BranchBatch
    hooks: tuple[Hook, ...]
    sequel: Sequel[Any] | None = None
    found: list[Tensor] = field(default_factory=list)
    finish: Callable[[], Any] | None = None
    error: Exception | None = None
    asked: float = field(default_factory=lambda: perf_counter())

    @property
    def done(self) -> bool:
        return bool(self.found) or self.error is not None

    @property
    def joins(self) -> bool:
        """Whether others' rows may be run with these; hooks would change theirs."""
        return not self.hooks and self.batch.may_join


class JointForwards:
    """Forwards of many rollouts on one processor: in the order of asking, and together where they can be.

    Steps of one token a row of batches of one model are joined; prompts and batches with hooks are run alone, in their
    turn. An error of a joint forward is nobody's yet: each batch is then run alone, and only those fail that fail by
    themselves; likewise with what follows it. A forward waits a moment for those of the one before it.
    """

    def __init__(
        self,
        processor: Callable[[], AbstractContextManager[None]] = nullcontext,
        most_rows: int = MOST_ROWS,
        gathering: Gathering | None = None,
    ) -> None:
        self._processor = processor
        self._most_rows = most_rows
        lock = Lock()
        # Whoever runs the forwards is told who comes, without waking all who wait for their results.
        self._changed, self._arrived = Condition(lock), Condition(lock)
        self._gathering = gathering or Gathering()
        self._waiting: deque[_Request] = deque()
        self._led = False
        self.forwards = self.served = 0

    @property
    def waiting(self) -> int:
        """Requests that no forward has taken yet."""
        return len(self._waiting)

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the processor, for forwards that are none of a batch's steps."""
        return self._processor()

    def followed(
        self, batch: BranchBatch, hooks: Sequence[Hook] = (), sequel: Sequel[Any] | None = None
    ) -> tuple[Tensor, Any]:
        """What is pending of a batch, ``(R, V)``, and what is made of it, perhaps for several batches at once.

        The logits equal those that the batch gives alone, up to sums in another order.
        """
        engine = batch.model.engine
        if engine is not None and not engine.computes_here:
            # Nobody has to wait for a forward that another computer runs.
            with attached(engine, hooks):
                logits = batch.logits()
            return logits, None if sequel is None else sequel.alone(logits)
        request = _Request(batch, tuple(hooks), sequel)
        try:
            with self._changed:
                self._waiting.append(request)
                self._gathering.asked(batch, request.asked)
                self._arrived.notify()
                self._changed.wait_for(lambda: request.done or not self._led)
                if leads := not request.done:
                    self._led = True
            if leads:
                self._lead(request)
        except BaseException:
            with self._changed:
                if request in self._waiting:
                    self._waiting.remove(request)
                self._changed.notify_all()
            raise
        if request.error is not None:
            raise request.error
        logits = request.found[0]
        if request.finish is not None:
            return logits, request.finish()
        return logits, None if sequel is None else sequel.alone(logits)

    def _lead(self, request: _Request) -> None:
        """Run forwards, oldest requests first, until one's own is done; somebody else does afterwards."""
        try:
            while not request.done:
                self._gather()
                # The processor is given back after each forward, so that others who wait get their turn.
                with self._processor():
                    self._serve(self._taken())
        finally:
            with self._changed:
                self._led = False
                self._changed.notify_all()

    def _gather(self) -> None:
        """Wait a moment for those of the newest forward who have not asked again."""
        with self._changed:
            left = self._gathering.left(perf_counter())
            if left > 0:
                self._arrived.wait_for(self._gathered, left)

    def _gathered(self) -> bool:
        first = self._waiting[0]
        batches = [request.batch for request in self._waiting]
        if not first.joins or sum(batch.row_count for batch in batches) >= self._most_rows:
            return True
        return self._gathering.complete(batches, first.batch.model.module)

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
        # A prompt takes longer than a step and says nothing of who will be back when.
        steps = [request.batch for request in taken if request.joins]
        for request in taken:
            request.batch.waited = began - request.asked
        try:
            if len(taken) == 1 or not self._served_together(taken):
                for request in taken:
                    try:
                        with attached(request.batch.model.module, request.hooks):
                            request.found.append(request.batch.opened().logits())
                    except Exception as error:
                        # The frames of a failed forward hold its tensors, and those who wait may need their memory.
                        clear_frames(error.__traceback__)
                        request.error = error
                    self.forwards += 1
        finally:
            with self._changed:
                # Whoever was interrupted here has left others' requests unanswered; they keep their places.
                self._waiting.extendleft(request for request in reversed(taken) if not request.done)
                self.served += sum(request.done for request in taken)
                if steps:
                    self._gathering.served(steps, began, perf_counter())
                self._changed.notify_all()

    def _served_together(self, taken: list[_Request]) -> bool:
        try:
            logits_of_all = joint_logits([request.batch for request in taken])
        except Exception:
            # Whatever it was, it is raised again by the batch whose it is, when that is run alone.
            return False
        self.forwards += 1
        _make_together(taken, logits_of_all)
        for request, logits in zip(taken, logits_of_all, strict=True):
            request.found.append(logits)
        return True


def _make_together(taken: Sequence[_Request], logits_of_all: Sequence[Tensor]) -> None:
    """Make at once what follows for those for whom it is the same; all others make it in their own threads."""
    alike: dict[Hashable, list[tuple[_Request, Tensor]]] = {}
    for request, logits in zip(taken, logits_of_all, strict=True):
        if request.sequel is not None and (key := request.sequel.key) is not None:
            alike.setdefault(key, []).append((request, logits))
    for group in alike.values():
        sequels = [request.sequel for request, _ in group]
        if len(group) == 1 or sequels[0] is None:
            continue
        try:
            finishes = sequels[0].together([logits for _, logits in group], sequels)
        except Exception:
            # Whatever it was, it is raised again in the thread whose it is, when each is made alone.
            continue
        for (request, _), finish in zip(group, finishes, strict=True):
            request.finish = finish
