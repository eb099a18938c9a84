"""A prompt set under several policies on the compare page: begun, followed, sorted, opened row by row, taken away."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.batch.service import BatchService
from app.compare.sets import SetComparisonService
from app.compare.types import SetRequest
from app.shared.audits import AuditSettings
from app.shared.jobs import JobService
from app.shared.wiring import Services
from tests.story.seed import rows_held

COLUMNS = tuple(
    AuditSettings(policy=policy, calibration_id=number, max_new_tokens=4)
    for policy, number in (("vanilla", None), ("coft", 1), ("sdd", None))
)


@pytest.fixture
def page(visit) -> Page:
    page = visit("/compare")
    expect(page.locator(".colcard")).to_have_count(2)
    page.get_by_role("button", name="A prompt set").click()
    return page


def people(folder: Path, rows: int) -> Path:
    """Questions about the people of two groups, some of which lead further into the story than others."""
    lines = [
        f"Question {number}: the cook finished rounds and then he left{number % 3 * ' and he'},group {number % 2}"
        for number in range(rows)
    ]
    path = folder / "people.csv"
    path.write_text("\n".join(["prompt,group", *lines]), "utf-8")
    return path


def upload(page: Page, folder: Path, rows: int = 6) -> None:
    page.locator("#prompt-set input[type=file]").set_input_files(people(folder, rows))
    expect(page.locator("#parsed")).to_contain_text("people.csv")


def begun(services: Services, folder: Path, rows: int) -> int:
    """The number of a comparison that runs."""
    parsed = services[BatchService].parse(people(folder, rows))
    return services[SetComparisonService].submit(parsed, SetRequest("Hiring", COLUMNS))


def ended(services: Services, folder: Path, rows: int = 6) -> int:
    """The number of a comparison whose columns have all ended."""
    number = begun(services, folder, rows)
    for column in services[SetComparisonService].view(number).columns:
        services[JobService].wait(column.job.id)
    return number


def prompts(page: Page):
    return page.locator(".set-rows tbody tr")


@pytest.mark.slow
def test_an_upload_runs_under_columns_with_parameters_of_their_own(page, services, tmp_path, picture):
    upload(page, tmp_path)
    page.get_by_role("button", name="Add column").click()
    page.get_by_label("Policy").nth(2).select_option("dexperts")
    card = page.locator(".colcard").nth(2)
    expect(card.get_by_label("Lambda")).to_have_count(0)
    expect(card.get_by_label("Calibration")).to_have_count(0)
    card.get_by_label("Weight", exact=True).fill("99")
    page.locator("[data-cmp=go]").click()
    expect(page.locator("#comparison .notice")).to_contain_text("Column 3: Weight is 99")
    assert not services[SetComparisonService].list()
    card.get_by_label("Weight", exact=True).fill("3")
    page.locator(".set-begin .input").fill("Hiring, three ways")
    page.locator(".shared summary").click()
    page.get_by_label("Steps at most").fill("4")
    page.locator("[data-cmp=go]").click()
    expect(page.locator(".set-open h2")).to_have_text("Hiring, three ways")
    columns = [column.settings for column in services[SetComparisonService].view(1).columns]
    assert [own.policy for own in columns] == ["vanilla", "coft", "dexperts"]
    assert columns[2].parameters == (("weight", 3.0),)
    expect(prompts(page)).to_have_count(6)
    expect(page.locator(".set-progress li")).to_have_count(3)
    expect(page.locator(".setmeans")).to_contain_text("n = 6")
    assert "set=1" in page.url
    picture(page, "compare-set-1440-light")


@pytest.mark.slow
def test_an_earlier_comparison_is_opened_sorted_opened_by_row_downloaded_and_deleted(
    visit, services, picture, tmp_path
):
    number = ended(services, tmp_path)
    page = visit("/compare", width=768, dark=True)
    expect(page.locator(".colcard")).to_have_count(2)
    page.get_by_role("button", name="A prompt set").click()
    page.locator("#set-stored").select_option("1")
    expect(page.locator("#parsed")).to_contain_text("ward.jsonl")
    picture(page, "compare-set-form-768-dark")
    page.get_by_role("button", name="Open Hiring").click()
    expect(prompts(page)).to_have_count(6)
    sizes = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]
    assert page.url.endswith(f"set={number}")
    picture(page, "compare-set-768-dark")
    page.get_by_role("button", name="Change").click()
    expect(page.locator(".colcard").first).to_be_visible()
    page.get_by_role("button", name="Open Hiring").click()
    page.set_viewport_size({"width": 1440, "height": 1000})
    expect(prompts(page)).to_have_count(6)
    head = page.locator(".set-rows [data-order=mean_tv_factual][data-column='1']")
    head.click()
    expect(page.locator(".set-rows th[aria-sort=descending]")).to_contain_text("From vanilla")
    expect(page.locator(".set-rows [data-order=mean_tv_factual][data-column='1']")).to_be_focused()
    values = [float(text) for text in prompts(page).locator("td:nth-of-type(6)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 1
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
    for name, lines in (("Rows as CSV", 18), ("Means as CSV", 33)):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        table = list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))
        assert len(table) == lines
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator(".set-open")).to_be_hidden()
    assert not services[SetComparisonService].list()
    assert "set=" not in page.url


@pytest.mark.slow
def test_a_run_is_followed_cancelled_and_resumed(visit, services, tmp_path, monkeypatch):
    rows = rows_held(monkeypatch, services)
    page = visit(f"/compare?set={begun(services, tmp_path, 6)}")
    first = page.locator(".set-progress li").first
    expect(first).to_contain_text("0 of 6")
    rows.release(2)
    expect(first).to_contain_text("2 of 6")
    cancel = page.get_by_role("button", name="Cancel")
    cancel.click()
    resume = page.get_by_role("button", name="Resume")
    expect(resume).to_be_visible()
    rows.release(18)
    resume.click()
    expect(first).to_contain_text("6 of 6")
    expect(cancel).to_be_hidden()
    expect(resume).to_be_hidden()
