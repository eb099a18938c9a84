"""The addresses ``/v1/models``, ``/v1/completions`` and ``/v1/chat/completions``."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from app.completions.answers import ChatShape, CompletionShape, Shape
from app.completions.requests import ChatRequest, CompletionRequest, RefusedRequestError
from app.completions.service import Choice, CompletionService, Ended, Piece
from app.shared.errors import USER_ERRORS, sentence_of

LARGEST = 4_000_000
"""Bytes of a request."""

Body = TypeVar("Body", CompletionRequest, ChatRequest)


class CompletionRoutes:
    """Answers HTTP requests; every error is one sentence in OpenAI's shape."""

    def __init__(self, service: CompletionService) -> None:
        """Answer by a service."""
        self._service = service

    @property
    def routes(self) -> list[BaseRoute]:
        """What the web application serves."""
        return [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        """The one model."""
        del request
        listed = {"id": self._service.model_name, "object": "model", "created": 0, "owned_by": "coft-audit"}
        return JSONResponse({"object": "list", "data": [listed]})

    async def completions(self, request: Request) -> Response:
        """Continuations of prompts."""
        return await self._answer(request, CompletionRequest)

    async def chat(self, request: Request) -> Response:
        """The next message of a conversation."""
        return await self._answer(request, ChatRequest)

    async def _answer(self, request: Request, kind: type[Body]) -> Response:
        try:
            asked = await _read(request, kind)
            return await run_in_threadpool(self._written, asked)
        except Exception as error:
            return _failed(error)

    def _written(self, asked: CompletionRequest | ChatRequest) -> Response:
        """The whole answer, or its beginning with a stream of what follows."""
        shape: Shape
        if isinstance(asked, ChatRequest):
            choices = self._service.chat(asked)
            shape = ChatShape(self._service, asked, _head("chatcmpl", "chat.completion", asked))
        else:
            choices = self._service.completions(asked)
            shape = CompletionShape(self._service, asked, _head("cmpl", "text_completion", asked))
        if not asked.stream:
            return JSONResponse(shape.whole(choices, [self._done(shape, choice) for choice in choices]))
        events = self._events(shape, choices)
        # A request that cannot be fulfilled is refused before the answer begins.
        first = next(events)
        return StreamingResponse(_told(chain([first], events)), media_type="text/event-stream")

    def _done(self, shape: Shape, choice: Choice) -> tuple[list[Piece], Ended]:
        pieces, ended = [], Ended("length", ())
        for item in shape.written(choice):
            if isinstance(item, Ended):
                ended = item
            else:
                pieces.append(item)
        return pieces, ended

    def _events(self, shape: Shape, choices: Sequence[Choice]) -> Iterator[dict[str, Any]]:
        ends = []
        for number, choice in enumerate(choices):
            yield from shape.opening(number, choice)
            for item in shape.written(choice):
                if isinstance(item, Ended):
                    ends.append(item)
                    yield shape.closing(number, choice, item)
                elif item.text or item.thinking or item.step is not None:
                    yield shape.piece(number, item)
        if shape.asked.stream_options is not None and shape.asked.stream_options.include_usage:
            yield shape.usage_chunk(choices, ends)


async def _read(request: Request, kind: type[Body]) -> Body:
    """The request's content."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        # Pages of other sites can send anything else without being asked whether they may.
        raise RefusedRequestError("Send the request as application/json.", 415)
    body = await request.body()
    if len(body) > LARGEST:
        raise RefusedRequestError(
            f"The request has {len(body):,} bytes and may have {LARGEST:,}; send less at a time.", 413
        )
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        # A field that may be of several kinds is named by its first part.
        field = str(first["loc"][0]) if first["loc"] else None
        reason = first["msg"].removeprefix("Value error, ")
        sentence = f"The request is not a JSON object ({reason})." if field is None else f"{field}: {reason}."
        raise RefusedRequestError(sentence, param=field) from error


def _head(prefix: str, kind: str, asked: CompletionRequest | ChatRequest) -> dict[str, Any]:
    """What every answer begins with."""
    suffix = ".chunk" if asked.stream and kind == "chat.completion" else ""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": f"{kind}{suffix}",
        "created": int(time.time()),
        "model": asked.model,
    }


def _failed(error: Exception) -> JSONResponse:
    """An error in OpenAI's shape."""
    status = error.status if isinstance(error, RefusedRequestError) else 400 if isinstance(error, USER_ERRORS) else 500
    return JSONResponse(_error(error), status)


def _error(error: Exception) -> dict[str, Any]:
    refused = error if isinstance(error, RefusedRequestError) else None
    kind = "invalid_request_error" if isinstance(error, USER_ERRORS) else "server_error"
    return {
        "error": {
            "message": sentence_of(error),
            "type": kind,
            "param": None if refused is None else refused.param,
            "code": None if refused is None else refused.code,
        }
    }


def _told(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Events as a stream of the server; what goes wrong on the way is the last of them."""
    try:
        for event in events:
            yield f"data: {json.dumps(event)}\n\n"
    except Exception as error:
        yield f"data: {json.dumps(_error(error))}\n\n"
    yield "data: [DONE]\n\n"
