"""The page of paths clicked through."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.jobs.service import JobService
from app.paths.service import PathsService
from app.paths.types import PathsRequest, PathsView, Question
from app.shared.audits import AuditSettings
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty
from tests.story.model import PROMPT

SETTINGS = AuditSettings(max_new_tokens=3, top_p=1.0)
REQUEST = PathsRequest(PROMPT, SETTINGS, paths=48, pronouns=("she",), question=Question("he", "they"))


@pytest.fixture
def sampled(services: Services) -> PathsView:
    """A run that is done before the page is opened."""
    job = services[JobService].wait(services[PathsService].submit(REQUEST))
    assert job.status == "done", job.error
    return services[PathsService].view(job.id)


@pytest.fixture
def paths(visit):
    """Open the page and wait until it listens."""

    def opener(query: str = "") -> Page:
        page = visit(f"/paths{query}")
        expect(page.locator("body[data-ready]")).to_have_count(1)
        return page

    return opener


def test_a_run_is_found_again_read_by_keyboard_down_to_an_audit_and_downloaded(
    paths, sampled: PathsView, services: Services, tmp_path: Path
) -> None:
    page = paths()
    expect(page.locator("#runs li[aria-current]")).to_have_count(1)
    expect(page.locator("#paths-said .lead")).to_have_count(2)
    cell = page.locator("#paths-tree .icicle").first.locator("button.cell").nth(1)
    expect(cell).to_have_accessible_name(cell.get_attribute("title") or "")
    cell.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#h-beginning")).to_contain_text("Paths that begin with")
    expect(page.locator("#paths-tree .icicle").first.locator("[aria-current]")).to_have_count(1)
    expect(cell).to_be_focused()
    page.locator("#paths-beginning [data-do=audit]").first.click()
    notice = page.locator("#paths-opened .notice")
    expect(notice).to_contain_text("are the same")
    number = int((notice.locator("a").get_attribute("href") or "").rpartition("=")[2])
    audit = services[AuditService].view(number)
    drawn = {path.token_ids for item in sampled.worlds for path in item.paths}
    assert tuple(step.token_id for step in audit.steps) in drawn

    pictured = page.locator("#paths-tree .icicle").first.locator("button.cell")
    expect(pictured.first).to_be_visible()
    expect(page.locator("#paths-numbers table tbody").first.locator("tr")).to_have_count(pictured.count() - 1)
    with page.expect_download() as downloading:
        page.locator("#paths-tables").get_by_role("button", name="Paths (CSV)").click()
    downloading.value.save_as(tmp_path / "paths.csv")
    rows = list(csv.DictReader((tmp_path / "paths.csv").open(encoding="utf-8", newline="")))
    assert len(rows) == 3 * sampled.drawn
    assert faulty(page) == []
