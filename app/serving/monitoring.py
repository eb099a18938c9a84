"""What whoever runs a server may ask of it: whether it lives, whether it can work, and how much it has done.

Nothing here names a prompt, a session or a visitor: numbers, times and kinds alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.shared.metrics import Metrics
from app.shared.wiring import Services
from db.database import Database
from db.jobs import JobsRepository
from db.types import StoreError

HEALTH, READY, METRICS = "/health", "/ready", "/metrics"


class Present(Collector):
    """What is so at the moment of asking: jobs by their state, and memory."""

    def __init__(self, jobs: JobsRepository, kept_bytes: Callable[[], int]) -> None:
        """Read these."""
        self._jobs = jobs
        self._kept_bytes = kept_bytes
        self._process = psutil.Process()

    def collect(self) -> Iterator[Metric]:
        """The figures."""
        jobs = GaugeMetricFamily("coft_jobs", "Jobs in the store, by their state", labels=["status"])
        for status, number in self._jobs.counts().items():
            jobs.add_metric([status], number)
        yield jobs
        resident = self._process.memory_info().rss
        yield GaugeMetricFamily("coft_resident_bytes", "Memory of the process", value=resident)
        yield GaugeMetricFamily("coft_keys_and_values_bytes", "Keys and values that are held", value=self._kept_bytes())


class Monitor:
    """Answers the three addresses."""

    def __init__(self, database: Database, metrics: Metrics, present: Present) -> None:
        self._database = database
        self._metrics = metrics
        self._ends = False
        metrics.registry.register(present)

    @classmethod
    def wired(cls, services: Services) -> Monitor:
        """Built from the program's services."""
        from app.hosting.model_host import ModelHost

        kept = Present(services[JobsRepository], lambda: services[ModelHost].memory.budget.size)
        return cls(services.database, services[Metrics], kept)

    @property
    def routes(self) -> list[Route]:
        """Where it answers."""
        return [Route(HEALTH, self.health), Route(READY, self.ready), Route(METRICS, self.metrics)]

    def end(self) -> None:
        """From now on nobody is to be sent here: the server comes to its end."""
        self._ends = True

    def health(self, request: Request) -> Response:
        """Whether the process answers at all; nothing else is looked at."""
        return _told(200, "ok")

    def ready(self, request: Request) -> Response:
        """Whether it can work: the store answers, and the server does not come to its end."""
        if self._ends:
            return _told(503, "The server comes to its end; ask another one.")
        try:
            with self._database.reading() as connection:
                connection.exec_driver_sql("SELECT 1")
        except StoreError as error:
            return _told(503, str(error))
        return _told(200, "ok")

    def metrics(self, request: Request) -> Response:
        """Counts, times and memory in the form of Prometheus."""
        try:
            text = generate_latest(self._metrics.registry)
        except StoreError as error:
            return PlainTextResponse(str(error), 503)
        return Response(text, media_type=CONTENT_TYPE_LATEST)


def _told(status: int, said: str) -> Response:
    return JSONResponse({"status": said}, status, headers={"Cache-Control": "no-store"})


class Measured:
    """Around the whole application: counts and times requests."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, tell: Callable[[str, str, int, float], None] | None = None
    ) -> None:
        """Wrap an application."""
        self._app, self._metrics, self._tell = app, metrics, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - begun
            self._metrics.request(scope["path"], status, seconds)
            if self._tell is not None:
                self._tell(scope["method"], scope["path"], status, seconds)
