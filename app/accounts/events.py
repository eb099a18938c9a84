"""The events of pages and the operations, where they are done: again the role, who asks, and the trail.

A request that calls an event is looked at before (:mod:`app.accounts.gate`). Here stands the second door, behind all
ways on which Gradio reaches a function: nothing is done in the name of nobody, or beyond a role.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.context import LocalContext
from starlette.requests import HTTPConnection

from app.accounts.forms import address_of
from app.accounts.permissions import Need, event_need
from app.accounts.service import AccountService
from app.shared.visitors import Visitor, answering, visitor_asking

TITLE = "This could not be done"
_KEYS = ("session", "branch", "calibration", "batch", "evaluation", "tree", "job", "list", "id", "number", "action")
"""Under which names events and operations say what they are about; texts of prompts and notes are kept out."""
LONGEST_SUBJECT = 200


def need_of(function: Any) -> tuple[str, Need]:
    """What an event or operation of Gradio's is called in the trail, and what it takes."""
    public = function.api_visibility == "public"
    handler = getattr(function.fn, "__qualname__", "") if function.fn is not None else ""
    said = handler.rpartition(".")[2].replace("_", " ")
    name = str(function.api_name) if public else f"{function.page or 'audit'}: {said or 'event'}"
    return name, event_need(str(function.page or ""), str(function.api_name), public, handler)


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
    """Put the second door before every function that the application may call."""
    for function in blocks.fns.values():
        if function.fn is not None:
            if inspect.iscoroutinefunction(function.fn) or inspect.isasyncgenfunction(function.fn):
                raise TypeError(f"{function.fn.__qualname__} is asynchronous; guard it before it is offered.")
            name, need = need_of(function)
            function.fn = _Door(name, need, accounts).before(function.fn)


class _Door:
    """Lets who may do it call one function."""

    def __init__(self, name: str, need: Need, accounts: AccountService) -> None:
        self._name, self._need, self._accounts = name, need, accounts

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The function behind this door."""
        return self._streaming(call) if inspect.isgeneratorfunction(call) else self._answering(call)

    def _answering(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            visitor, address = self._asking()
            with answering(visitor), self._taken_down(call, args, visitor, address):
                return call(*args, **kwargs)

        return guarded

    def _streaming(self, call: Callable[..., Generator[Any, None, None]]) -> Callable[..., Iterator[Any]]:
        @functools.wraps(call)
        def guarded(*args: Any, **kwargs: Any) -> Iterator[Any]:
            visitor, address = self._asking()
            with self._taken_down(call, args, visitor, address):
                parts = call(*args, **kwargs)
                try:
                    while True:
                        # Between two parts the thread may belong to somebody else.
                        with answering(visitor):
                            part = next(parts, _END)
                        if part is _END:
                            return
                        yield part
                finally:
                    with answering(visitor):
                        parts.close()

        return guarded

    def _asking(self) -> tuple[Visitor, str]:
        """The account that sent the request."""
        request = LocalContext.request.get(None)
        connection = getattr(request, "request", None)
        visitor = visitor_asking(connection) if isinstance(connection, HTTPConnection) else None
        if connection is None or visitor is None or visitor.account is None:
            raise gr.Error("Sign in again; this server asks who you are.", title=TITLE, print_exception=False)
        if not self._need.allows(visitor.account.role):
            raise gr.Error("Your role here does not suffice for this.", title=TITLE, print_exception=False)
        return visitor, address_of(connection)

    def _taken_down(
        self, call: Callable[..., Any], args: tuple[Any, ...], visitor: Visitor, address: str
    ) -> _TakenDown:
        return _TakenDown(self._accounts if self._need.trailed else None, self._name, call, args, visitor, address)


_END = object()


class _TakenDown:
    """Adds an entry to the trail once something is done, or has failed."""

    def __init__(
        self, accounts: AccountService | None, name: str, call: Callable[..., Any], args: tuple[Any, ...],
        visitor: Visitor, address: str,
    ) -> None:  # fmt: skip
        self._accounts, self._name, self._call, self._args = accounts, name, call, args
        self._visitor, self._address = visitor, address

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A stream that its reader leaves has done what she asked for.
        outcome = "done" if kind in (None, GeneratorExit) else "failed"
        if self._accounts is not None:
            subject = subject_of(self._call, self._args)
            self._accounts.note(self._name, subject, outcome, self._address, self._visitor.name)


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
