"""The page of decisions: a file is read, its finding shown, and evidence downloaded."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from app.decisions.service import DecisionService
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import broken
from tests.browser import hand_over
from tests.conftest import verifier


def test_a_file_gives_a_finding_a_picture_and_evidence_that_verifies(visit, services: Services, tmp_path: Path):
    page = visit("/decisions")
    expect(page.locator("#runs")).to_contain_text("Nothing was read yet")
    (path := tmp_path / "people.csv").write_text(
        "sex,outcome,pair\n" + "".join(f"men,hire,{n}\nwomen,{'hire' if n % 3 else 'no'},{n}\n" for n in range(30)),
        "utf-8",
    )
    hand_over(page, "#decisions-upload", path)
    expect(page.locator("#parsed-decisions")).to_contain_text("60 rows")
    expect(page.locator("#compare-groups")).to_be_disabled()
    page.get_by_label("group", exact=True).click()
    page.get_by_role("option", name="sex").click()
    page.locator("#selected input, #selected textarea").fill("hire")
    page.locator("#compare-groups").click()
    expect(page.locator("#decided .finding")).to_contain_text("“women” is selected 0.67 times as often as “men”")
    expect(page.locator("#decided .decided .low .mark")).to_have_count(1)
    assert broken(page) == []
    page.locator("#downloads-fold .label-wrap").click()
    page.get_by_label("Kind", exact=True).click()
    page.get_by_role("option", name="Signed evidence bundle").click()
    with page.expect_download() as download:
        page.locator("#download-decisions").click()
    download.value.save_as(bundle := tmp_path / "bundle.zip")
    assert verifier(services.settings).verify(bundle).ok
    page.get_by_role("button", name="Delete people").click()
    page.locator("dialog, [role=dialog], [role=alertdialog]").get_by_role("button", name="Delete").click()
    expect(page.locator("#runs")).to_contain_text("Nothing was read yet")
    assert services[DecisionService].list() == []
