"""What all parts of the audit page share."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from app.shared import events
from app.shared.events import Reply, reply

EVENT: dict[str, Any] = {**events.EVENT, "concurrency_limit": 16}
"""What all events of the page have in common; more at once than elsewhere, since most of them only read."""

LATEST: dict[str, Any] = {**EVENT, "trigger_mode": "always_last"}
"""See :data:`app.shared.events.LATEST`."""

MULTIPLE: dict[str, Any] = {**EVENT, "trigger_mode": "multiple"}
"""See :data:`app.shared.events.MULTIPLE`."""

GENERATING: dict[str, Any] = {**EVENT, "trigger_mode": "once", "concurrency_limit": 8}
"""For what generates, and how many reviewers may at once; the model itself takes them in turn."""


def packed(event: gr.EventData, message: Reply) -> str:
    """:func:`reply` as text: a value of many parts is compared and copied part by part on its way to the browser."""
    return json.dumps(reply(event, message), ensure_ascii=False, separators=(",", ":"))
