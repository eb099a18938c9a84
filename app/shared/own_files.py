"""Files come from the visitor or lie on the server: Gradio's ways to fetch them from an address are closed."""

from __future__ import annotations

import re
from typing import Any

import gradio as gr
from gradio.blocks import Block

from app.shared.events import TITLE

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
