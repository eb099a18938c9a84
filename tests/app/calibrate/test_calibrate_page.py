"""The calibrate page clicked through: a prompt set, its settings, a run, its result, and past runs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from app.calibrate.service import CalibrationService
from app.jobs.service import JobContext, JobService
from app.shared.audits import CalibrationView, ReadingRequest
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from tests.app.shared.test_accessibility import faulty
from tests.records import drift_report

GOOD = "prompt,reference,group\nThe nurse said that he, left,a\nThe cook said that she, stayed,b\n"


WATCH_SHIFTS = """() => { window.moved = 0; new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
    window.moved += entry.value; })).observe({ type: 'layout-shift' }); }"""


@pytest.fixture
def page(visit, services: Services) -> Page:
    opened = visit("/calibrate")
    expect(opened.locator("#result h2").first).to_have_text("Result: Ward notes, reference")
    return opened


def upload(page: Page, folder: Path, text: str, name: str = "notes.csv") -> None:
    path = folder / name
    path.write_text(text, "utf-8")
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed")).to_contain_text(name)


def unfold(page: Page, name: str) -> None:
    page.locator(f"#{name} .label-wrap").click()
    expect(page.locator(f"#{name} .label-wrap")).to_have_attribute("aria-expanded", "true")


def pick(page: Page, label: str, option: str, of_result: bool = False) -> None:
    """Choose from a menu of the form or of the result, and wait until its list is gone."""
    menus = page.get_by_label(label, exact=True)
    (menus.last if of_result else menus.first).click()
    page.get_by_role("option", name=option, exact=not of_result).click()
    expect(page.get_by_test_id("dropdown-option")).to_have_count(0)


@pytest.fixture
def held(services: Services, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Calibrations stand at half of their work until this is set."""
    let_go, service = threading.Event(), services[CalibrationService]
    calibrate = service._calibrate

    def half(context: JobContext, *work: Any) -> Calibration:
        context.progress(0.1, "12 of 120 prompts")
        time.sleep(0.6)
        while not let_go.wait(0.1):
            context.check_cancelled()
            further = ", round 2 of rollouts" if int(4 * time.monotonic()) % 2 else ""
            context.progress(0.5, f"60 of 120 prompts{further}")
        return calibrate(context, *work)

    monkeypatch.setattr(service, "_calibrate", half)
    yield let_go
    let_go.set()


def test_a_run_shows_its_progress_is_found_again_cancelled_and_resumed(page: Page, held: threading.Event, tmp_path):
    upload(page, tmp_path, GOOD)
    page.get_by_label("Name", exact=True).fill("My notes")
    expect(page.locator("#estimate")).to_contain_text("2 prompts")
    page.locator("#run").click()
    bar = page.locator("#job [role=progressbar]")
    expect(bar).to_have_attribute("aria-valuenow", "50")
    expect(page.locator("#job")).to_contain_text(re.compile(r"(about \d+|less than 1) s left"))
    expect(page.locator("#job-said")).to_contain_text("50 %")
    page.evaluate(WATCH_SHIFTS)
    for said in (True, False):
        further = expect(page.locator("#job"))
        (further.to_contain_text if said else further.not_to_contain_text)("round 2")
    assert page.evaluate("window.moved") == 0
    page.reload()
    expect(bar).to_be_visible()
    page.locator("#cancel").click()
    expect(page.locator("#cancel")).to_be_hidden()
    held.set()
    page.get_by_role("button", name="Resume My notes").click()
    expect(page.locator("#result h2").first).to_have_text("Result: My notes")
    expect(page.locator("#unfinished li")).to_have_count(0)
    expect(page.locator("#runs li")).to_have_count(2)
    assert faulty(page) == []


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
    pick(page, "Estimator", "one per context: one token each", of_result=True)
    expect(page.locator("#read-draws")).to_be_visible()
    assert (readings[-1].bin_width, readings[-1].estimator) == (4, "one_per_context")
    assert len(services[JobService].list("calibration")) == 1
    assert faulty(page) == []
