"""What the sessions page asks for and says, without a browser."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.sessions.page import library_query
from app.sessions.service import BatchFold, FoldedPage, LibraryQuery, Run
from app.sessions.words import page_message
from app.shared.errors import ServiceError
from db.library import BatchFoldRecord, LibraryChoicesRecord, SessionEntryRecord

NOW = datetime(2026, 5, 4, 14, 2, tzinfo=UTC)
ENTRY = SessionEntryRecord(
    id=7, name="Ward", prompt="The nurse said he", model="demo", policy="coft", certificate="certified", step_count=3,
    branch_count=2, created_at=NOW, updated_at=NOW, archived_at=None, batch_id=None, verdict_count=1,
    tags=("night", "ward"),
)  # fmt: skip
STORED = LibraryChoicesRecord(policies=(("coft", 2),), models=(("demo", 2),), tags=(("ward", 1),))
NONE = LibraryChoicesRecord(policies=(), models=(), tags=())


def shown(*entries, total=None, query=None):
    count = len(entries) if total is None else total
    wanted = query or LibraryQuery(page_size=25)
    pages = max(1, -(-count // wanted.page_size))
    return page_message(FoldedPage(entries, count, count, wanted.page, pages), {7: "“he” is likelier."}, STORED, wanted)


def test_text_from_the_outside_is_shown_and_never_run():
    nasty = '"><img src=x onerror=alert(1)>'
    said = str(shown(replace(ENTRY, name=nasty, prompt=nasty, certificate=nasty, model=nasty, tags=(nasty,)))["html"])
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


def test_the_sorted_column_and_the_place_of_a_page_are_said():
    markup = str(shown(ENTRY, query=LibraryQuery(order="name", descending=False, page_size=25))["html"])
    assert (
        'aria-sort="ascending"><button type="button" class="sort" data-do="sort" data-order="name" data-down="true"'
        in (markup)
    )
    assert markup.count("aria-sort") == 1
    assert 'data-order="updated" data-down="true"' in markup
    assert 'data-order="model" data-down="false"' in markup
    second = LibraryQuery(page=2, page_size=25)
    assert shown(ENTRY, total=26, query=second)["where"] == "26–26 of 26 audits"
    assert shown(ENTRY)["where"] == "1 audit"
    assert shown()["where"] == "0 audits"


def test_a_batch_says_how_many_sessions_it_has_and_what_the_attribute_did_in_them():
    batch = BatchFoldRecord(
        id=3, name="Hiring", session_count=8, sensitive_count=6, uncertified_count=0, judged_count=1, hidden_count=0,
        step_count=40, branch_count=8, held_count=30, missed_count=2, weak_count=0, strongest=3.28, updated_at=NOW,
    )  # fmt: skip

    def said(**changes):
        page = FoldedPage((BatchFold(replace(batch, **changes)), ENTRY), 9, 2, 1, 1)
        return " ".join(str(page_message(page, {}, STORED, LibraryQuery())["html"]).split())

    assert "in 6 of 8." in said()
    assert "certified at 30 of 32 tokens, missed at 2" in said()
    assert " of 8." not in said(sensitive_count=0, strongest=0.1)
    assert "8 sessions without thresholds" in said(uncertified_count=8)
    assert "of 8 judged<" in said()
    assert "of 8 judged, 2 hidden<" in said(hidden_count=2)
    later = FoldedPage((BatchFold(batch), ENTRY), 60, 27, 2, 2)
    message = page_message(later, {}, STORED, LibraryQuery(page=2, page_size=25))
    assert (message["where"], message["batches"], message["ids"]) == ("26–27 of 27 rows, 60 audits", [3], [7])


def test_an_audit_is_titled_by_its_finding_with_name_and_prompt_below_and_a_run_by_its_name():
    said = str(shown(ENTRY, Run("Tuning", "Ward sweep", "./tune?run=4", "100 %, finished", NOW))["html"])
    places = [
        said.index(text) for text in ("“he” is likelier.", ">Ward<", "The nurse said he", "Tuning", "./tune?run=4")
    ]
    assert places == sorted(places)
