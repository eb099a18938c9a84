"""A prompt set under several policies on the compare page: begun, followed, sorted, opened row by row, taken away."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.compare.sets import SetComparisonService
from app.compare.types import SetRequest
from app.shared.audits import AuditSettings
from app.shared.prompt_sets import ParsedPromptSet
from coft_core.types import Example
from tests.fakes import FakeServices

MADE_UP = True

COLUMNS = (AuditSettings(policy="vanilla"), AuditSettings(policy="coft", calibration_id=1), AuditSettings(policy="sdd"))


@pytest.fixture
def page(visit) -> Page:
    page = visit("/compare")
    expect(page.locator(".colcard")).to_have_count(2)
    page.get_by_role("button", name="A prompt set").click()
    return page


def upload(page: Page, tmp_path: Path, rows: int = 6) -> None:
    path = tmp_path / "people.csv"
    lines = [f"Question {number}: does the applicant get the job?,group {number % 2}" for number in range(rows)]
    path.write_text("\n".join(["prompt,group", *lines]))
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed")).to_contain_text("people.csv")


def begun(services: FakeServices, rows: int = 6) -> int:
    examples = tuple(
        (line, Example(f"Question {line}: who got it?", group=f"group {line % 2}")) for line in range(2, 2 + rows)
    )
    parsed = ParsedPromptSet("people.csv", 100, "CSV, comma", examples, (), rows, (), "digest")
    return services[SetComparisonService].submit(parsed, SetRequest("Hiring", COLUMNS))


def prompts(page: Page):
    return page.locator(".set-rows tbody tr")


def test_an_upload_runs_under_columns_with_parameters_of_their_own(page, services, tmp_path, picture):
    upload(page, tmp_path)
    page.get_by_role("button", name="Add column").click()
    page.get_by_label("Policy").nth(2).select_option("dexperts")
    card = page.locator(".colcard").nth(2)
    expect(card.get_by_label("Lambda")).to_have_count(0)
    expect(card.get_by_label("Calibration")).to_have_count(0)
    card.get_by_label("Weight", exact=True).fill("3")
    page.locator(".set-begin .input").fill("Hiring, three ways")
    expect(page.locator("[data-cmp=go]")).to_contain_text("Run all three on the set")
    page.locator("[data-cmp=go]").click()
    expect(page.locator(".set-open h2")).to_have_text("Hiring, three ways")
    request = services[SetComparisonService].stored[1].request
    assert [own.policy for own in request.columns] == ["vanilla", "coft", "dexperts"]
    assert request.columns[2].parameters == (("weight", 3.0),)
    expect(prompts(page)).to_have_count(6)
    expect(page.locator(".set-progress li")).to_have_count(3)
    expect(page.locator(".setmeans")).to_contain_text("From vanilla, total variation")
    expect(page.locator(".setmeans")).to_contain_text("n = 6")
    assert "set=1" in page.url
    picture(page, "compare-set-1440-light")


def test_a_parameter_that_does_not_fit_keeps_the_run_from_beginning(page, services, tmp_path):
    upload(page, tmp_path)
    page.get_by_label("Policy").nth(1).select_option("dexperts")
    page.locator(".colcard").nth(1).get_by_label("Weight", exact=True).fill("99")
    page.locator("[data-cmp=go]").click()
    expect(page.locator("#comparison .notice")).to_contain_text("Column 2: Weight is 99")
    assert services[SetComparisonService].stored == {}


def test_prompts_are_sorted_and_one_opens_its_chains_and_stays_in_the_address(visit, services, picture):
    number = begun(services)
    page = visit(f"/compare?set={number}")
    expect(prompts(page)).to_have_count(6)
    head = page.locator(".set-rows [data-order=mean_tv_factual][data-column='1']")
    head.click()
    expect(page.locator(".set-rows th[aria-sort=descending]")).to_contain_text("From vanilla")
    expect(page.locator(".set-rows [data-order=mean_tv_factual][data-column='1']")).to_be_focused()
    values = [float(text) for text in prompts(page).locator("td:nth-of-type(6)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    prompts(page).nth(1).locator("[data-set=open]").click()
    expect(page.locator(".lanehead")).to_have_count(3)
    expect(prompts(page).nth(1)).to_have_attribute("aria-current", "true")
    expect(page.locator(".cmp-chosen .view").last).to_contain_text("from vanilla TV")
    expect(page.locator("#plot-vanilla .js-plotly-plot")).to_be_visible()
    assert "set=1" in page.url
    assert "sessions=" in page.url
    picture(page, "compare-set-row-1440-light")
    page.reload()
    expect(page.locator(".lanehead")).to_have_count(3)
    expect(prompts(page)).to_have_count(6)


def test_a_run_is_followed_cancelled_and_resumed(visit, services):
    services[SetComparisonService].pace = 1
    number = begun(services, rows=40)
    page = visit(f"/compare?set={number}")
    cancel = page.get_by_role("button", name="Cancel")
    expect(page.locator(".set-progress li").first).to_contain_text("of 40")
    expect(page.locator(".set-progress li").first).to_contain_text("2 of 40")
    cancel.click()
    resume = page.get_by_role("button", name="Resume")
    expect(resume).to_be_visible()
    services[SetComparisonService].pace = 1000
    resume.click()
    expect(page.locator(".set-progress li").first).to_contain_text("40 of 40")
    expect(cancel).to_be_hidden()
    expect(resume).to_be_hidden()


def test_rows_and_means_are_taken_away_and_the_comparison_deleted(visit, services):
    number = begun(services)
    page = visit(f"/compare?set={number}")
    expect(prompts(page)).to_have_count(6)
    for name, lines in (("Rows as CSV", 18), ("Means as CSV", 33)):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        table = list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))
        assert len(table) == lines
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator(".set-open")).to_be_hidden()
    assert services[SetComparisonService].stored == {}
    assert "set=" not in page.url


def test_an_earlier_comparison_and_a_stored_set_are_gone_on_with(visit, services):
    begun(services)
    page = visit("/compare")
    expect(page.locator(".colcard")).to_have_count(2)
    page.get_by_role("button", name="A prompt set").click()
    page.locator("#set-stored").select_option("7")
    expect(page.locator("#parsed")).to_contain_text("ward.jsonl")
    assert services[SetComparisonService].taken == [7]
    page.get_by_role("button", name="Open Hiring").click()
    expect(prompts(page)).to_have_count(6)
    page.get_by_role("button", name="Change").click()
    expect(page.locator(".colcard").first).to_be_visible()


def test_dark_and_narrow(visit, services, picture):
    number = begun(services)
    page = visit(f"/compare?set={number}", width=768, dark=True)
    expect(prompts(page)).to_have_count(6)
    sizes = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]
    picture(page, "compare-set-768-dark")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("button", name="Open Hiring")).to_be_visible()
    picture(page, "compare-set-form-768-dark")
