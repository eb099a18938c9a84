"""Word lists: uploaded, looked at, downloaded, deleted, and picked for audits and calibrations."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.calibrate.service import CalibrationService
from app.lists.service import UserListService
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty
from tests.browser import hand_over
from tests.story.model import PROMPT
from tests.story.seed import calibrate, newest, prompt_set

GOOD = "term,family,action\nrounds,race,mask\nuncle,,keep\nSt. Mary's,religion,\n"
BAD = "term,family,action\nrounds,colour,mask\nuncle,,keep\nUncle,,mask\n"


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


def test_lists_are_uploaded_checked_replaced_downloaded_and_deleted(
    lists: Page, tmp_path: Path, services: Services, picture
):
    save(lists, tmp_path)
    terms = lists.locator("#terms tbody tr")
    expect(terms).to_have_count(3)
    expect(terms.first).to_contain_text("race and ethnicity")
    assert faulty(lists) == []
    with lists.expect_download() as waiting:
        lists.get_by_role("button", name="Download hiring as CSV").click()
    assert "uncle,other,keep" in Path(waiting.value.path()).read_text("utf-8")

    upload(lists, tmp_path, BAD, "bad.csv")
    errors = lists.locator("#parsed-list .errors tbody tr")
    expect(errors).to_have_count(2)
    expect(errors.first).to_contain_text("colour")
    expect(lists.locator("#save-list")).to_be_disabled()
    for scheme in ("light", "dark"):
        lists.emulate_media(color_scheme=scheme)
        picture(lists, f"lists-{scheme}")

    upload(lists, tmp_path, "term\nonly\n")
    lists.locator("#save-list").click()
    expect(lists.locator(".toast-body")).to_contain_text("already")
    lists.get_by_label("Replace the list of this name").check()
    lists.locator("#save-list").click()
    expect(terms).to_have_count(1)

    (replacing,) = services[UserListService].list()
    number = calibrate(services, prompt_set(tmp_path, {8: 20}), "With the list", user_list_id=replacing.id)
    lists.get_by_role("button", name="Delete hiring").click()
    lists.locator("#confirm [value=yes]").click()
    expect(lists.locator(".toast-body").last).to_contain_text("delete the calibration first")
    services[CalibrationService].delete(number)
    lists.get_by_role("button", name="Delete hiring").click()
    lists.locator("#confirm [value=yes]").click()
    expect(lists.get_by_role("button", name="Delete hiring")).to_have_count(0)

    lists.get_by_label("Terms without an action").click()
    lists.get_by_role("option", name="keep: always visible").click()
    save(lists, tmp_path, "uncle\nrounds\n", "ward.txt")
    expect(terms).to_have_count(2)
    (stored,) = services[UserListService].list()
    assert all(term.keep for term in services[UserListService].view(stored.id).terms)


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
