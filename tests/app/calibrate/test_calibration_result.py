"""The result of a calibration: read live, compared, weighted anew, and watched for drift."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.calibrate.service import CalibrationService
from app.shared.audits import CalibrationView, ReadingRequest
from app.shared.jobs import JobService
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty
from tests.records import drift_report
from tests.story.seed import calibrate_anew, prompt


@pytest.fixture
def shown(visit):
    """Open a run, by default the first one, and wait for its pictures."""

    def opener(number: int = 1, anchor: str = "", **options: object) -> Page:
        page = visit(f"/calibrate?run={number}{anchor}", **options)
        expect(page.locator("#support-plot .barlayer .point").first).to_be_attached()
        return page

    return opener


def first_threshold(page: Page):
    return page.locator("#thresholds tbody tr").first


def set_number(page: Page, name: str, value: str) -> None:
    page.locator(f"#{name} input[type=number]").fill(value)


def pick(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).last.click()
    page.get_by_role("option", name=option).click()


@pytest.mark.slow
def test_a_result_is_read_otherwise_at_once_without_a_run_and_can_be_downloaded(
    shown, services: Services, monkeypatch, picture
):
    service, readings = services[CalibrationService], []
    view = service.view

    def recorded(calibration_id: int, reading: ReadingRequest | None = None) -> CalibrationView:
        readings.append(reading)
        return view(calibration_id, reading)

    monkeypatch.setattr(service, "view", recorded)
    monkeypatch.setattr(service, "drift", lambda number: drift_report("recalibrate"))
    page = shown(anchor="#drift")
    expect(page.locator("#drift .badge.drift-recalibrate")).to_be_visible()
    expect(page.locator("#drift-plot .scatterlayer .points path")).to_have_count(24)
    expect(page.locator("#drift")).to_be_in_viewport()
    expect(page.locator("#thresholds tbody tr")).to_have_count(5)
    expect(page.locator("#alphas tbody tr")).to_have_count(5)
    expect(page.locator("#thresholds-plot")).to_have_attribute("role", "img")
    picture(page, "calibrate-1440-light")
    with page.expect_download() as waiting:
        page.locator("#result").get_by_role("button", name="Download").click()
    assert waiting.value.suggested_filename == "calibration-1.zip"

    expect(first_threshold(page)).to_contain_text("0.070")
    set_number(page, "read-alpha", "0.05")
    expect(first_threshold(page)).to_contain_text("0.045")
    note = page.locator("#read-note")
    expect(note).to_have_attribute("aria-live", "polite")
    expect(page.locator("#alphas tbody tr strong").first).to_have_text("0.05")
    expect(page.locator("#support-plot")).to_contain_text("τ 0.045")
    page.locator("#read-reset").click()
    expect(first_threshold(page)).to_contain_text("0.070")
    expect(page.locator("#read-alpha input[type=number]")).to_have_value("0.1")
    page.locator("#read-alpha input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    expect(note).to_contain_text("0.101")
    set_number(page, "read-width", "4")
    expect(first_threshold(page)).to_contain_text("1–4")
    expect(page.locator("#read-draws")).to_have_count(0)
    pick(page, "Estimator", "one per context")
    expect(page.locator("#read-draws")).to_be_visible()
    assert (readings[-1].bin_width, readings[-1].estimator) == (4, "one_per_context")
    assert len(services[JobService].list("calibration")) == 1
    assert faulty(page) == []


@pytest.mark.slow
def test_a_run_by_group_stands_beside_another_fits_every_width_and_is_weighted_anew(
    shown, services: Services, tmp_path: Path, picture
):
    name = "A run of rollouts by group with a name that is rather long"
    page = shown(calibrate_anew(services, tmp_path, name, "rollout", by_group=True))
    pick(page, "Group", "street")
    expect(page.locator(".toast-message-item")).to_have_count(1)
    pick(page, "Group", "ward")
    expect(page.locator("#result")).to_contain_text("ward")
    page.locator("#read-reset").click()
    pick(page, "Other run", "Ward notes, reference")
    rows = page.locator("#compare-table tbody tr")
    expect(rows).to_have_count(6)
    lines = page.locator("#compare-plot .scatterlayer .js-line")
    expect(lines.nth(1)).to_be_attached()
    assert len({line.evaluate("(node) => node.style.strokeDasharray") for line in lines.all()}) == 2
    before = rows.first.text_content() or ""
    set_number(page, "read-alpha", "0.2")
    expect(rows.first).not_to_have_text(before)
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#saved")).to_contain_text("Copied.")
    for width in (768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 1000})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, f"calibrate-result-{width}")
    page.locator("#runs").get_by_role("button", name="Ward notes, reference", exact=True).click()
    expect(page.locator("#result h2").first).to_have_text("Result: Ward notes, reference")
    expect(page.locator("#reweight-go")).to_be_disabled()
    path = tmp_path / "in use.csv"
    path.write_text("\n".join(["prompt", *map(prompt, range(60))]), "utf-8")
    page.locator("#reweight-file input[type=file]").set_input_files(path)
    page.locator("#reweight-go").click()
    expect(page.locator("#result h2").first).to_have_text("Result: Ward notes, reference, weighted")
    expect(page.locator("#runs li")).to_have_count(3)
