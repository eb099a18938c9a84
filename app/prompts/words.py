"""What every page with a prompt says of it: its spans, how the masked branches read it, and what menus offer for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import TypeAdapter

from app.shared.audits import FAMILY_NAMES, MaskPreview, StartAudit
from app.shared.format import count, named, plural
from coft_core.text.language import language_note
from coft_core.types import Span
from db.user_lists import UserListRecord

Message = dict[str, object]
"""What the browser builds a part of its page from."""

BEGINNING = 160
"""Characters of a prompt in a list; the rest is on the session's own page."""

_SPANS = TypeAdapter(list[Span])

ENDS = {"length": "length reached", "end": "end of text", "context": "context full"}


def beginning(prompt: str) -> str:
    """The first characters of a prompt in one line."""
    line = " ".join(prompt.split())
    return line if len(line) <= BEGINNING else f"{line[:BEGINNING].rstrip()} …"


def finished_text(finished: str | None) -> str | None:
    """Why nothing can be added to a chain; None while something can."""
    return ENDS.get(finished, finished) if finished else None


def preview_message(preview: MaskPreview, limit: int = 0) -> Message:
    """The prompt as the masked branch reads it; ``limit`` is what the model takes in tokens, 0 where nobody asks."""
    sentinel = preview.sentinel if preview.masked_count else ""
    return {
        "kind": "preview",
        "pieces": [[piece.text, piece.masked] for piece in preview.pieces],
        "counts": f"{plural(preview.token_count, 'token')}, {count(preview.masked_count)} masked, same length",
        "warnings": list(preview.warnings),
        "tokens": preview.token_count,
        "limit": limit,
        "branches": " ".join(filter(None, (reading_text(preview.branches), sentinel))),
    }


def spans_message(spans: Sequence[Span], text: str) -> Message:
    """Detected spans of a text, and what is said if the detector does not read its language."""
    return {"kind": "spans", "spans": [asdict(span) for span in spans], "language": language_note(text)}


def spans_from(items: object) -> tuple[Span, ...] | None:
    """Spans as the browser sends them, of many as JSON text; None lets the detector find them."""
    if isinstance(items, str):
        items = json.loads(items)
    return tuple(sorted(_SPANS.validate_python(items))) if isinstance(items, list) else None


def draft_message(request: StartAudit, notes: Sequence[str], preview: MaskPreview | str) -> Message:
    """A session that is not started yet: the prompt and spans of another one, and what of it could not be had."""
    return {
        "kind": "draft",
        "prompt": request.prompt,
        "spans": [asdict(span) for span in request.spans or ()],
        "preview": None if isinstance(preview, str) else preview_message(preview),
        "notes": [*notes, preview] if isinstance(preview, str) else [*notes],
        "saved": f"{request.name}, not started yet",
    }


def reading_text(branches: Sequence[str]) -> str:
    """What the shown masked reading is when there are several; empty for the joint one."""
    if not _is_factorized(branches) or len(branches) < 3:
        return ""
    return f"Each of {named(branches[1:])} is masked in a branch of its own; here all of them are masked at once."


def _is_factorized(branches: Sequence[str]) -> bool:
    return len(branches) > 1 and branches[1] != "masked"


def family_choices() -> list[tuple[str, str]]:
    """Families for a menu: what is shown, and the category."""
    return [(name, key) for key, name in FAMILY_NAMES.items()]


def list_choices(user_lists: Sequence[UserListRecord]) -> list[tuple[str, int]]:
    """Word lists for a menu; 0 stands for none."""
    return [("None", 0), *((item.name, item.id) for item in user_lists)]
