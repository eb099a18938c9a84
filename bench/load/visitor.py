"""A visitor without a screen: asks for pages and triggers their events as a browser does, and takes the time of each.

It reads what a page consists of from the page itself, joins the queue for an event, and reads the stream until the
answer is whole. Every visitor comes from an address of her own, since the server shares its queue out by address.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE = 120.0
"""Seconds for which an answer is waited for."""
CONFIG = "window.gradio_config = "


class RequestError(Exception):
    """A request was refused or failed; the message says which and what was answered."""


class Times:
    """What requests took, by their kind, of all visitors."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.server: defaultdict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []

    def timed(self, kind: str, request: Callable[[], Any]) -> Any:
        """Make a request, and note what it took; of one that fails only the error is noted."""
        begun = time.perf_counter()
        try:
            answer = request()
        except (httpx.HTTPError, RequestError) as error:
            self.errors.append(f"{kind}: {type(error).__name__}: {error}"[:300])
            raise RequestError(f"{kind}: {error}") from error
        took = time.perf_counter() - begun
        self.seconds[kind].append(took)
        self.server[kind].append(took if isinstance(answer, httpx.Response) else answer.seconds)
        return answer


@dataclass(frozen=True, slots=True)
class Answer:
    """What an event was answered."""

    parts: list[Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class Opened:
    """A page that a visitor has opened."""

    loads: list[int]
    events: dict[tuple[str, str], int]
    functions: dict[int, dict[str, Any]]
    values: dict[int, Any]
    number: str = field(default_factory=lambda: secrets.token_hex(6))


class Visitor:
    """Somebody with a browser."""

    def __init__(self, url: str, times: Times, number: int = 0) -> None:
        """Open nothing yet."""
        self.times = times
        address = f"127.0.{1 + number // 250}.{1 + number % 250}"
        transport = httpx.HTTPTransport(local_address=address)
        self._client = httpx.Client(base_url=url, transport=transport, timeout=PATIENCE, follow_redirects=True)
        self._nonce = 0

    def close(self) -> None:
        """Close her connections."""
        self._client.close()

    def open(self, path: str, query: str = "") -> Opened:
        """Ask for a page; its events are triggered one by one with :meth:`load` and :meth:`trigger`."""
        text = self.times.timed(f"page /{path}", lambda: self._get(f"/{path}{query}")).text
        return page_of(json.JSONDecoder().raw_decode(text, text.index(CONFIG) + len(CONFIG))[0], path)

    def load(self, kind: str, page: Opened) -> None:
        """Trigger what comes with opening a page."""
        for number in page.loads:
            self._event(f"{kind} {page.functions[number]['api_name'].rstrip('_0123456789')}", page, number, None, None)

    def trigger(self, kind: str, page: Opened, component: str, name: str, /, **data: Any) -> list[Any]:
        """Trigger an event of a component with data, as its script does, and return the answer's parts."""
        number = page.events[component, name]
        self._nonce += 1
        source = next(key for key, event in page.functions[number]["targets"] if event == name)
        return self._event(kind, page, number, {**data, "nonce": self._nonce}, source)

    def get(self, kind: str, path: str) -> httpx.Response:
        """Ask for an address."""
        answer: httpx.Response = self.times.timed(kind, lambda: self._get(path))
        return answer

    def _get(self, path: str) -> httpx.Response:
        return self._client.get(path).raise_for_status()

    def _event(self, kind: str, page: Opened, number: int, data: Any, source: int | None) -> list[Any]:
        function = page.functions[number]
        asked = {
            "data": [page.values.get(key) for key in function["inputs"]],
            "event_data": data,
            "fn_index": number,
            "trigger_id": source,
            "session_hash": page.number,
        }
        parts: list[Any] = self.times.timed(kind, lambda: self._answer(asked)).parts
        for key, part in zip(function["outputs"], parts, strict=False):
            # An update names what of a component changes; only its value matters here.
            if not isinstance(part, Mapping) or part.get("__type__") != "update":
                page.values[key] = part
            elif "value" in part:
                page.values[key] = part["value"]
        return parts

    def _answer(self, asked: Mapping[str, Any]) -> Answer:
        joined = self._client.post("/gradio_api/queue/join", json=asked).raise_for_status().json()["event_id"]
        last: list[Any] = []
        with self._client.stream(
            "GET", "/gradio_api/queue/data", params={"session_hash": asked["session_hash"]}
        ) as stream:
            stream.raise_for_status()
            for line in stream.iter_lines():
                message = json.loads(line[len("data:") :]) if line.startswith("data:") else {}
                if message.get("event_id") != joined:
                    continue
                output = message.get("output") or {}
                if message["msg"] == "process_generating" and output.get("data"):
                    last = output["data"]
                if message["msg"] == "process_completed":
                    if not message.get("success"):
                        raise RequestError(f"refused: {output.get('error')}")
                    # A generator's last message has no data but what came before.
                    return Answer(output.get("data") or last, float(output["duration"]))
        raise RequestError("the stream ended without an answer")


def page_of(config: Mapping[str, Any], path: str) -> Opened:
    """What a page consists of, from the configuration that Gradio's pages carry."""
    within = config["page"].get(path)
    numbers = {one["id"] for one in config["dependencies"]} if within is None else set(within["dependencies"])
    functions = {one["id"]: one for one in config["dependencies"] if one["id"] in numbers}
    named = {one["id"]: one["props"].get("elem_id") for one in config["components"]}
    asked = {number: one for number, one in functions.items() if one["backend_fn"]}
    return Opened(
        loads=[number for number, one in asked.items() if any(event == "load" for _, event in one["targets"])],
        events={
            (named[key], event): number
            for number, one in asked.items()
            for key, event in one["targets"]
            if named.get(key)
        },
        functions=asked,
        # A text field that holds nothing has no value in the configuration, and is empty in a browser.
        values={
            one["id"]: one["props"].get("value", "" if one["type"] == "textbox" else None)
            for one in config["components"]
        },
    )
