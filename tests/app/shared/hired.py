"""Workers without a cluster: work travels as bytes to benches of this process, in whatever order a test wants."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from app.hosting.model_host import ModelHost
from app.jobs.travelling import Bench, program_digest, worker_settings
from app.jobs.workers import WorkerLost, WorkerPool
from app.settings import Settings
from app.shared.wiring import Services
from tests.conftest import load_tiny


class FakeWorker:
    """Does its work where it is given, unless it is told to be lost at its next piece of work."""

    def __init__(self, bench: Bench, dies_at: int | None = None, program: str = "") -> None:
        self.bench, self.dies_at, self.program = bench, dies_at, program or program_digest()
        self.given_work: list[bytes] = []
        self.dismissed = Event()

    def greeted(self) -> str:
        return self.program

    def done(self, data: bytes) -> bytes:
        self.given_work.append(data)
        if len(self.given_work) == self.dies_at:
            raise WorkerLost("killed")
        return self.bench.done(data)

    def dismiss(self) -> None:
        self.dismissed.set()


class Cluster:
    """Hires fake workers one after the other, each with the next of the pieces of work at which it is to be lost."""

    def __init__(self, *dies_at: int | None, loader: Callable[..., Any] = load_tiny) -> None:
        self.workers: list[FakeWorker] = []
        self.connections = 0
        self._dies_at, self._loader = iter(dies_at), loader

    @contextmanager
    def __call__(self, settings: Settings) -> Iterator[Callable[[], FakeWorker]]:
        self.connections += 1

        def hire() -> FakeWorker:
            bench = Bench(worker_settings(settings), loader=self._loader)
            self.workers.append(FakeWorker(bench, next(self._dies_at, None)))
            return self.workers[-1]

        yield hire
        self.connections -= 1

    def shared_out(self, wired: Services, count: int = 2) -> Services:
        """Services whose jobs are done by these workers; asked for before any service is built."""
        settings = wired.settings.model_copy(update={"ray_address": "here", "ray_workers": count})
        wired._built[WorkerPool] = WorkerPool(settings, wired[ModelHost], self)
        return wired
