"""Whose the files and answers are that Gradio keeps, and would give to everybody who has their address.

They belong to the account that brought or asked for them, in the project that it worked in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode
from weakref import WeakKeyDictionary

import gradio as gr
from gradio.blocks import Block
from gradio.utils import abspath
from starlette.types import Scope

from app.shared.errors import ServiceError
from app.shared.visitors import Visitor, present, visitor_asking

Holder = tuple[int, int | None]
"""The numbers of an account and of the project that it works in."""

MOST_FILES = 10_000
"""Files after which those that are gone are forgotten; Gradio deletes each after a day."""

FILES = ("/gradio_api/file=", "/gradio_api/file/")
ANSWERS = ("/gradio_api/queue/data", "/gradio_api/heartbeat/", "/gradio_api/call/")
LOOPBACK_HEADER = "x-coft-loopback"
"""How the server for agents shows that it asks for itself; the calls of tools carry their caller's own token too."""


def holder_of(visitor: Visitor | None) -> Holder | None:
    """Who holds what a visitor brings or asks for; None for what nobody has asked for."""
    if visitor is None or visitor.account is None:
        return None
    return visitor.account.id, None if visitor.project is None else visitor.project.id


class Holdings:
    """Whose is what, from the moment at which Gradio keeps it."""

    def __init__(self, blocks: gr.Blocks) -> None:
        """Note it of an application with all its pages and its queue, which is not launched yet."""
        self._queue: Any = blocks._queue
        self._files: dict[str, set[Holder]] = {}
        self._streams: WeakKeyDictionary[Any, Holder | None] = WeakKeyDictionary()
        blocks.upload_file_set = _Uploads(self)
        blocks.temp_file_sets.append(blocks.upload_file_set)
        for block in blocks.blocks.values():
            self._note_files(block)
        self._note_streams()

    def take(self, paths: Iterable[str]) -> None:
        """Note that files are of the visitor who is being answered."""
        holder = holder_of(present())
        if holder is None:
            return
        if len(self._files) > MOST_FILES:
            self._files = {path: holders for path, holders in self._files.items() if os.path.exists(path)}
        for path in paths:
            self._files.setdefault(str(abspath(path)), set()).add(holder)

    def is_foreign(self, visitor: Visitor, path: str, query: Mapping[str, str], given: Mapping[str, Any]) -> bool:
        """Whether a request is about what Gradio keeps for somebody else."""
        holder = holder_of(visitor)
        if path.startswith(FILES):
            return holder not in self._files.get(str(abspath(path[len(FILES[0]) :])), ())
        named = [query.get("session_hash"), given.get("session_hash"), given.get("event_id")]
        if path.startswith(ANSWERS):
            named.append(path.rstrip("/").rpartition("/")[2])
        streams = [self._stream(name) for name in named if isinstance(name, str)]
        return any(self._streams.get(stream) != holder for stream in streams if stream is not None)

    def _stream(self, name: str) -> Any:
        """The stream of a page or program by its own name, or by that of an event whose answer comes there."""
        streams, event = self._queue.pending_messages_per_session, self._queue.event_ids_to_events.get(name)
        if name in streams:
            return streams[name]
        if event is not None:
            return streams.get(event.session_hash)
        pending = self._queue.pending_event_ids_session.items()
        return next((streams.get(stream) for stream, events in pending if name in events), None)

    def _note_files(self, block: Block) -> None:
        keep = block.async_move_resource_to_block_cache

        async def kept(resource: Any) -> str | None:
            holder = holder_of(present())
            path = None if resource is None else str(abspath(resource))
            is_kept = path is not None and os.path.commonpath([path, block.GRADIO_CACHE]) == block.GRADIO_CACHE
            if holder is not None and is_kept and holder not in self._files.get(str(path), ()):
                raise ServiceError("The file is not one that you have uploaded in this project; upload it.")
            made = await keep(resource)
            self.take([] if made is None else [made])
            return made

        block.async_move_resource_to_block_cache = kept

    def _note_streams(self) -> None:
        push = self._queue.push

        async def noted(body: Any, request: Any, username: str | None) -> Any:
            done = await push(body, request, username)
            stream = self._queue.pending_messages_per_session.get(body.session_hash)
            if stream is not None:
                # The server for agents has one stream for the calls of all of them, which only it reads.
                own = LOOPBACK_HEADER not in request.headers
                self._streams.setdefault(stream, holder_of(visitor_asking(request)) if own else None)
            return done

        self._queue.push = noted


class _Uploads(set[str]):
    """The files that Gradio has taken; it deletes them in time."""

    def __init__(self, holdings: Holdings) -> None:
        super().__init__()
        self._holdings = holdings

    def update(self, *taken: Iterable[str]) -> None:
        """Add files, which are of the visitor who sends them."""
        super().update(*taken)
        for paths in taken:
            self._holdings.take(paths)


def name_upload(scope: Scope, visitor: Visitor) -> None:
    """Tell the upload that a request names apart from those of others with the same name: its progress names a file."""
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    if "upload_id" in query:
        query["upload_id"] = f"{holder_of(visitor)} {query['upload_id']}"
        scope["query_string"] = urlencode(query).encode()
