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

from app.calibrate.service import CalibrationService, request_from_json
from app.shared.audits import CalibrationRequest, CalibrationView, ReadingRequest
from app.shared.jobs import JobContext, JobService
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from db.prompt_sets import PromptSetsRepository
from tests.app.shared.test_accessibility import faulty
from tests.records import drift_report
from tests.story.seed import CALIBRATION, calibrate_anew, prompt

GOOD = "prompt,reference,group\nThe nurse said that he, left,a\nThe cook said that she, stayed,b\n"
MIXED = GOOD + "The clerk said that he,,c\n" + "".join(f",left {number},d\n" for number in range(60))
OTHER_NAMES = "note,what came next,scene\nThe nurse said that he, left,a\nThe German cook, stayed,b\n"


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


def asked(services: Services) -> CalibrationRequest:
    """What the newest run was asked."""
    return request_from_json(services[JobService].list()[0].payload["request"])


def run(page: Page, services: Services) -> CalibrationRequest:
    """Run, and wait until this run is listed; what is said of the run before it says "finished" too."""
    listed = page.locator("#runs li")
    before = listed.count()
    page.locator("#run").click()
    expect(listed).to_have_count(before + 1)
    expect(page.locator("#job")).to_contain_text("finished")
    return asked(services)


@pytest.mark.slow
def test_bad_rows_are_left_out_only_when_asked_and_a_run_is_deleted_only_after_a_question(
    page: Page, services: Services, tmp_path, picture
):
    upload(page, tmp_path, MIXED)
    region = page.get_by_role("region", name="Rows that cannot be used")
    errors = region.locator("tbody tr")
    expect(errors).to_have_count(61)
    expect(page.locator("#row-errors")).to_contain_text("61 of 63")
    expect(page.locator("#columns .label-wrap")).to_have_attribute("aria-expanded", "false")
    assert region.evaluate("(node) => node.scrollHeight > node.clientHeight && node.tabIndex === 0")
    page.locator("#run").click()
    toast = page.locator(".toast-body")
    expect(toast).to_contain_text("61 of 63")
    # An error has no timer: its reader closes it.
    lengths = toast.evaluate(
        "(node) => node.getAnimations({ subtree: true }).map((it) => it.effect.getTiming().duration)"
    )
    assert all(length < 2_000 for length in lengths)
    page.locator(".toast-close").click()
    expect(toast).to_have_count(0)
    picture(page, "calibrate-row-errors-1440-light")
    page.get_by_label("Go on with the 2 good rows").check()
    assert run(page, services).accept_errors
    expect(page.locator("#result h2").first).to_have_text("Result: notes")
    for answer, left in (("no", 2), ("yes", 1)):
        page.get_by_role("button", name="Delete notes").click()
        page.locator(f"dialog#confirm [value={answer}]").click()
        expect(page.locator("#runs li")).to_have_count(left)
    assert [item.id for item in services[CalibrationService].list()] == [1]
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV", exact=True).click()
    first = Path(waiting.value.path()).read_text("utf-8").splitlines()[0]
    assert first == "prompt,reference,spans,group,context,weight,messages"


@pytest.mark.slow
def test_columns_of_other_names_are_chosen_and_a_file_that_cannot_be_used_says_why(
    page: Page, services: Services, tmp_path
):
    upload(page, tmp_path, OTHER_NAMES)
    expect(page.locator("#columns .label-wrap")).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#run")).to_be_disabled()
    pick(page, "prompt", "note")
    rows = page.locator("#preview .preview li")
    expect(rows).to_have_count(2)
    expect(rows.nth(1).locator(".span.f-nationality")).to_have_count(1)
    pick(page, "reference", "what came next")
    pick(page, "group", "scene")
    expect(page.locator("#preview")).to_contain_text("group a")
    unfold(page, "fold-mask")
    page.locator("#masked-families").get_by_label("nationality").uncheck()
    expect(rows.nth(1).locator(".span.f-nationality")).to_have_count(0)
    run(page, services)
    stored = services[PromptSetsRepository].rows(services[JobService].list()[0].payload["prompt_set_id"])
    assert stored[0].example.reference == " left"
    page.reload()
    expect(page.locator("#result .headline")).to_be_visible()
    path = tmp_path / "empty.csv"
    path.write_text(" ", "utf-8")
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed").get_by_role("alert")).to_contain_text("empty.csv")
    expect(page.locator("#run")).to_be_disabled()
    expect(page.locator(".toast-body")).to_have_count(0)
    page.locator(".samples button").first.click()
    expect(page.locator("#run")).to_be_enabled()
    expect(page.locator("#parsed").get_by_role("alert")).to_have_count(0)


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


@pytest.mark.slow
def test_a_choice_brings_its_fields_and_what_is_folded_says_what_it_holds(
    page: Page, services: Services, tmp_path, picture
):
    summary = page.locator("#fold-estimator .label-wrap")
    expect(summary).to_have_attribute("data-summary", "hierarchical, each step")
    unfold(page, "fold-estimator")
    width = page.locator("#fold-estimator").get_by_label("Steps of a bin").first
    expect(width).to_be_hidden()
    pick(page, "Estimator", "one per context: one token each")
    pick(page, "Steps that share a threshold", "the same number throughout, as in the paper")
    expect(summary).to_have_attribute("data-summary", "one per context, even bins of 8")
    expect(width).to_be_visible()
    expect(page.locator("#fold-estimator").get_by_label("Draws that are averaged").first).to_be_visible()
    unfold(page, "fold-check")
    for source, visible in (("Rollouts: ", "#rollouts"), ("The references: ", "#fold-check")):
        page.get_by_label(source).first.check()
        expect(page.locator(visible)).to_be_visible()
    expect(page.locator("#rollouts")).to_be_hidden()
    upload(page, tmp_path, GOOD)
    expect(page.locator("#estimate")).to_contain_text("2 prompts")
    unfold(page, "fold-mask")
    page.get_by_label("One masked view for each family").check()
    page.get_by_label("by hand").check()
    expect(page.locator("#estimate")).to_contain_text("check again")
    expect(page.locator("#shares input:visible")).to_have_count(8)
    page.locator("#shares").get_by_label("gender").fill("0.05")
    expect(page.locator("#shares-sum .caution, #shares-sum.caution, #shares-sum p.caution")).to_be_visible()
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_have_count(1)
    assert services[JobService].list()[0].title == CALIBRATION
    picture(page, "calibrate-shares-1440-light")
    page.locator("#shares").get_by_label("gender").fill("0.01")
    made = run(page, services)
    assert (made.mask_layout, made.estimator, made.bin_spacing) == ("factorized", "one_per_context", "even")
    assert dict(made.alpha_by_family)["gender"] == 0.01


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


@pytest.mark.slow
def test_a_run_by_group_stands_beside_another_fits_every_width_and_is_weighted_anew(
    shown, services: Services, tmp_path: Path, picture
):
    name = "A run of rollouts by group with a name that is rather long"
    page = shown(calibrate_anew(services, tmp_path, name, "rollout", by_group=True))
    pick(page, "Group", "street", of_result=True)
    expect(page.locator(".toast-message-item")).to_have_count(1)
    pick(page, "Group", "ward", of_result=True)
    expect(page.locator("#result")).to_contain_text("ward")
    page.locator("#read-reset").click()
    pick(page, "Other run", "Ward notes, reference", of_result=True)
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
