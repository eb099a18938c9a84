"""A stored prompt set as a file again, so that it can be used like an upload."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from db.records import PromptRowRecord


def rows_jsonl(rows: Iterable[PromptRowRecord]) -> str:
    """One JSON object a row, with the fields that it has."""
    return "".join(json.dumps(_row(row), ensure_ascii=False) + "\n" for row in rows)


def _row(row: PromptRowRecord) -> dict[str, Any]:
    spans = None if row.spans is None else [[s.start, s.end, s.category] for s in row.spans if not s.kept]
    fields = {
        "prompt": row.prompt,
        "reference": row.reference,
        "spans": spans,
        "group": row.group,
        "context": row.context,
        "weight": row.weight,
    }
    return {name: value for name, value in fields.items() if value is not None}
