"""Where long jobs run their rows: in this process, or shared out among workers, with the same results in one order.

A job gives its rows, batches or chains as work without arguments, and takes the results in the order in which it gave
the work. Workers write nothing to the store: whoever asked stores what comes back. A worker that is lost has its work
done once more by another one.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.jobs import JobContext
from app.shared.model_host import ModelHost
from app.shared.travelling import packed, program_digest, unpacked
from app.shared.wiring import Services
from coft_core.model.forced import Room

Result = TypeVar("Result")

AHEAD = 3
"""Pieces of work a worker that may be finished and wait for an earlier one, whose result is stored before theirs."""

LOOKING_SECONDS = 0.2
"""How often whoever waits for results looks whether the job was cancelled."""

BEGINNING_SECONDS = 300.0
"""Time in which one worker at least must begin."""

FOR_WORKERS = "waiting for workers"

LOST_TWICE = (
    "Two workers were lost one after the other with the same piece of work; what is stored is kept, so resume when the "
    "cluster has enough memory and stays up."
)
NONE_LEFT = "No worker is left, and none began within {seconds:.0f} seconds; look at the cluster, and resume then."
NONE_BEGAN = "No worker could begin ({why}); look at the cluster, and start again then."
OTHER_PROGRAM = (
    "A worker has another version of this program, or of torch, so that its results may differ in their last digits; "
    "install the same on every computer of the cluster."
)


class WorkerLost(Exception):  # noqa: N818 - the loss is dealt with
    """A worker has ended, or cannot be reached, with what it was given."""


class Worker(Protocol):
    """A process somewhere that does packed work, one piece at a time."""

    def greeted(self) -> Future[Any]:
        """The digest of its program, once it has begun."""

    def given(self, data: bytes) -> Future[Any]:
        """What it makes of packed work."""

    def result(self, future: Future[Any]) -> Any:
        """The result of one of its futures that is done."""

    def dismiss(self) -> None:
        """End it at once, whatever it does."""


class Workers(Protocol):
    """Does work at one place or at several."""

    @property
    def elsewhere(self) -> bool:
        """Whether work leaves this process."""

    def each(self, works: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """Results in the order of the work."""

    def room(self, room: Room) -> Room:
        """A room whose batches are run by these workers; the caller holds a turn."""


class ThisProcess:
    """All work is done here, one piece after the other, each in a turn of its own."""

    elsewhere = False

    def __init__(self, host: ModelHost) -> None:
        self._turn = host.turn

    def each(self, works: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """See :class:`Workers`."""
        for work in works:
            with self._turn():
                result = work()
            yield result

    def room(self, room: Room) -> Room:
        """The room itself."""
        return room


@dataclass(frozen=True, slots=True)
class _Task:
    """A piece of work under way or still to do."""

    place: int
    data: bytes
    lost: bool = False


class Crew:
    """Workers of one job; they are dismissed at the end of its block, however it ends."""

    elsewhere = True

    def __init__(
        self,
        hire: Callable[[], Worker],
        count: int,
        check: Callable[[], None],
        aside: Callable[[], AbstractContextManager[None]],
        program: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Hire nobody yet."""
        self._hire, self.count, self._check, self._aside = hire, count, check, aside
        self._program, self._clock = program, clock
        self._begun_at = -math.inf
        self._hired: list[Worker] = []
        self._idle: deque[Worker] = deque()
        self._beginning: dict[Future[Any], Worker] = {}
        self._leaving: dict[Future[Any], Worker] = {}

    def __enter__(self) -> Self:
        """Hire all."""
        with ExitStack() as undo:
            undo.callback(self.dismiss)
            for _ in range(self.count):
                self._hire_one()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()

    def dismiss(self) -> None:
        """End all workers."""
        hired, self._hired = self._hired, []
        for worker in hired:
            worker.dismiss()

    def each(self, works: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """See :class:`Workers`."""
        return _Round(self, works).results()

    def room(self, room: Room) -> Room:
        """A room whose batches these workers run."""
        return CrewRoom(room, self, self._aside)

    # What a round of work asks of the crew.

    def next_idle(self) -> Worker | None:
        """A worker without work; None where all have some, or have not begun."""
        return self._idle.popleft() if self._idle else None

    def rest(self, worker: Worker) -> None:
        """A worker has ended its work, or was never given any."""
        self._idle.append(worker)

    def lose(self, worker: Worker) -> None:
        """A worker is lost, and another one hired, which is given nothing before it has begun."""
        self._drop(worker)
        self._hire_one()

    def leave(self, under_way: Mapping[Future[Any], Worker]) -> None:
        """Nobody waits for this work any more."""
        self._leaving |= under_way

    def await_any(self, under_way: Iterable[Future[Any]]) -> list[Future[Any]]:
        """Wait a moment for work; futures that are done. Workers that have begun meanwhile are idle afterwards."""
        self._check()
        done, _ = wait([*under_way, *self._beginning, *self._leaving], LOOKING_SECONDS, FIRST_COMPLETED)
        for future in [future for future in self._beginning if future in done]:
            self._begin(self._beginning.pop(future), future)
        for future in [future for future in self._leaving if future in done]:
            self._end(self._leaving.pop(future), future)
        if len(self._beginning) == len(self._hired) and self._clock() - self._begun_at > BEGINNING_SECONDS:
            raise ServiceError(NONE_LEFT.format(seconds=BEGINNING_SECONDS))
        return [future for future in under_way if future in done]

    def _hire_one(self) -> None:
        worker = self._hire()
        self._hired.append(worker)
        self._beginning[worker.greeted()] = worker
        self._begun_at = self._clock()

    def _begin(self, worker: Worker, future: Future[Any]) -> None:
        try:
            program = worker.result(future)
        except WorkerLost as error:
            self._drop(worker)
            if not self._hired:
                raise ServiceError(NONE_BEGAN.format(why=" ".join(str(error).split())[:300])) from error
            return
        if self._program and program != self._program:
            raise ServiceError(OTHER_PROGRAM)
        self.rest(worker)

    def _end(self, worker: Worker, future: Future[Any]) -> None:
        try:
            worker.result(future)
        except WorkerLost:
            self.lose(worker)
        else:
            self.rest(worker)

    def _drop(self, worker: Worker) -> None:
        worker.dismiss()
        self._hired = [other for other in self._hired if other is not worker]


class _Round:
    """One sequence of work, shared out."""

    def __init__(self, crew: Crew, works: Iterable[Callable[[], Any]]) -> None:
        self._crew, self._works = crew, iter(works)
        self._again: deque[_Task] = deque()
        self._under_way: dict[Future[Any], tuple[Worker, _Task]] = {}
        self._finished: dict[int, bytes] = {}
        self._placed, self._following, self._exhausted = 0, 0, False

    def results(self) -> Iterator[Any]:
        """Results in order."""
        try:
            yield from self._in_order()
        finally:
            # Where a round ends early its workers are at work still; they are idle when they have ended it.
            self._crew.leave({future: worker for future, (worker, _) in self._under_way.items()})

    def _in_order(self) -> Iterator[Any]:
        while True:
            self._share_out()
            while self._following in self._finished:
                answer = self._finished.pop(self._following)
                self._following += 1
                yield unpacked(answer)
                self._share_out()
            if not self._under_way and not self._again and self._exhausted:
                return
            for future in self._crew.await_any(tuple(self._under_way)):
                self._take(future)

    def _share_out(self) -> None:
        while (worker := self._crew.next_idle()) is not None:
            task = self._next()
            if task is None:
                self._crew.rest(worker)
                return
            self._under_way[worker.given(task.data)] = worker, task

    def _next(self) -> _Task | None:
        """What is to be done next; None where nothing is, or too many results wait for an earlier one."""
        if self._again:
            return self._again.popleft()
        if self._exhausted or self._placed - self._following >= AHEAD * self._crew.count:
            return None
        work = next(self._works, None)
        if work is None:
            self._exhausted = True
            return None
        self._placed += 1
        return _Task(self._placed - 1, packed(work))

    def _take(self, future: Future[Any]) -> None:
        worker, task = self._under_way.pop(future)
        try:
            self._finished[task.place] = worker.result(future)
        except WorkerLost as error:
            self._crew.lose(worker)
            if task.lost:
                raise ServiceError(LOST_TWICE) from error
            self._again.append(_Task(task.place, task.data, lost=True))
            return
        self._crew.rest(worker)


class CrewRoom:
    """A room for work that holds a turn: short batches run here, many at a time are shared out."""

    def __init__(self, room: Room, crew: Crew, aside: Callable[[], AbstractContextManager[None]]) -> None:
        self._room, self._crew, self._aside = room, crew, aside

    @property
    def most(self) -> int | None:
        """As in one process, so that batches are the same."""
        return self._room.most

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Run a batch here."""
        return self._room.run(size, work)

    def share_out(self, works: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """Results of batches that workers run, in order; meanwhile others have the device."""
        results = self._crew.each(works)
        while True:
            with self._aside():
                result = next(results, self)
            if result is self:
                return
            yield result


Hire = Callable[[], Worker]


def _on_ray(settings: Settings) -> AbstractContextManager[Hire]:
    from app.shared.ray_workers import cluster

    return cluster(settings)


class WorkerPool:
    """Gives a job its workers, as the settings say."""

    def __init__(
        self,
        settings: Settings,
        host: ModelHost,
        cluster: Callable[[Settings], AbstractContextManager[Hire]] = _on_ray,
    ) -> None:
        """Connect to nothing yet; ``cluster`` is a connection to where workers are hired."""
        self._settings, self._host, self._cluster = settings, host, cluster
        self._connecting, self._jobs = Lock(), 0
        self._connection = ExitStack()
        self._hire: Hire | None = None

    @classmethod
    def wired(cls, services: Services) -> WorkerPool:
        """As the settings say."""
        return cls(services.settings, services[ModelHost])

    @contextmanager
    def hired(self, context: JobContext) -> Iterator[Workers]:
        """Workers for one job; this process where the settings name no others."""
        if not self._settings.ray_address:
            yield ThisProcess(self._host)
            return
        context.progress(context.state[0], FOR_WORKERS)
        count, aside = self._settings.ray_workers, self._host.aside
        with (
            self._connected() as hire,
            Crew(hire, count, context.check_cancelled, aside, program_digest()) as crew,
        ):
            yield crew

    @contextmanager
    def _connected(self) -> Iterator[Hire]:
        """A connection to the cluster, which all jobs share that run at the time."""
        with self._connecting:
            if self._hire is None:
                self._hire = self._connection.enter_context(self._cluster(self._settings))
            hire = self._hire
            self._jobs += 1
        try:
            yield hire
        finally:
            with self._connecting:
                self._jobs -= 1
                if not self._jobs:
                    self._hire = None
                    self._connection.close()
