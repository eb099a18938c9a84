"""The result of a calibration: read live, compared, weighted anew, and watched for drift."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.calibrate.service import CalibrationService
from tests.fakes import FakeServices

MADE_UP = True


@pytest.fixture
def shown(visit, services: FakeServices):
    def opener(kind: str | None = None, anchor: str = "", **settings: object) -> Page:
        number = services[CalibrationService].add(f"Run {kind}", kind, **settings) if kind else 1
        page = visit(f"/calibrate?run={number}{anchor}")
        expect(page.locator("#support-plot .barlayer .point").first).to_be_attached()
        return page

    return opener


def first_threshold(page: Page):
    return page.locator("#thresholds tbody tr").first


def set_number(page: Page, name: str, value: str) -> None:
    page.locator(f"#{name} input[type=number]").fill(value)


def test_the_result_says_what_it_certifies_and_what_not(shown, picture):
    page = shown()
    expect(page.locator("#result .headline")).to_contain_text("0.91")
    said = page.locator("#promises .said")
    expect(said.first).to_contain_text("Steps 1 to 24")
    expect(said.first).to_contain_text("at least 9 times in 10")
    expect(said.first).to_contain_text("Whole chains, counted up to 24 steps")
    expect(said.nth(1)).to_contain_text("Not steps 25 and later.")
    rows = page.locator("#thresholds tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.nth(3)).to_contain_text("needs at least 9 contexts, has 6")
    expect(rows.nth(4)).to_contain_text("borrowed from 17–24")
    expect(page.locator("#alphas tbody tr")).to_have_count(5)
    expect(page.locator("#alphas tbody tr").last).to_contain_text("needs 499 contexts")
    expect(page.locator("#result-foot .coverage")).to_contain_text("agrees with 0.90")
    expect(page.locator("#fingerprint .finger")).to_contain_text("float32")
    expect(page.locator("#thresholds-plot")).to_have_attribute("role", "img")
    page.locator("#promises .smallest summary").click()
    expect(page.locator("#promises .smallest tbody tr").nth(2)).to_contain_text("for whole chains")
    picture(page, "calibrate-1440-light")


def test_another_alpha_rereads_everything_at_once_and_reset_undoes_it(shown, services: FakeServices):
    page = shown()
    expect(first_threshold(page)).to_contain_text("0.060")
    set_number(page, "read-alpha", "0.05")
    expect(first_threshold(page)).to_contain_text("0.030")
    note = page.locator("#read-note")
    expect(note).to_contain_text("Read from stored values, without the model: alpha 0.05 instead of 0.10.")
    expect(note).to_have_attribute("aria-live", "polite")
    expect(page.locator("#promises")).to_contain_text("at least 19 times in 20")
    expect(page.locator("#alphas tbody tr strong").first).to_have_text("0.05")
    expect(page.locator("#support-plot")).to_contain_text("τ 0.03")
    page.locator("#read-reset").click()
    expect(first_threshold(page)).to_contain_text("0.060")
    expect(note).to_contain_text("As it was calibrated.")
    expect(page.locator("#read-alpha input[type=number]")).to_have_value("0.1")
    page.locator("#read-alpha input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    expect(note).to_contain_text("alpha 0.101 instead of 0.10")
    assert services[CalibrationService].requests == []


def test_bin_width_rho_and_estimator_are_read_too(shown, services: FakeServices):
    page = shown()
    set_number(page, "read-width", "4")
    expect(first_threshold(page)).to_contain_text("1–4")
    set_number(page, "read-rho", "2")
    expect(page.locator("#read-note")).to_contain_text("ρ 2 instead of 1")
    expect(page.locator("#promises")).to_contain_text("at most 2 times likelier than here")
    expect(page.locator("#read-draws")).to_have_count(0)
    page.get_by_label("Estimator", exact=True).last.click()
    page.get_by_role("option", name="one per context").click()
    expect(page.locator("#read-draws")).to_be_visible()
    asked = services[CalibrationService].readings[-1]
    assert (asked.bin_width, asked.rho, asked.estimator) == (4, 2.0, "one_per_context")


def test_a_group_has_thresholds_of_its_own_or_is_refused(shown):
    page = shown("grouped")
    groups = page.locator("#groups tbody tr")
    expect(groups.nth(1)).to_contain_text("refused: 9 contexts needed")
    page.get_by_label("Group", exact=True).click()
    page.get_by_role("option", name="ward").click()
    expect(page.locator("#result")).to_contain_text("Thresholds of the group ward alone.")
    expect(first_threshold(page)).to_contain_text("0.048")
    page.get_by_label("Group", exact=True).click()
    page.get_by_role("option", name="street").click()
    expect(page.locator(".toast-body")).to_contain_text("nothing is certified for it")
    expect(page.locator(".toast-message-item")).to_have_count(1)
    expect(page.locator("#read-note")).to_contain_text("what is shown is the reading before")
    expect(page.locator("#result")).to_contain_text("Thresholds of the group ward alone.")


def test_families_apart_show_their_shares_and_one_can_be_chosen(shown):
    page = shown("factorized")
    expect(page.locator("#families tbody tr")).to_have_count(3)
    expect(page.locator("#result")).to_contain_text("Thresholds where gender is masked, at its share 0.03333")
    expect(page.locator("#promises")).to_contain_text("With one mask for each family there is no such certificate.")
    expect(page.locator("#result .noted")).to_contain_text("its own share of alpha")
    page.get_by_label("Family", exact=True).click()
    page.get_by_role("option", name="religion").click()
    expect(page.locator("#result")).to_contain_text("Thresholds where religion is masked")


def test_rollouts_show_their_rounds_and_another_reading_its_note(shown):
    page = shown("rollout")
    expect(page.locator("#rounds tbody tr")).to_have_count(3)
    expect(page.locator("#rounds tbody tr").last).to_contain_text("3, the one in use")
    expect(page.locator("#result .noted")).to_have_count(0)
    set_number(page, "read-alpha", "0.2")
    expect(page.locator("#result .noted")).to_contain_text("The chains were generated under other thresholds")


def test_two_runs_side_by_side(shown, services: FakeServices, picture):
    services[CalibrationService].add("Rollouts of ward notes", "rollout")
    page = shown()
    page.get_by_label("Other run").click()
    page.get_by_role("option", name="Rollouts of ward notes").click()
    differ = page.locator("#compare-settings .differ tbody tr")
    expect(differ).to_have_count(3)
    expect(page.locator("#compare-settings .differ")).to_contain_text("lambda")
    expect(page.locator("#compare-table tbody tr")).to_have_count(5)
    expect(page.locator("#compare-table tbody tr").first).to_contain_text("−0.009")
    lines = page.locator("#compare-plot .scatterlayer .js-line")
    assert len({line.evaluate("(node) => node.style.strokeDasharray") for line in lines.all()}) == 2
    set_number(page, "read-alpha", "0.05")
    expect(page.locator("#compare-table tbody tr").first).to_contain_text("0.030")
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#saved")).to_contain_text("Copied.")
    picture(page, "calibrate-compare-1440-light")


def test_the_drift_panel_has_a_word_a_sentence_and_a_picture_and_links_lead_to_it(shown, services: FakeServices):
    services[CalibrationService].drifts[1] = "recalibrate"
    page = shown(anchor="#drift")
    expect(page.locator("#drift .badge.drift-recalibrate")).to_have_text("calibrate again")
    expect(page.locator("#drift-head")).to_contain_text("24 audits against 180 contexts")
    expect(page.locator("#drift-plot .scatterlayer .points path")).to_have_count(24)
    expect(page.locator("#drift")).to_be_in_viewport()


def test_without_recorded_chains_drift_is_unknown_and_says_what_to_do(shown):
    page = shown("reference")
    expect(page.locator("#drift .badge.drift-unknown")).to_have_text("unknown")
    expect(page.locator("#drift-head")).to_contain_text("Record chains")
    expect(page.locator("#drift-plot")).to_have_count(0)


def test_weights_for_other_prompts_make_a_new_run(shown, services: FakeServices, tmp_path: Path):
    page = shown()
    expect(page.locator("#reweight-go")).to_be_disabled()
    path = tmp_path / "in use.csv"
    path.write_text("prompt\nThe sailor said\nThe pilot said\n", "utf-8")
    page.locator("#reweight-file input[type=file]").set_input_files(path)
    page.locator("#reweight-go").click()
    expect(page.locator("#result h2").first).to_have_text("Result: Ward notes, reference, weighted")
    expect(page.locator("#result .headline")).to_contain_text("weighted, they count as 96")
    expect(page.locator("#result .noted")).to_contain_text("The weights are estimated")
    expect(page.locator("#runs li")).to_have_count(2)
    assert services[CalibrationService].deployments == [("The sailor said", "The pilot said")]


def test_a_run_can_be_downloaded(shown):
    page = shown()
    with page.expect_download() as waiting:
        page.locator("#result").get_by_role("button", name="Download").click()
    assert waiting.value.suggested_filename == "calibration-1.zip"


@pytest.mark.parametrize(("width", "dark"), [(768, True), (1280, False), (1920, True)])
def test_every_kind_of_run_fits_the_page(visit, services: FakeServices, width: int, dark: bool, picture):
    services[CalibrationService].add(
        "A run of rollouts by group with a name that is rather long", "rollout", by_group=True
    )
    page = visit("/calibrate?run=2", width=width, dark=dark)
    page.get_by_label("Other run").click()
    page.get_by_role("option", name="Ward notes, reference").click()
    expect(page.locator("#compare-table tbody tr")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page, f"calibrate-result-{width}-{'dark' if dark else 'light'}")
