"""The calibrate page clicked through."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.ui.fake_services import FakeServices

GOOD = "prompt,reference,group\nThe nurse said that he, left,a\nThe cook said that she, stayed,b\n"
MIXED = GOOD + "The clerk said that he,,c\n,was late,d\n"


@pytest.fixture
def page(visit, services: FakeServices) -> Page:
    opened = visit("/calibrate")
    expect(opened.locator("#result h2").first).to_have_text("Result: Ward notes, reference")
    return opened


def upload(page: Page, folder: Path, text: str, name: str = "notes.csv") -> None:
    path = folder / name
    path.write_text(text, "utf-8")
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed")).to_contain_text(name)


def test_the_result_says_what_it_certifies_and_what_not(page: Page, picture):
    expect(page.locator("#result .headline")).to_contain_text("0.91")
    expect(page.locator("#result .said").first).to_contain_text("Steps 1 to 24")
    expect(page.locator("#result .said").first).to_contain_text("at least 9 times in 10")
    expect(page.locator("#result .said").nth(1)).to_contain_text("Not steps 25 and later.")
    expect(page.locator(".thresholds tbody tr")).to_have_count(5)
    expect(page.locator(".thresholds tbody tr").nth(3)).to_contain_text("needs at least 9 contexts, has 6")
    expect(page.locator(".thresholds tbody tr").nth(4)).to_contain_text("borrowed from 17–24")
    expect(page.locator("#alphas tbody tr")).to_have_count(5)
    expect(page.locator("#alphas tbody tr").last).to_contain_text("needs 499 contexts")
    expect(page.locator("#result-foot .coverage")).to_contain_text("agrees with 0.90")
    expect(page.locator("#result-foot .finger")).to_contain_text("float32")
    expect(page.locator("#support-plot .barlayer .point").first).to_be_attached()
    picture(page, "calibrate-1440-light")


def test_bad_rows_are_listed_and_left_out_only_when_asked(page: Page, services: FakeServices, tmp_path, picture):
    upload(page, tmp_path, MIXED)
    errors = page.locator("#parsed .errors tbody tr")
    expect(errors).to_have_count(2)
    expect(errors.first).to_contain_text("4")
    expect(errors.first).to_contain_text("reference")
    expect(errors.first).to_contain_text("is empty")
    expect(page.locator("#parsed .preview tbody tr")).to_have_count(2)
    expect(page.get_by_label("Go on with the 2 good rows")).to_be_visible()
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_contain_text("2 rows cannot be used")
    expect(page.locator("#parsed")).to_contain_text("notes.csv")
    picture(page, "calibrate-row-errors-1440-light")
    page.get_by_label("Go on with the 2 good rows").check()
    page.locator("#run").click()
    expect(page.locator("#result h2").first).to_have_text("Result: notes")
    assert services.calibrations.requests[-1].accept_errors


def test_a_run_shows_its_progress_and_then_its_result(page: Page, services: FakeServices, tmp_path):
    services.jobs.hold = True
    upload(page, tmp_path, GOOD)
    page.get_by_label("Name").fill("My notes")
    page.locator("#run").click()
    expect(page.locator("#job [role=progressbar]")).to_have_attribute("aria-valuenow", "50")
    expect(page.locator("#cancel")).to_be_visible()
    services.jobs.hold = False
    expect(page.locator("#result h2").first).to_have_text("Result: My notes")
    expect(page.locator("#cancel")).to_be_hidden()
    expect(page.locator("#runs li")).to_have_count(2)
    page.get_by_role("link", name="Use in audits").click()
    expect(page.locator("#calibration input")).to_have_value("My notes")


def test_a_run_can_be_cancelled(page: Page, services: FakeServices, tmp_path):
    services.jobs.hold = True
    upload(page, tmp_path, GOOD)
    page.locator("#run").click()
    page.locator("#cancel").click()
    expect(page.locator("#job")).to_contain_text("was cancelled")
    expect(page.locator("#cancel")).to_be_hidden()


def test_a_running_job_is_found_again_after_a_reload(page: Page, services: FakeServices, tmp_path):
    services.jobs.hold = True
    upload(page, tmp_path, GOOD)
    page.locator("#run").click()
    expect(page.locator("#job [role=progressbar]")).to_be_visible()
    page.reload()
    expect(page.locator("#job [role=progressbar]")).to_be_visible()


def test_an_unreadable_file_is_one_sentence(page: Page, tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text(" ", "utf-8")
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator(".toast-body")).to_contain_text("empty.csv is empty")


def test_runs_are_deleted_only_after_a_question(page: Page, services: FakeServices, tmp_path):
    upload(page, tmp_path, GOOD)
    page.locator("#run").click()
    expect(page.locator("#runs li")).to_have_count(2)
    page.get_by_role("button", name="Delete notes").click()
    page.locator("dialog#confirm [value=no]").click()
    expect(page.locator("#runs li")).to_have_count(2)
    page.get_by_role("button", name="Delete notes").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator("#runs li")).to_have_count(1)
    assert list(services.calibrations.stored) == [1]


def test_templates_can_be_downloaded(page: Page):
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    assert Path(waiting.value.path()).read_text("utf-8").startswith("prompt,reference,spans,group")
