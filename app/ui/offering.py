"""How an endpoint is offered to programs: its docstring becomes what clients, agents and the documentation read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.components.api_component import Api
from gradio.events import api

AT_ONCE = 4
"""Calls of one endpoint that run beside each other."""

ARGUMENTS, RETURNS = "Args:", "Returns:"


@dataclass(frozen=True, slots=True)
class EndpointText:
    """What the docstring of an endpoint says.

    Attributes:
        description: What it does, paragraphs joined.
        arguments: (name, meaning) of each argument, in the docstring's order.
        returns: What it returns.
    """

    description: str
    arguments: tuple[tuple[str, str], ...]
    returns: str

    @property
    def summary(self) -> str:
        """Description and result in one text, for a program that shows no more than that."""
        return " ".join(part for part in (self.description, self.returns and f"{RETURNS} {self.returns}") if part)


def text_of(method: Callable[..., Any]) -> EndpointText:
    """The docstring of an endpoint, taken apart."""
    parts: dict[str, list[str]] = {"": [], ARGUMENTS: [], RETURNS: []}
    part = ""
    for line in (inspect.getdoc(method) or "").splitlines():
        if line in (ARGUMENTS, RETURNS):
            part = line
        elif line.strip():
            parts[part].append(line)
    return EndpointText(_joined(parts[""]), _arguments(parts[ARGUMENTS]), _joined(parts[RETURNS]))


def described(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with a docstring as Gradio reads it for agents: each argument, and what is returned, on one line."""
    text = text_of(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    lines = [text.description, "", ARGUMENTS, *(f"    {name}: {meaning}" for name, meaning in text.arguments)]
    call.__doc__ = "\n".join([*lines, "", RETURNS, f"    {text.returns}"])
    return call


def offer(method: Callable[..., Any], at_once: int = AT_ONCE) -> None:
    """Offer a method whose arguments are plain JSON, under its own name."""
    api(
        described(method), api_name=method.__name__, api_description=text_of(method).summary, concurrency_limit=at_once
    )  # fmt: skip


def offer_with_files(method: Callable[..., Any], inputs: Sequence[Component], output: Component) -> None:
    """Offer a method that takes or returns files, which need components; these must not be visible."""
    gr.Button().click(
        described(method), list(inputs), output, api_name=method.__name__, api_description=text_of(method).summary,
        concurrency_limit=AT_ONCE,
    )  # fmt: skip


def optional_object(label: str) -> Component:
    """A component for a JSON object that may be left out; the schema of Gradio's own JSON component is not valid."""
    schema: dict[str, Any] = {"oneOf": [{"type": "null"}, {"type": "object", "additionalProperties": {}}]}
    return Api(None, schema, label)


def _arguments(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """An argument begins where the first one does; deeper lines go on with it."""
    depth = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    found: list[tuple[str, str]] = []
    for line in lines:
        if len(line) - len(line.lstrip()) > depth and found:
            name, meaning = found[-1]
            found[-1] = (name, f"{meaning} {line.strip()}")
        else:
            name, _, meaning = line.strip().partition(":")
            found.append((name, meaning.strip()))
    return tuple(found)


def _joined(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)
