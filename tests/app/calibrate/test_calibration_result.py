"""The result of a calibration: read live, compared, weighted anew, and watched for drift."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.calibrate.service import CalibrationService
from app.shared.audits import CalibrationView, ReadingRequest
from app.shared.jobs import JobService
from app.shared.wiring import Services
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


def test_the_result_says_what_it_certifies_and_what_not_and_can_be_downloaded(shown, picture):
    page = shown()
    expect(page.locator("#result .headline")).to_contain_text("0.93")
    said = page.locator("#promises .said")
    expect(said.first).to_contain_text("Steps 1 to 24")
    expect(said.first).to_contain_text("at least 9 times in 10")
    expect(said.first).to_contain_text("Whole chains, counted up to 16 steps")
    expect(said.nth(1)).to_contain_text("Not steps 25 and later.")
    rows = page.locator("#thresholds tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.nth(3)).to_contain_text("needs at least 9 contexts, has 6")
    expect(rows.nth(4)).to_contain_text("borrowed from 17–24")
    expect(page.locator("#alphas tbody tr")).to_have_count(5)
    expect(page.locator("#alphas tbody tr").last).to_contain_text("needs 499 contexts")
    expect(page.locator("#result-foot .coverage").first).to_contain_text("agrees with 0.90")
    expect(page.locator("#fingerprint .finger")).to_contain_text("float32")
    expect(page.locator("#thresholds-plot")).to_have_attribute("role", "img")
    page.locator("#promises .smallest summary").click()
    expect(page.locator("#promises .smallest tbody tr").nth(2)).to_contain_text("for whole chains")
    expect(page.locator("#drift .badge.drift-unknown")).to_have_text("Too few audits to tell whether it still fits")
    expect(page.locator("#drift-head")).to_contain_text("Record chains")
    expect(page.locator("#drift-plot")).to_have_count(0)
    picture(page, "calibrate-1440-light")
    with page.expect_download() as waiting:
        page.locator("#result").get_by_role("button", name="Download").click()
    assert waiting.value.suggested_filename == "calibration-1.zip"


def test_another_reading_changes_everything_at_once_without_a_run_and_reset_undoes_it(
    shown, services: Services, monkeypatch
):
    service, readings = services[CalibrationService], []
    view = service.view

    def recorded(calibration_id: int, reading: ReadingRequest | None = None) -> CalibrationView:
        readings.append(reading)
        return view(calibration_id, reading)

    monkeypatch.setattr(service, "view", recorded)
    page = shown()
    expect(first_threshold(page)).to_contain_text("0.070")
    set_number(page, "read-alpha", "0.05")
    expect(first_threshold(page)).to_contain_text("0.045")
    note = page.locator("#read-note")
    expect(note).to_contain_text("Read from stored values, without the model: alpha 0.05 instead of 0.10.")
    expect(note).to_have_attribute("aria-live", "polite")
    expect(page.locator("#promises")).to_contain_text("at least 19 times in 20")
    expect(page.locator("#alphas tbody tr strong").first).to_have_text("0.05")
    expect(page.locator("#support-plot")).to_contain_text("τ 0.045")
    page.locator("#read-reset").click()
    expect(first_threshold(page)).to_contain_text("0.070")
    expect(note).to_contain_text("As it was calibrated.")
    expect(page.locator("#read-alpha input[type=number]")).to_have_value("0.1")
    page.locator("#read-alpha input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    expect(note).to_contain_text("alpha 0.101 instead of 0.10")
    set_number(page, "read-width", "4")
    expect(first_threshold(page)).to_contain_text("1–4")
    set_number(page, "read-rho", "2")
    expect(note).to_contain_text("ρ 2 instead of 1")
    expect(page.locator("#promises")).to_contain_text("at most 2 times likelier than here")
    expect(page.locator("#read-draws")).to_have_count(0)
    pick(page, "Estimator", "one per context")
    expect(page.locator("#read-draws")).to_be_visible()
    assert (readings[-1].bin_width, readings[-1].rho, readings[-1].estimator) == (4, 2.0, "one_per_context")
    assert len(services[JobService].list("calibration")) == 1


def test_a_group_has_thresholds_of_its_own_or_is_refused(shown, services: Services, tmp_path: Path):
    page = shown(calibrate_anew(services, tmp_path, "By ward", "grouped"))
    groups = page.locator("#groups tbody tr")
    expect(groups.nth(1)).to_contain_text("refused: 9 contexts needed")
    expect(first_threshold(page)).to_contain_text("0.046")
    pick(page, "Group", "school")
    expect(page.locator("#result")).to_contain_text("Thresholds of the group school alone.")
    expect(first_threshold(page)).to_contain_text("0.045")
    pick(page, "Group", "street")
    expect(page.locator(".toast-body")).to_contain_text("nothing is certified for it")
    expect(page.locator(".toast-message-item")).to_have_count(1)
    expect(page.locator("#read-note")).to_contain_text("what is shown is the reading before")
    expect(page.locator("#result")).to_contain_text("Thresholds of the group school alone.")


def test_families_apart_show_their_shares_and_one_can_be_chosen(shown, services: Services, tmp_path: Path):
    page = shown(calibrate_anew(services, tmp_path, "By family", "factorized"))
    expect(page.locator("#families tbody tr")).to_have_count(2)
    expect(page.locator("#result")).to_contain_text("Thresholds where gender is masked, at its share 0.05")
    expect(page.locator("#promises")).to_contain_text("With one mask for each family there is no such certificate.")
    pick(page, "Family", "religion")
    expect(page.locator("#result")).to_contain_text("Thresholds where religion is masked")
    set_number(page, "read-alpha", "0.05")
    expect(page.locator("#result .noted")).to_contain_text("its share of alpha needs 39; it refuses nothing")


def test_rollouts_show_their_rounds_and_stand_beside_another_run(shown, services: Services, tmp_path: Path, picture):
    number = calibrate_anew(services, tmp_path, "Rollouts of ward notes", "rollout")
    page = shown(number)
    expect(page.locator("#rounds tbody tr")).to_have_count(2)
    expect(page.locator("#rounds tbody tr").last).to_contain_text("2, the one in use")
    expect(page.locator("#result")).not_to_contain_text("under other thresholds than these")
    pick(page, "Other run", "Ward notes, reference")
    differ = page.locator("#compare-settings .differ")
    expect(differ.locator("tbody tr")).to_have_count(4)
    expect(differ).to_contain_text("rollouts")
    rows = page.locator("#compare-table tbody tr")
    expect(rows).to_have_count(6)
    expect(rows.first).to_contain_text("+0.050")
    lines = page.locator("#compare-plot .scatterlayer .js-line")
    assert len({line.evaluate("(node) => node.style.strokeDasharray") for line in lines.all()}) == 2
    set_number(page, "read-alpha", "0.2")
    expect(page.locator("#result")).to_contain_text("The chains were generated under other thresholds than these")
    expect(rows.first).to_contain_text("0.071")
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#saved")).to_contain_text("Copied.")
    picture(page, "calibrate-compare-1440-light")


def test_the_drift_panel_has_a_word_a_sentence_and_a_picture_and_links_lead_to_it(
    shown, services: Services, monkeypatch
):
    monkeypatch.setattr(services[CalibrationService], "drift", lambda number: drift_report("recalibrate"))
    page = shown(anchor="#drift")
    expect(page.locator("#drift .badge.drift-recalibrate")).to_have_text("Recent audits differ: calibrate again")
    expect(page.locator("#drift-head")).to_contain_text("24 audits against 180 contexts")
    expect(page.locator("#drift-plot .scatterlayer .points path")).to_have_count(24)
    expect(page.locator("#drift")).to_be_in_viewport()


def test_weights_for_other_prompts_make_a_new_run(shown, services: Services, tmp_path: Path):
    page = shown()
    expect(page.locator("#reweight-go")).to_be_disabled()
    path = tmp_path / "in use.csv"
    path.write_text("\n".join(["prompt", *map(prompt, range(60))]), "utf-8")
    page.locator("#reweight-file input[type=file]").set_input_files(path)
    page.locator("#reweight-go").click()
    expect(page.locator("#result h2").first).to_have_text("Result: Ward notes, reference, weighted")
    weighted = services[CalibrationService].view(2)
    expect(page.locator("#result .headline")).to_contain_text(
        f"weighted, they count as {weighted.effective_contexts:.0f}"
    )
    expect(page.locator("#result")).to_contain_text("weights estimated, so the level is approximate")
    expect(page.locator("#runs li")).to_have_count(2)


def test_every_part_of_a_run_fits_narrow_and_wide_pages(shown, services: Services, tmp_path: Path, picture):
    name = "A run of rollouts by group with a name that is rather long"
    number = calibrate_anew(services, tmp_path, name, "rollout", by_group=True)
    page = shown(number, width=768, dark=True)
    pick(page, "Other run", "Ward notes, reference")
    expect(page.locator("#compare-table tbody tr")).to_have_count(6)
    for width in (768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 1000})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, f"calibrate-result-{width}-dark")
