"""The permission check around each function that Gradio calls for a page, a program or an agent.

A request that calls an event is checked before (:mod:`app.accounts.gate`). This check is made again where the function
is called, whichever way led there, and writes to the trail what came of it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.context import LocalContext
from starlette.requests import HTTPConnection

from app.accounts.forms import address_of
from app.accounts.permissions import event_need
from app.accounts.service import AccountService
from app.shared.events import TITLE
from app.shared.needs import Need
from app.shared.visitors import Visitor, answering, visitor_asking

_KEYS = ("session", "branch", "calibration", "batch", "evaluation", "tree", "job", "list", "id", "number", "action")
"""Under which names events and operations say what they are about; texts of prompts and notes are kept out."""
LONGEST_SUBJECT = 200


def need_of(function: Any) -> tuple[str, Need]:
    """What an event or operation of Gradio's is called in the trail, and what it takes."""
    public = function.api_visibility == "public"
    handler = getattr(function.fn, "__qualname__", "") if function.fn is not None else ""
    said = handler.rpartition(".")[2].replace("_", " ")
    name = str(function.api_name) if public else f"{function.page or 'audit'}: {said or 'event'}"
    return name, event_need(str(function.page or ""), function.fn, public)


@dataclass(frozen=True, slots=True)
class PageEvent:
    """An event of a page that somebody triggers."""

    within: str
    name: str
    native: bool
    need: Need


def page_events(blocks: gr.Blocks) -> Mapping[str, Sequence[PageEvent]]:
    """The events that the controls of each page trigger, by the page's address."""
    found: dict[str, list[PageEvent]] = {}
    for function in blocks.fns.values():
        if function.fn is None or function.api_visibility == "public":
            continue
        _, need = need_of(function)
        for number, name in function.targets:
            component = None if number is None else blocks.blocks.get(number)
            if isinstance(component, (gr.HTML, gr.File)) or name in ("click", "submit"):
                within = getattr(component, "elem_id", None) or f"component-{number}"
                event = PageEvent(within, name, not isinstance(component, gr.HTML), need)
                found.setdefault(str(function.page or ""), []).append(event)
    return found


def guard(blocks: gr.Blocks, accounts: AccountService) -> None:
    """Check the role before every function that the application may call."""
    for function in blocks.fns.values():
        if function.fn is not None:
            if inspect.iscoroutinefunction(function.fn) or inspect.isasyncgenfunction(function.fn):
                raise TypeError(f"{function.fn.__qualname__} is asynchronous; guard it before it is offered.")
            function.fn = _guarded(function.fn, *need_of(function), accounts)


def _guarded(call: Callable[..., Any], name: str, need: Need, accounts: AccountService) -> Callable[..., Any]:
    """A function that is only called for an account whose role suffices."""

    @contextmanager
    def asked(args: tuple[Any, ...]) -> Iterator[Visitor]:
        visitor, address = _asking(need)
        outcome = "failed"
        try:
            yield visitor
            outcome = "done"
        except GeneratorExit:
            # Leaving a stream early is not a failure.
            outcome = "done"
            raise
        finally:
            if need.trailed:
                accounts.note(name, subject_of(call, args), outcome, address, visitor.name)

    @functools.wraps(call)
    def answered(*args: Any, **kwargs: Any) -> Any:
        with asked(args) as visitor, answering(visitor):
            return call(*args, **kwargs)

    @functools.wraps(call)
    def streamed(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with asked(args) as visitor:
            parts, end = call(*args, **kwargs), object()
            try:
                while True:
                    # Between two parts the thread may belong to somebody else.
                    with answering(visitor):
                        part = next(parts, end)
                    if part is end:
                        return
                    yield part
            finally:
                with answering(visitor):
                    parts.close()

    return streamed if inspect.isgeneratorfunction(call) else answered


def _asking(need: Need) -> tuple[Visitor, str]:
    """The account that sent the request, whose role suffices, and its address."""
    connection = getattr(LocalContext.request.get(None), "request", None)
    visitor = visitor_asking(connection) if isinstance(connection, HTTPConnection) else None
    if connection is None or visitor is None or visitor.account is None:
        raise gr.Error("Sign in again; this server asks who you are.", title=TITLE, print_exception=False)
    if not need.allows(visitor.account.role):
        raise gr.Error("Your role is not sufficient for this.", title=TITLE, print_exception=False)
    return visitor, address_of(connection)


def subject_of(call: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """What a call is about: the numbers that it names, and no text that somebody wrote."""
    named: dict[str, object] = {}
    for name, value in zip(inspect.signature(call).parameters, args, strict=False):
        data = getattr(value, "_data", None)
        if isinstance(value, gr.EventData) and isinstance(data, Mapping):
            named |= data
        else:
            named[name] = value
    told = [
        f"{name.removesuffix('_id')} {value}"
        for name, value in named.items()
        if (name.removesuffix("_id") in _KEYS) and isinstance(value, int) and not isinstance(value, bool)
    ]
    actions = [str(named["action"])] if isinstance(named.get("action"), str) else []
    return ", ".join([*actions, *told])[:LONGEST_SUBJECT]
