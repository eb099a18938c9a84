"""An address that names what is not there is told in one sentence on the page, which can be used all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from app.serving.addresses import Addresses
from app.shared.wiring import Services

Opener = Callable[..., Page]


MISSING = (("/?session=99", "99"), ("/compare?sessions=1,98", "98"), ("/paths?run=%2Fetc", "/etc"))
DAMAGED = ("?session=%E0%A4%A", "?branch=%FF&step=x&policy=nobody")


@pytest.mark.parametrize(
    ("missing", "damaged"), [(MISSING[:1], ()), pytest.param(MISSING[1:], DAMAGED, marks=pytest.mark.slow)]
)
def test_pages_with_a_bad_address_say_so_and_can_be_used(
    visit: Opener, services: Services, missing: tuple[tuple[str, str], ...], damaged: tuple[str, ...]
) -> None:
    page = visit("/batches?batch=99")
    expect(page.locator(".missing")).to_contain_text("99")
    root = page.url.partition("/batches")[0]
    for path, named in missing:
        page.goto(root + path)
        expect(page.locator(".missing")).to_contain_text(named)
        expect(
            page.locator("#main :is(button, input, textarea):enabled:visible, #main th:visible").first
        ).to_be_visible()
    for query in damaged:
        page.goto(f"{root}/{query}")
        expect(page.locator("#prompt")).to_be_editable()
        expect(page.locator("[data-do=go]")).to_be_enabled()


def test_nothing_is_said_of_an_address_whose_session_is_there_and_all_that_is_missing_is_said(
    services: Services,
) -> None:
    pages = {page.path: page for page in services.pages}
    missing = services[Addresses].missing
    assert list(missing(pages[""], {"session": "1", "step": "3"})) == []
    found = list(missing(pages["compare"], {"sessions": "98, 1,<b>"}))
    assert [item["said"].split(".")[0] for item in found] == ["There is no session 98", "There is no session <b>"]
    named = (
        ({"session": "9f"}, ""),
        ({"calibration": "77"}, ""),
        ({"set": "98"}, "compare"),
        ({"result": "00ff"}, "swap"),
    )
    assert [item["said"].split(".")[0] for query, path in named for item in missing(pages[path], query)] == [
        "There is no session 9f", "There is no calibration 77", "There is no comparison 98", "There is no swap 00ff"
    ]  # fmt: skip
    for path, query in (
        ("calibrate", "run"), ("tune", "run"), ("evaluate", "evaluation"), ("swap", "session"), ("sessions", "batch"),
        ("review", "session"), ("lists", "list"), ("batches", "batch"), ("decisions", "run"), ("paths", "run"),
    ):  # fmt: skip
        (entry,) = missing(pages[path], {query: "77"})
        assert "77" in entry["said"], path
    (long,) = missing(pages["batches"], {"batch": "9" * 400})
    assert len(long["said"]) < 100


def test_every_page_that_shows_one_thing_can_say_what_its_address_names(services: Services) -> None:
    assert [page.path for page in services.pages if not page.names] == ["models"]
