"""Where long jobs run their rows: in this process, or shared out among workers, with the same results in one order.

A job gives its rows, batches or chains as work without arguments, and takes the results in the order in which it gave
the work. Workers write nothing to the store: whoever asked stores what comes back. A worker that is lost has its work
done once more by another one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from queue import SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from app.hosting.model_host import ModelHost
from app.jobs.service import JobContext
from app.jobs.travelling import packed, program_digest, unpacked
from app.settings import Settings
from app.shared.errors import ServiceError
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
    """A process somewhere that does packed work, one piece at a time; what waits for it ends where it is dismissed."""

    def greeted(self) -> str:
        """The digest of its program, once it has begun."""

    def done(self, data: bytes) -> bytes:
        """What it makes of packed work."""

    def dismiss(self) -> None:
        """End it at once, whatever it does."""


class ThisProcess:
    """All work is done here, one piece after the other, each in a turn of its own."""

    elsewhere = False
    """Whether work leaves this process."""

    def __init__(self, host: ModelHost) -> None:
        self._turn = host.turn

    def each(self, works: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """Results in the order of the work."""
        for work in works:
            with self._turn():
                result = work()
            yield result

    def room(self, room: Room) -> Room:
        """The room whose batches are run here; the caller holds a turn."""
        return room


class Crew:
    """Workers of one job, each waited for by a thread; they are dismissed at the end of its block, however it ends."""

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
        self._hire, self._count, self._check, self._aside = hire, count, check, aside
        self._program, self._clock = program, clock
        self._hired_at = clock()
        self._lock, self._dismissed = Lock(), False
        self._hired: set[Worker] = set()
        self._begun: set[Worker] = set()
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        self._refusal: ServiceError | None = None
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="worker")

    def __enter__(self) -> Self:
        """Hire all."""
        with ExitStack() as undo:
            undo.callback(self.dismiss)
            for _ in range(self._count):
                self._hire_one()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()

    def dismiss(self) -> None:
        """End all workers."""
        with self._lock:
            self._dismissed = True
        for worker in self._hired:
            worker.dismiss()
        for _ in range(self._count):
            self._idle.put(None)
        self._threads.shutdown(cancel_futures=True)

    def each(self, works: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """Results in the order of the work."""
        works, ahead = iter(works), deque[Future[bytes]]()
        try:
            while True:
                while len(ahead) < AHEAD * self._count and (work := next(works, None)) is not None:
                    ahead.append(self._threads.submit(self._done, packed(work)))
                if not ahead:
                    return
                yield unpacked(self._awaited(ahead.popleft()))
        finally:
            # Where a round ends early its workers are at work still; they are idle when they have ended it.
            for future in ahead:
                future.cancel()

    def room(self, room: Room) -> Room:
        """A room whose batches these workers run."""
        return CrewRoom(room, self, self._aside)

    def _awaited(self, future: Future[bytes]) -> bytes:
        while True:
            self._check()
            with suppress(TimeoutError):
                return future.result(LOOKING_SECONDS)
            if self._refusal is not None:
                raise self._refusal
            if not self._begun and self._clock() - self._hired_at > BEGINNING_SECONDS:
                raise ServiceError(NONE_LEFT.format(seconds=BEGINNING_SECONDS))

    def _hire_one(self) -> None:
        with self._lock:
            if self._dismissed:
                return
            worker = self._hire()
            self._hired.add(worker)
            self._hired_at = self._clock()
        Thread(target=self._begin, args=(worker,), daemon=True).start()

    def _begin(self, worker: Worker) -> None:
        try:
            program = worker.greeted()
        except WorkerLost as error:
            self._drop(worker)
            if not self._hired:
                self._refusal = ServiceError(NONE_BEGAN.format(why=" ".join(str(error).split())[:300]))
            return
        if self._program and program != self._program:
            self._refusal = ServiceError(OTHER_PROGRAM)
            return
        self._begun.add(worker)
        self._idle.put(worker)

    def _done(self, data: bytes) -> bytes:
        """What a worker makes of packed work, or another one where the first is lost."""
        for lost in (False, True):
            worker = self._idle.get()
            if worker is None:
                raise WorkerLost("All workers are dismissed.")
            try:
                answer = worker.done(data)
            except WorkerLost as error:
                self._drop(worker)
                self._hire_one()
                if lost:
                    raise ServiceError(LOST_TWICE) from error
            else:
                self._idle.put(worker)
                return answer
        raise AssertionError("The second loss ends the work.")

    def _drop(self, worker: Worker) -> None:
        with self._lock:
            if not self._dismissed:
                worker.dismiss()
                self._hired.discard(worker)
                self._begun.discard(worker)


Workers = ThisProcess | Crew
"""Does work at one place or at several."""


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
    from app.jobs.ray_workers import cluster

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
