"""Word lists: uploaded, looked at, downloaded, deleted, and picked for audits and calibrations."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.wiring import Services
from tests.browser import hand_over
from tests.story.model import PROMPT
from tests.story.seed import newest

GOOD = "term,family,action\nrounds,race,mask\nuncle,,keep\nSt. Mary's,religion,\n"


def upload(page: Page, folder: Path, content: str = GOOD, name: str = "hiring.csv") -> None:
    path = folder / name
    path.write_text(content, "utf-8")
    hand_over(page, "#list-upload", path)
    expect(page.locator("#parsed-list")).to_contain_text(name)


def save(page: Page, folder: Path, content: str = GOOD, name: str = "hiring.csv") -> None:
    upload(page, folder, content, name)
    page.locator("#save-list").click()
    expect(page.locator("#lists")).to_contain_text(name.split(".")[0])


@pytest.fixture
def lists(visit) -> Page:
    page = visit("/lists")
    expect(page.locator("#lists")).to_contain_text("No word list yet")
    return page


def choose(page: Page) -> None:
    page.get_by_label("Word list", exact=True).click()
    page.get_by_role("option", name="hiring").click()


@pytest.mark.slow
def test_a_picked_list_marks_its_terms_keeps_others_and_shows_the_mismatch(
    lists: Page, tmp_path: Path, audit, services: Services
):
    save(lists, tmp_path)
    page = audit()
    page.locator("#prompt").fill(PROMPT)
    rows = page.locator(".spanlist tbody tr")
    expect(rows).to_have_count(2)
    page.locator(".fold .label-wrap", has_text="Masking").click()
    choose(page)
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("list: hiring, kept")
    expect(rows.nth(1)).to_contain_text("list: hiring")
    expect(page.locator(".masked")).to_contain_text("uncle")
    expect(page.locator(".masked b")).to_have_count(2)
    expect(page.locator(".rail .note", has_text="word list none there, 'hiring' here").last).to_be_visible()
    page.get_by_role("button", name="Mask it: uncle").click()
    expect(page.locator(".masked b")).to_have_count(3)
    page.locator("#prompt").press("Control+End")
    page.locator("#prompt").press_sequentially(" she")
    expect(page.locator(".masked b")).to_have_count(4)
    page.locator("[data-do=step]").click()
    expect(page.locator(".notice")).to_contain_text("used with list 'hiring'")
    page.get_by_role("button", name="Proceed uncertified").click()
    expect(page.locator(".count")).to_contain_text("1 of 64")
    assert services[AuditService].view(newest(services)).settings.user_list_id == 1
