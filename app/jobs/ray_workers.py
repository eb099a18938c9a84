"""Workers on Ray: processes of this computer or of others, each with its models loaded once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from app.jobs.travelling import Bench, worker_settings
from app.jobs.workers import WorkerLost
from app.settings import Settings
from app.shared.errors import ServiceError

MISSING = (
    "COFT_RAY_ADDRESS or --workers names a cluster and Ray is not installed; run pip install -r requirements-ray.txt, "
    "or leave it out to run in this process."
)
UNREACHABLE = (
    "The Ray cluster at {address!r} cannot be reached ({why}); see that it runs and that its version of Ray is this "
    "one, or unset COFT_RAY_ADDRESS."
)


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ServiceError(MISSING) from error
    return ray


class RayWorker:
    """An actor on Ray; see :class:`app.jobs.workers.Worker`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def greeted(self) -> str:
        """The digest of its program."""
        return self._answer(self._actor.greeted)

    def done(self, data: bytes) -> bytes:
        """What it makes of packed work."""
        return self._answer(self._actor.done, data)

    def dismiss(self) -> None:
        """Kill it."""
        _ray().kill(self._actor, no_restart=True)

    def _answer(self, method: Any, *given: bytes) -> Any:
        ray = _ray()
        try:
            return ray.get(method.remote(*given))
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            # Its process was killed, ran out of memory, or its computer is gone.
            raise WorkerLost(str(error)) from error


@contextmanager
def cluster(settings: Settings) -> Iterator[Callable[[], RayWorker]]:
    """A connection of this process to the cluster, and what begins a worker there; one that is there already stays."""
    ray = _ray()
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, settings)
    try:
        taken = {"num_cpus": settings.ray_threads, "num_gpus": settings.ray_gpus}
        kind = ray.remote(**taken, max_restarts=0, max_task_retries=0)(Bench)
        told = worker_settings(settings)
        yield lambda: RayWorker(kind.remote(told, settings.ray_threads))
    finally:
        if not connected:
            ray.shutdown()


def _connect(ray: Any, settings: Settings) -> None:
    options: dict[str, Any] = {"address": settings.ray_address, "log_to_driver": False}
    if settings.ray_address == "local":
        # Nothing of an audit's whereabouts leaves this computer because of a cluster that the program itself begins.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # A cluster of this computer alone needs room for the workers, whatever else its processors do.
        options |= {"num_cpus": settings.ray_workers * settings.ray_threads, "include_dashboard": False}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise ServiceError(UNREACHABLE.format(address=settings.ray_address, why=why)) from error
