"""What the sessions page asks for and says, without a browser."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.sessions.page import library_query
from app.sessions.service import FoldedPage, LibraryQuery
from app.sessions.words import page_message
from app.shared.errors import ServiceError
from db.library import LibraryChoicesRecord, SessionEntryRecord

NOW = datetime(2026, 5, 4, 14, 2, tzinfo=UTC)
ENTRY = SessionEntryRecord(
    id=7, name="Ward", prompt="The nurse said he", model="demo", policy="coft", certificate="certified", step_count=3,
    branch_count=2, created_at=NOW, updated_at=NOW, archived_at=None, batch_id=None, verdict_count=1,
    tags=("night", "ward"),
)  # fmt: skip
STORED = LibraryChoicesRecord(policies=(("coft", 2),), models=(("demo", 2),), tags=(("ward", 1),))


def test_text_from_the_outside_is_shown_and_never_run():
    nasty = '"><img src=x onerror=alert(1)>'
    entry = replace(ENTRY, name=nasty, prompt=nasty, certificate=nasty, model=nasty, tags=(nasty,))
    said = str(page_message(FoldedPage((entry,), 1, 1, 1, 1), {7: nasty}, STORED, LibraryQuery())["html"])
    assert "<img" not in said
    assert "&lt;img" in said


def test_every_filter_reaches_the_query_and_what_cannot_be_asked_for_is_refused():
    assert library_query({}) == LibraryQuery(page_size=25)
    given = {
        "text": "nurse", "policy": "coft", "model": "demo", "certificate": "mismatch", "tag": "ward", "archived": "any",
        "judged": "no", "since": "2026-05-01", "until": "2026-05-04", "batch": "3", "order": "steps", "down": False,
        "page": 2, "size": 50,
    }  # fmt: skip
    expected = LibraryQuery(
        text="nurse", policy="coft", model="demo", certificate="mismatch", tag="ward", archived=None, judged=False,
        since=datetime(2026, 5, 1, tzinfo=UTC), before=datetime(2026, 5, 5, tzinfo=UTC), batch_id=3, order="steps",
        descending=False, page=2, page_size=50,
    )  # fmt: skip
    assert library_query(given) == expected
    for name, value, sentence in (
        ("certificate", "gold", "There is no certificate 'gold'"), ("order", "colour", "There is no order 'colour'"),
        ("since", "4 May", "'4 May' is not a day"), ("since", "2026-05-05", "earlier one first"),
        ("page", "two", "is not a whole number"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=sentence):
            library_query({"until": "2026-05-04", name: value})
