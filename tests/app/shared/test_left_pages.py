"""A page that is left while it waits for answers leaves no errors in the console."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

Opener = Callable[..., Page]


@pytest.mark.slow
def test_pages_that_are_left_with_requests_in_flight_write_no_error_into_the_console(visit: Opener) -> None:
    page = visit("/sessions")
    root, errors = page.url.removesuffix("/sessions"), []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    for path in ("/", "/batches", "/lists", "/", "/sessions"):
        page.goto(f"{root}{path}", wait_until="load")
        expect(page.locator(".topbar .brand")).to_be_visible()
    assert errors == []
