"""The sessions page's filters: their markup, and the way from what the browser sends to a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, cast, get_args

from app.services.errors import ServiceError
from app.services.views.library import CertificateState, LibraryOrder, LibraryQuery

SIZES = (25, 50, 100)
YES_NO: Mapping[str, bool | None] = {"yes": True, "no": False, "any": None}

CERTIFICATES = (
    ("", "Any"),
    ("certified", "Certified"),
    ("uncertified", "Uncertified"),
    ("mismatch", "Uncertified: other settings than calibrated"),
)
ARCHIVED = (("no", "Without archived"), ("yes", "Only archived"), ("any", "All"))
JUDGED = (("any", "With or without"), ("yes", "With a verdict"), ("no", "Without a verdict"))


def library_query(given: Mapping[str, Any]) -> LibraryQuery:
    """What the page asks for; an empty filter does not matter.

    Args:
        given: By name: ``text``, ``policy``, ``model``, ``certificate``, ``tag``, ``archived``, ``judged`` (yes, no or
            any), ``since``, ``until`` (ISO days), ``batch``, ``order``, ``down``, ``page`` and ``size``.

    Raises:
        ServiceError: A value is none of those that there are.
    """
    return LibraryQuery(
        text=str(given.get("text") or ""),
        policy=_text(given, "policy"),
        model=_text(given, "model"),
        certificate=cast(CertificateState | None, _one_of(given, "certificate", get_args(CertificateState))),
        tag=_text(given, "tag"),
        archived=YES_NO[_one_of(given, "archived", tuple(YES_NO)) or "no"],
        judged=YES_NO[_one_of(given, "judged", tuple(YES_NO)) or "any"],
        since=_day(given, "since"),
        until=_day(given, "until"),
        batch_id=_number(given, "batch", 0) or None,
        order=cast(LibraryOrder, _one_of(given, "order", get_args(LibraryOrder)) or "updated"),
        descending=bool(given.get("down", True)),
        page=_number(given, "page", 1),
        page_size=_number(given, "size", SIZES[0]),
    )


def filters() -> str:
    """The fields; menus of policies, models and tags are filled with what the store holds."""
    stored = "".join(_menu(name, label, (("", "Any"),)) for name, label in (("policy", "Policy"), ("model", "Model")))
    return (
        '<div class="field wide"><label for="search">Search</label><input class="input" id="search" type="search" '
        'name="text" autocomplete="off" spellcheck="false" placeholder="Name, prompt, tag, or the note of a verdict">'
        f"</div>{_menu('certificate', 'Certificate', CERTIFICATES)}{_menu('judged', 'Verdicts', JUDGED)}"
        f"{_menu('tag', 'Tag', (('', 'Any'),))}{stored}{_menu('archived', 'Archive', ARCHIVED)}"
        f"{_date('since', 'Changed from')}{_date('until', 'Changed until')}"
        '<div class="field"><button type="button" class="btn" data-do="reset">Clear filters</button></div>'
    )


def page_sizes() -> str:
    """The menu of page sizes."""
    options = "".join(f'<option value="{size}">{size} a page</option>' for size in SIZES)
    return f'<select class="select small" name="size" aria-label="Sessions a page">{options}</select>'


def _menu(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f'<option value="{value}">{text}</option>' for value, text in options)
    return (
        f'<div class="field"><label for="f-{name}">{label}</label>'
        f'<select class="select" id="f-{name}" name="{name}">{rows}</select></div>'
    )


def _date(name: str, label: str) -> str:
    return (
        f'<div class="field"><label for="f-{name}">{label}</label>'
        f'<input class="input" id="f-{name}" name="{name}" type="date"></div>'
    )


def _text(given: Mapping[str, Any], name: str) -> str | None:
    return str(given.get(name) or "") or None


def _one_of(given: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str | None:
    value = _text(given, name)
    if value is not None and value not in allowed:
        raise ServiceError(f"There is no {name} {value!r} to choose; choose {', '.join(allowed)}.")
    return value


def _day(given: Mapping[str, Any], name: str) -> date | None:
    value = _text(given, name)
    try:
        return None if value is None else date.fromisoformat(value)
    except ValueError as error:
        raise ServiceError(f"{value!r} is not a day; write it as year-month-day, such as 2026-05-04.") from error


def _number(given: Mapping[str, Any], name: str, usual: int) -> int:
    value = given.get(name)
    try:
        return usual if value in (None, "") else int(str(value))
    except ValueError as error:
        raise ServiceError(f"The {name} {value!r} is not a whole number; write one.") from error
