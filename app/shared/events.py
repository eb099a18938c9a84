"""How pages answer the events of the browser, and how a refusal is shown."""

from __future__ import annotations

import functools
import html
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import gradio as gr
from gradio.components import Component
from gradio.context import LocalContext
from gradio.events import Dependency
from starlette.requests import HTTPConnection, cookie_parser

from app.shared.errors import USER_ERRORS
from app.shared.needs import Need, needs
from app.shared.visitors import Visitor, answering, visitor_asking, visitor_of

P = ParamSpec("P")
T = TypeVar("T")

TITLE = "This could not be done"


def shown(handler: Callable[P, T]) -> Callable[P, T]:
    """Turn domain errors of a handler into one shown sentence; what it begins belongs to who has asked."""

    @functools.wraps(handler)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with answering(_asking()):
            try:
                return handler(*args, **kwargs)
            except USER_ERRORS as error:
                raise message(str(error)) from error

    return wrapped


def shown_to(need: Need) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """:func:`shown` for a handler that takes another role than working on its page."""
    return lambda handler: needs(need)(shown(handler))


def _asking() -> Visitor | None:
    """Whose page has triggered the event; None where none has."""
    return requesting_visitor(LocalContext.request.get(None))


def requesting_visitor(request: gr.Request | None) -> Visitor | None:
    """Who has sent a request to Gradio; None where no page has."""
    if request is None:
        return None
    asking = getattr(request, "request", None)
    if isinstance(asking, HTTPConnection):
        return visitor_asking(asking)
    return visitor_of(cookie_parser(request.headers.get("cookie") or ""))


def shown_stream(handler: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """:func:`shown` for a generator, whose errors appear while it is consumed."""

    @functools.wraps(handler)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from handler(*args, **kwargs)
        except USER_ERRORS as error:
            raise message(str(error)) from error

    return wrapped


def or_refusal(call: Callable[[], T]) -> T | str:
    """What a call gives, or the sentence that refuses it, for a page that shows several answers side by side."""
    try:
        return call()
    except USER_ERRORS as error:
        return str(error)


def or_told(call: Callable[[], T]) -> T | None:
    """What a call gives, or None once its refusal is shown on the page as one sentence.

    For events that follow the newest of many changes: when such an event fails, Gradio forgets the change that waits
    behind it, and the page would go on showing what was true before.
    """
    try:
        return call()
    except USER_ERRORS as error:
        told(error)
        return None


def told(error: Exception) -> None:
    """Put a refusal on the page as one sentence, until its reader closes it, without failing the event."""
    gr.Warning(html.escape(str(error), quote=False), title=TITLE, duration=None)


def message(said: str) -> gr.Error:
    """A refusal as Gradio shows it."""
    return gr.Error(html.escape(said, quote=False), title=TITLE, duration=None, print_exception=False)


EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 16}
"""What all events have in common: errors and changes of state pass only through the queue."""

LATEST: dict[str, Any] = {**EVENT, "trigger_mode": "always_last"}
"""For what follows the newest of many changes: one that comes while another is at work is done afterwards, not dropped.

Not for events that carry data: the one that waits is given the data of the one before it.
"""

MULTIPLE: dict[str, Any] = {**EVENT, "trigger_mode": "multiple"}
"""For events that carry data: each is handled, whatever is still at work."""

GENERATING: dict[str, Any] = {**EVENT, "trigger_mode": "once", "concurrency_limit": 8}
"""For what generates, and how many reviewers may at once; the model itself takes them in turn."""

Reply = dict[str, object]
"""What a handler answers to an event of the browser."""


@dataclass(frozen=True, slots=True)
class On:
    """What answers one event of a component of the browser, from which values and to where, and how it runs."""

    handler: Callable[..., Any]
    outputs: Component | Sequence[Component] | None
    inputs: Sequence[Component] | None = None
    settings: Mapping[str, Any] | None = None


def reply(event: gr.EventData, message: Mapping[str, object]) -> Reply:
    """Give a message its request's number: the page tells replies apart by it."""
    return {**message, "nonce": event.nonce, "at": time.monotonic_ns()}


def packed(event: gr.EventData, message: Reply) -> str:
    """:func:`reply` as text: a value of many parts is compared and copied part by part on its way to the browser."""
    return json.dumps(reply(event, message), ensure_ascii=False, separators=(",", ":"))


def wire(
    source: gr.HTML, events: Mapping[str, On], settings: Mapping[str, Any] = MULTIPLE, prefix: str = ""
) -> dict[str, Dependency]:
    """Connect the events that the scripts of a component trigger; the browser is told of each one that fails."""
    listening = {
        name: getattr(source, name)(on.handler, on.inputs, on.outputs, **(on.settings or settings))
        for name, on in events.items()
    }
    for name, event in listening.items():
        told_of_failure(event, prefix + name)
    return listening


def told_of_failure(event: Dependency, name: str) -> None:
    """Let the browser know by name when an event fails; scripts say with ``coft.onFailure`` what follows."""
    event.failure(None, None, None, js=f"() => coft.failed('{name}')")


def downloaded(event: Dependency, name: str, then: str = "") -> None:
    """Let the browser save the file that an event gave to the button of this id, and then run a statement."""
    event.success(None, None, None, js=f"() => {{ coft.download('{name}'); {then} }}")
