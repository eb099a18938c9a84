"""What is different in this program's Gradio: files, queue, errors, and what is kept of an opened page."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
from gradio import Blocks
from gradio.blocks import Block, BlockFunction
from gradio.state_holder import SessionState, StateHolder

from app.shared.errors import USER_ERRORS, sentence_of
from app.shared.events import TITLE, message, requesting_visitor
from app.shared.visitors import answering, share_of

MOST_PAGES = 500
"""Opened pages whose state is kept; of more, the one unused for longest begins again when it asks."""


class PageState(SessionState):
    """What an opened page has changed: values of ``gr.State``, and components that events have given other options."""

    def __init__(self, blocks: Blocks) -> None:
        """Begin with the page as it is built."""
        # The configurations of no component are described.
        super().__init__(cast(Blocks, SimpleNamespace(default_config=blocks.default_config, blocks={})))

    def _update_config(self, key: int) -> None:
        """Keep no description of a component that an event has changed."""

    def _update_value_in_config(self, key: int, value: Any) -> None:
        """Keep no value that an event has shown."""


class PageStates(StateHolder):
    """The states of opened pages, by the number that each of them asks with."""

    def __init__(self, blocks: Blocks, most: int = MOST_PAGES) -> None:
        """Hold the states of an application's pages; it asks them from then on."""
        super().__init__()
        self.set_blocks(blocks)
        self.capacity = most

    def __getitem__(self, session_id: str) -> SessionState:
        """The state of a page, which is made when it first asks."""
        if session_id not in self.session_data:
            self.session_data[session_id] = PageState(self.blocks)
        return super().__getitem__(session_id)


ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]+:)?//", re.IGNORECASE)
ROUTE = re.compile(r"/(?:file|proxy)=\s*(?:[a-z][a-z0-9+.-]+:|//)", re.IGNORECASE)
SENTENCE = "This server fetches nothing from addresses; send the file itself."


def is_fetching(path: str) -> bool:
    """Whether an address of this server asks it to fetch another one."""
    return ROUTE.search(path) is not None


def fetch_nothing(app: gr.Blocks) -> None:
    """Refuse an address in the place of an uploaded file, in every component of an application.

    Gradio would fetch it, unless it is a private one, and what it answers would be shown as the visitor's file.
    """
    for block in app.blocks.values():
        _refuse(block)


def _refuse(block: Block) -> None:
    keep = block.async_move_resource_to_block_cache

    async def kept(resource: Any) -> str | None:
        if ELSEWHERE.match(str(resource or "")):
            raise gr.Error(SENTENCE, title=TITLE, duration=None, print_exception=False)
        return await keep(resource)

    block.async_move_resource_to_block_cache = kept


SHARES = 4
"""The events of one visitor take at most this part of the places in the queue."""


def share_queue(queue: Any) -> None:
    """Let no visitor take more than a share of the places in the queue of events."""
    push = queue.push

    async def shared(body: Any, request: Any, username: str | None) -> Any:
        waiting = [event for waits in queue.event_queue_per_concurrency_id.values() for event in waits.queue]
        asking = share_of(request)
        own = sum(share_of(event.request) == asking for event in waiting)
        if queue.max_size is not None and own >= max(1, queue.max_size // SHARES):
            said = f"{own} of your requests wait for their turn; wait until some are answered."
            return False, said, "queue_full"
        return await push(body, request, username)

    queue.push = shared


def answer_in_sentences(app: gr.Blocks) -> None:
    """Answer arguments that cannot be read, and faults of the program, in one sentence.

    Gradio would answer nothing, and write a traceback with what was sent to the log.
    """
    read, process = app.preprocess_data, app.process_api

    async def reading(function: BlockFunction, *given: Any, **named: Any) -> Any:
        try:
            return await read(function, *given, **named)
        except gr.Error:
            raise
        except USER_ERRORS as error:
            raise message(str(error)) from error
        except Exception as error:
            raise message(_unreadable(function)) from error

    async def processing(*given: Any, request: Any = None, **named: Any) -> Any:
        try:
            # Files are read before the handler is asked, and given out after it.
            with answering(requesting_visitor(request)):
                return await process(*given, request=request, **named)
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception as error:
            raise message(sentence_of(error)) from error

    app.preprocess_data, app.process_api = reading, processing


def _unreadable(function: BlockFunction) -> str:
    if function.api_visibility != "public":
        return "The page sent what its event cannot take; load the page again."
    names = ", ".join(inspect.signature(function.fn).parameters)
    return (
        f"The arguments of {function.api_name} cannot be read; give {names}, each of its type: a number as a finite "
        "one, and a file as one that you have uploaded."
    )
