"""An address that names what is not there is told in one sentence on the page, which can be used all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from app.shared.addresses import Addresses
from app.shared.wiring import Services

Opener = Callable[..., Page]

BAD = (
    ("/?session=99", "There is no session 99. It may have been deleted. What there is stands on Sessions."),
    ("/calibrate?run=77", "There is no calibration 77. It may have been deleted. What there is stands on Calibrate."),
    ("/compare?sessions=1,98", "There is no session 98. It may have been deleted. What there is stands on Sessions."),
    ("/tune?run=5", "There is no tuning 5. It may have been deleted. What there is stands on Tune."),
    ("/evaluate?evaluation=x", "There is no evaluation x. It may have been deleted. What there is stands on Evaluate."),
    ("/swap?session=99", "There is no session 99. It may have been deleted. What there is stands on Sessions."),
    (
        "/paths?run=%2Fetc",
        "There is no run of sampled paths /etc. It may have been deleted. What there is stands on Paths.",
    ),
    ("/batches?batch=99", "There is no batch 99. It may have been deleted. What there is stands on Batches."),
    ("/sessions?batch=99", "There is no batch 99. It may have been deleted. What there is stands on Batches."),
    ("/review?session=99", "There is no session 99. It may have been deleted. What there is stands on Sessions."),
    ("/lists?list=99", "There is no word list 99. It may have been deleted. What there is stands on Word lists."),
)
"""An address of each page."""


@pytest.mark.parametrize(("named", "said"), BAD)
def test_an_address_of_what_is_not_there_says_so_on_its_page(
    visit: Opener, services: Services, named: str, said: str
) -> None:
    page = visit(named)
    expect(page.locator(".missing")).to_have_text(said)
    expect(page.locator("#main, .audit").first).to_be_visible()


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
    (long,) = missing(pages["batches"], {"batch": "9" * 400})
    assert len(long["said"]) < 100


def test_every_page_can_say_what_its_address_names(services: Services) -> None:
    assert [page.path for page in services.pages if not page.names] == []


@pytest.mark.parametrize("query", ["?session=%E0%A4%A", "?branch=%FF&step=x&policy=nobody"])
def test_a_damaged_query_leaves_a_page_that_can_be_used(visit: Opener, services: Services, query: str) -> None:
    page = visit(f"/{query}")
    expect(page.locator("#prompt")).to_be_editable()
    expect(page.locator("[data-do=go]")).to_be_enabled()
