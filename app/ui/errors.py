"""The one place where domain errors become messages on a page."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import gradio as gr

from app.services.errors import USER_ERRORS

P = ParamSpec("P")
T = TypeVar("T")

TITLE = "This could not be done"
SECONDS = 12.0


def shown(handler: Callable[P, T]) -> Callable[P, T]:
    """Turn domain errors of a handler, or of the generator that it returns, into one shown sentence."""

    @functools.wraps(handler)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return handler(*args, **kwargs)
        except USER_ERRORS as error:
            raise _message(error) from error

    return wrapped


def shown_stream(handler: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """:func:`shown` for a generator, whose errors appear while it is consumed."""

    @functools.wraps(handler)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from handler(*args, **kwargs)
        except USER_ERRORS as error:
            raise _message(error) from error

    return wrapped


def or_refusal(call: Callable[[], T]) -> T | str:
    """What a call gives, or the sentence that refuses it, for a page that shows several answers side by side."""
    try:
        return call()
    except USER_ERRORS as error:
        return str(error)


def or_told(call: Callable[[], T]) -> T | None:
    """What a call gives, or None once its refusal stands on the page as one sentence.

    For events that follow the newest of many changes: when such an event fails, Gradio forgets the change that waits
    behind it, and the page would go on showing what was true before.
    """
    try:
        return call()
    except USER_ERRORS as error:
        told(error)
        return None


def told(error: Exception) -> None:
    """Put a refusal on the page as one sentence, without failing the event."""
    gr.Warning(html.escape(str(error), quote=False), title=TITLE, duration=SECONDS)


def _message(error: Exception) -> gr.Error:
    return gr.Error(html.escape(str(error), quote=False), title=TITLE, duration=SECONDS, print_exception=False)
