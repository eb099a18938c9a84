"""The sessions page clicked through."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.ui.fakes import FakeServices


@pytest.fixture
def page(visit, services: FakeServices) -> Page:
    opened = visit("/sessions")
    expect(opened.locator("#sessions tbody tr")).to_have_count(2)
    return opened


def test_sessions_are_searched_and_reopened(page: Page, picture):
    picture(page, "sessions-1440-light")
    page.get_by_label("Search").fill("nurse")
    expect(page.locator("#sessions tbody tr")).to_have_count(1)
    page.get_by_label("Search").fill("nothing like it")
    expect(page.locator("#sessions")).to_contain_text("No audit matches")
    page.get_by_label("Search").fill("nurse")
    page.get_by_role("link", name="Nurse handover").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(38)


def test_an_uncertified_session_says_so_in_the_list(page: Page):
    expect(page.locator("#sessions tbody tr").first).to_contain_text("uncertified: no calibration")


def test_a_report_is_downloaded(page: Page):
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Report of Nurse handover as CSV").click()
    assert waiting.value.suggested_filename == "audit-1.csv"


def test_a_session_is_deleted_only_after_a_question(page: Page, services: FakeServices):
    page.get_by_role("button", name="Delete Nurse handover").click()
    expect(page.locator("dialog#confirm")).to_contain_text("Delete “Nurse handover”?")
    page.keyboard.press("Escape")
    assert 1 in services.audits.stored
    page.get_by_role("button", name="Delete Nurse handover").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator("#sessions tbody tr")).to_have_count(1)
    assert list(services.audits.stored) == [2]


def test_no_session_teaches_the_next_step(visit, services: FakeServices):
    services.audits.stored.clear()
    page = visit("/sessions")
    expect(page.locator("#sessions")).to_contain_text("No audit yet.")
    page.get_by_role("link", name="Start an audit").click()
    expect(page.locator("#prompt")).to_be_visible()
