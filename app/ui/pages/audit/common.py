"""What all parts of the audit page share."""

from __future__ import annotations

import json
import time
from typing import Any

import gradio as gr

from app.ui.presenters_session import Message

EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 16}
"""What all events of the page have in common: errors reach it only through the queue."""

GENERATING = 8
"""How many reviewers may generate at once; the model itself takes them in turn."""


def reply(event: gr.EventData, message: Message) -> Message:
    """Give a message its request's number: the page tells replies apart by it."""
    return {**message, "nonce": event.nonce, "at": time.monotonic_ns()}


def packed(event: gr.EventData, message: Message) -> str:
    """:func:`reply` as text: a value of many parts is compared and copied part by part on its way to the browser."""
    return json.dumps(reply(event, message), ensure_ascii=False, separators=(",", ":"))
