"""Requests to a server that computes a model's logits: few at a time, tried again, and given up when nobody waits."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import httpx

from coft_core.errors import EngineError
from coft_core.model.served import ServedModel

ATTEMPTS = 4
"""How often a request is sent at most."""
PAUSE = 0.5
"""Seconds before the second attempt; each further pause is twice as long."""
CHECK_SECONDS = 0.1
"""How often whoever waits for a server looks whether to go on waiting."""
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which a request is sent again: the server is starting, busy or has failed once."""
ABSENT = frozenset({404, 405, 501})
"""Answers of a server that has no such address."""
LONGEST_REFUSAL = 200
"""Characters of a refusal's own words that are shown."""

_CHECK: ContextVar[Callable[[], None]] = ContextVar("check", default=lambda: None)


class RefusalError(EngineError):
    """What was asked is nothing that the server gives."""


@contextmanager
def checking(check: Callable[[], None]) -> Iterator[None]:
    """Have whoever waits for a server in this block call something about ten times a second; raising ends the wait."""
    outer = _CHECK.get()

    def both() -> None:
        outer()
        check()

    token = _CHECK.set(both)
    try:
        yield
    finally:
        _CHECK.reset(token)


class ServerClient:
    """Sends JSON to a model's server from any thread; requests run in an event loop of their own, and so can end."""

    def __init__(self, served: ServedModel) -> None:
        """Send nothing yet."""
        key, self._loop = served.key, asyncio.new_event_loop()
        http = httpx.AsyncClient(
            base_url=served.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            # Waiting for one of the few connections is nothing that the server could answer sooner.
            timeout=httpx.Timeout(served.timeout, pool=None),
            limits=httpx.Limits(max_connections=served.concurrency),
        )
        self._sender = _Sender(served.title, http, key)
        Thread(target=self._loop.run_forever, name=served.title, daemon=True).start()
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)

    def get(self, path: str) -> Any:
        """What the server answers to a GET; None where it has no such address."""
        return self._waited([("GET", path, None)])[0]

    def post(self, path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What it answers to several POSTs, in their order; None where it has no such address."""
        return self._waited([("POST", path, body) for body in bodies])

    def _waited(self, requests: Sequence[tuple[str, str, Mapping[str, Any] | None]]) -> list[Any]:
        found = asyncio.run_coroutine_threadsafe(self._sender.all(requests), self._loop)
        check = _CHECK.get()
        try:
            while True:
                with suppress(TimeoutError):
                    return found.result(CHECK_SECONDS)
                check()
        finally:
            # Whoever no longer waits takes the request back, so that the server need not go on with it.
            found.cancel()


@dataclass(frozen=True, slots=True)
class _Sender:
    """What runs in the event loop."""

    name: str
    http: httpx.AsyncClient
    key: str | None = field(repr=False)

    async def all(self, requests: Sequence[tuple[str, str, Mapping[str, Any] | None]]) -> list[Any]:
        """The answers to several requests, in their order; the first one that fails ends the others."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.answer(*request)) for request in requests]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """The answer to one request, which is sent again while what keeps it from being answered may pass."""
        for attempt in range(ATTEMPTS - 1):
            with suppress(httpx.TransportError):
                answer = await self.http.request(method, path, json=body)
                if answer.status_code not in TRANSIENT:
                    return self._read(answer)
            await asyncio.sleep(PAUSE * 2**attempt)
        try:
            return self._read(await self.http.request(method, path, json=body))
        except httpx.TransportError as error:
            raise EngineError(
                f"The server of {self.name!r} does not answer ({type(error).__name__} after {ATTEMPTS} attempts); see "
                "that it runs, and go on: what is done so far is kept."
            ) from error

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code in ABSENT:
            return None
        if answer.is_success:
            with suppress(ValueError):
                return answer.json()
        said = " ".join(answer.text.split())
        said = (said.replace(self.key, "…") if self.key else said)[:LONGEST_REFUSAL]
        if answer.status_code in TRANSIENT:
            raise EngineError(
                f"The server of {self.name!r} has failed {ATTEMPTS} times ({answer.status_code}: {said}); see its log, "
                "and go on: what is done so far is kept."
            )
        raise RefusalError(
            f"The server of {self.name!r} does not give what was asked ({answer.status_code}: {said}); see that its "
            "address, kind, model and key are right."
        )
