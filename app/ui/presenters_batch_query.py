"""What the batches page asks of a batch's rows: their order, filters and page, from what the browser sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from app.services.errors import ServiceError
from app.services.views.batches import BatchOrder, BatchRowView, OutcomeRule, RowState

SIZES = (25, 50, 100)
NO_GROUP = "none"
"""Filter value for rows without a group; that of a named one begins with :data:`NAMED`."""
NAMED = "g:"


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """Which rows of a batch are shown, and in what order.

    Attributes:
        batch: The batch.
        order: What the rows are sorted by.
        descending: From the largest to the smallest.
        text: Words that the prompt, the continuation or the context must hold.
        group: Filter value of a group; empty for all.
        state: A state; empty for all.
        page: The page, from 1.
        size: Rows on a page.
    """

    batch: int
    order: BatchOrder = "line"
    descending: bool = False
    text: str = ""
    group: str = ""
    state: str = ""
    page: int = 1
    size: int = SIZES[0]


def batch_query(given: Mapping[str, Any]) -> BatchQuery:
    """What the page asks for.

    Args:
        given: By name: ``batch``, ``order``, ``down``, ``text``, ``group``, ``state``, ``page`` and ``size``.

    Raises:
        ServiceError: A value is none of those that there are.
    """
    return BatchQuery(
        batch=whole_number(given, "batch"),
        order=cast(BatchOrder, _one_of(given, "order", get_args(BatchOrder), "line")),
        descending=bool(given.get("down")),
        text=str(given.get("text") or "").strip(),
        group=str(given.get("group") or ""),
        state=_one_of(given, "state", ("", *get_args(RowState)), ""),
        page=max(1, whole_number(given, "page", 1)),
        size=min(SIZES[-1], max(1, whole_number(given, "size", SIZES[0]))),
    )


def outcome_rule(given: Mapping[str, Any]) -> OutcomeRule:
    """How continuations are read as outcomes: ``selected``, ``other``, ``regex`` and ``case``."""
    return OutcomeRule(
        selected=str(given.get("selected") or ""),
        other=str(given.get("other") or ""),
        regex=bool(given.get("regex")),
        match_case=bool(given.get("case")),
    )


def filtered(rows: Iterable[BatchRowView], query: BatchQuery) -> list[BatchRowView]:
    """The rows that the filters let through, in their order."""
    wanted = query.text.casefold()
    return [
        row
        for row in rows
        if wanted in f"{row.prompt}\n{row.text}\n{row.context or ''}".casefold()
        and query.group in ("", group_value(row.group))
        and query.state in ("", row.state)
    ]


def page_of(rows: Sequence[BatchRowView], query: BatchQuery) -> tuple[Sequence[BatchRowView], int, int]:
    """The rows of the asked-for page, or of the last one; its number, and the number of pages."""
    pages = max(1, -(-len(rows) // query.size))
    page = min(query.page, pages)
    return rows[(page - 1) * query.size : page * query.size], page, pages


def group_value(group: str | None) -> str:
    """Filter value of a group."""
    return NO_GROUP if group is None else f"{NAMED}{group}"


def whole_number(given: Mapping[str, Any], name: str, usual: int | None = None) -> int:
    """A whole number that the page sends.

    Raises:
        ServiceError: It is none.
    """
    value = given.get(name, usual)
    try:
        return int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ServiceError(f"The address gives {value!r} for {name}; give a whole number.") from error


def _one_of(given: Mapping[str, Any], name: str, choices: Sequence[str], usual: str) -> str:
    value = str(given.get(name) or usual)
    if value not in choices:
        raise ServiceError(f"There is no {name} {value!r}; choose one of {', '.join(c for c in choices if c)}.")
    return value
