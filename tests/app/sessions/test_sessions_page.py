"""The sessions page clicked through."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.report.service import ReportService
from app.report.signing import Signer
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.wiring import Services
from db.sessions import SessionsRepository
from tests.app.shared.test_accessibility import faulty
from tests.story.model import PROMPT
from tests.story.seed import newest


@pytest.fixture
def page(visit, services: Services) -> Page:
    services[SessionLibrary].tag([1], "handover")
    opened = visit("/sessions")
    expect(rows(opened)).to_have_count(2)
    return opened


def stored(services: Services) -> list[int]:
    return sorted(item.id for item in services[SessionsRepository].list())


def archived(services: Services) -> int:
    return services[SessionLibrary].search(LibraryQuery(archived=True)).total


def rows(page: Page):
    return page.locator("#sessions tbody tr:not(.run)")


def choose(page: Page, name: str) -> None:
    page.get_by_role("checkbox", name=f"Choose {name}", exact=True).check()


def more(page: Page, name: str, action: str) -> None:
    page.get_by_role("button", name=f"More actions for {name}").click()
    page.get_by_role("menuitem", name=action).click()


def answer(page: Page, text: str) -> None:
    page.locator("#ask-text").fill(text)
    page.keyboard.press("Enter")


def test_sessions_are_searched_filtered_sorted_renamed_tagged_archived_and_deleted(
    page: Page, services: Services, picture, monkeypatch
):
    picture(page, "sessions-1440-light")
    page.get_by_role("button", name="Strongest sensitivity, what it means").press("Enter")
    expect(page.get_by_role("dialog", name="Sensitivity")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Changed from")).to_be_hidden()
    page.locator(".filters summary").press("Enter")
    search = Mock(side_effect=services[SessionLibrary].folded)
    monkeypatch.setattr(services[SessionLibrary], "folded", search)
    page.get_by_label("Search").press_sequentially("nurse")
    expect(rows(page)).to_have_count(1)
    searched = [call.args[0].text for call in search.call_args_list]
    assert searched.count("nurse") == 1
    assert len(searched) < 2 + len("nurse")
    page.get_by_label("Search").fill("nothing like it")
    page.get_by_role("button", name="Show all sessions").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Thresholds", exact=True).select_option("certified")
    expect(rows(page)).to_have_count(1)
    tomorrow = (datetime.now() + timedelta(days=1)).date().isoformat()
    page.get_by_label("Changed from").fill(tomorrow)
    expect(rows(page)).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Changed from")).to_be_visible()
    expect(page.get_by_label("Changed from")).to_have_value(tomorrow)
    page.get_by_role("button", name="Clear filters").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Steps").click()
    expect(rows(page).first).to_contain_text("Nurse handover")
    expect(page.get_by_role("columnheader", name="Steps")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Steps").click()
    expect(rows(page).first).to_contain_text("Tourist")
    expect(page.get_by_role("button", name="Steps")).to_be_focused()
    nurse = rows(page).filter(has_text="Nurse handover")
    expect(nurse.locator(".kind")).to_have_text("Audit")
    expect(nurse.locator(".session a")).to_have_attribute("href", "./?session=1")
    expect(nurse.locator(".session a")).to_have_text(services[AuditService].finding(1))
    choose(page, "Nurse handover")
    expect(page.get_by_role("toolbar")).to_be_visible()
    assert faulty(page) == []
    _one_is_renamed_tagged_archived_and_deleted_after_a_question(page, services)


def _one_is_renamed_tagged_archived_and_deleted_after_a_question(page: Page, services: Services) -> None:
    more(page, "Nurse handover", "Rename")
    expect(page.locator("#ask-text")).to_have_value("Nurse handover")
    answer(page, "Ward 4")
    expect(rows(page).filter(has_text="Ward 4")).to_be_visible()
    page.get_by_role("button", name="Remove tag handover from Ward 4").click()
    expect(page.locator(".chip")).to_have_count(0)
    page.get_by_role("button", name="Add a tag to Ward 4").click()
    answer(page, "night")
    expect(page.locator(".chip")).to_contain_text("night")
    page.locator(".chip [data-do=by-tag]").click()
    expect(rows(page)).to_have_count(1)
    more(page, "Ward 4", "Archive")
    expect(page.locator("#sessions")).to_contain_text("Archived ones are left out.")
    page.get_by_label("Archive").select_option("yes")
    expect(rows(page)).to_contain_text("archived")
    more(page, "Ward 4", "Take out of the archive")
    expect(page.locator(".told")).to_have_text("1 session unarchived.")
    assert archived(services) == 0
    page.get_by_role("button", name="Show all sessions").click()
    more(page, "Ward 4", "Delete")
    expect(page.locator("dialog#confirm")).to_contain_text("Delete “Ward 4”?")
    page.keyboard.press("Escape")
    expect(page.locator("dialog#confirm")).to_be_hidden()
    assert stored(services) == [1, 2]
    run = page.locator("#sessions tr.run")
    expect(run.locator(".kind")).to_have_text("Calibration")
    expect(run.locator(".session a")).to_have_attribute("href", "./calibrate?job=1")
    more(page, "Ward 4", "Delete")
    page.locator("dialog#confirm [value=yes]").click()
    expect(rows(page)).to_have_count(1)
    assert stored(services) == [2]


@pytest.mark.slow
def test_a_session_is_duplicated_and_a_bundle_of_another_server_is_imported(
    page: Page, visit, services: Services, tmp_path: Path
):
    more(page, "Nurse handover", "Duplicate with other settings")
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    expect(page.locator("#transcript .notice")).to_contain_text("A copy of a session")
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    page.locator("[data-do=step]").click()
    expect(page.locator("#transcript .count")).to_contain_text("1 of 64 steps")
    started = services[AuditService].view(newest(services))
    assert (started.settings.calibration_id, [span.kept for span in started.spans]) == (1, [True, False])
    assert "duplicate" not in page.url
    assert stored(services) == [1, 2, 3]

    page = visit("/sessions")
    bundle = tmp_path / "evidence.zip"
    bundle.write_bytes(services[ReportService].bundle(1))
    with page.expect_download() as key:
        page.get_by_role("link", name="Public key").click()
    assert Path(key.value.path()).read_text() == services[Signer].public_key
    page.locator("#bundle-upload input[type=file]").set_input_files(bundle)
    page.locator("#bundle-said").get_by_role("link").click()
    expect(page.get_by_text("Imported read-only").first).to_be_visible()
