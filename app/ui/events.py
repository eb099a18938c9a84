"""How the events of all pages run, what a reply carries, and how the browser learns how an event ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 8}
"""What all events have in common: errors and changes of state pass only through the queue."""

LATEST: dict[str, Any] = {**EVENT, "trigger_mode": "always_last"}
"""For what follows the newest of many changes: one that comes while another is at work is done afterwards, not dropped.

Not for events that carry data: the one that waits is given the data of the one before it.
"""

MULTIPLE: dict[str, Any] = {**EVENT, "trigger_mode": "multiple"}
"""For events that carry data: each is handled, whatever is still at work."""

Reply = dict[str, object]
"""What a handler answers to an event of the browser."""


@dataclass(frozen=True, slots=True)
class On:
    """What answers one event of a component of the browser.

    Attributes:
        handler: The function that answers.
        outputs: What its answer goes to.
        inputs: The components whose values it takes.
        settings: How the event runs.
    """

    handler: Callable[..., Any]
    outputs: Component | Sequence[Component] | None
    inputs: Sequence[Component] | None = None
    settings: Mapping[str, Any] | None = None


def reply(event: gr.EventData, message: Reply) -> Reply:
    """Give a message its request's number: the page tells replies apart by it."""
    return {**message, "nonce": event.nonce, "at": time.monotonic_ns()}


def wire(
    source: gr.HTML, events: Mapping[str, On], settings: Mapping[str, Any] = MULTIPLE, prefix: str = ""
) -> dict[str, Dependency]:
    """Connect the events that the scripts of a component trigger; the browser is told of each one that fails.

    Args:
        source: The component.
        events: What answers, by the event's name.
        settings: How those run that say nothing of it.
        prefix: Stands before the names that the browser hears of failures by, where two components share a name.

    Returns:
        The events by their names.
    """
    made = {
        name: getattr(source, name)(on.handler, on.inputs, on.outputs, **(on.settings or settings))
        for name, on in events.items()
    }
    for name, event in made.items():
        told_of_failure(event, prefix + name)
    return made


def told_of_failure(event: Dependency, name: str) -> None:
    """Let the browser know by name when an event fails; scripts say with ``coft.onFailure`` what follows."""
    event.failure(None, None, None, js=f"() => coft.failed('{name}')")


def downloaded(event: Dependency, name: str, then: str = "") -> None:
    """Let the browser save the file that an event gave to a download button.

    Args:
        event: What wrote the file.
        name: The button's ``elem_id``.
        then: A statement that the browser runs afterwards.
    """
    event.success(None, None, None, js=f"() => {{ coft.download('{name}'); {then} }}")
