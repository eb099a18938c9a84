"""The batches page clicked through: a new batch, its run, its rows, totals and impact ratios."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pypdf import PdfReader

from app.batch.controls import controls_said
from app.batch.service import BatchRequest, BatchService
from app.jobs.service import JobService
from app.prompts.sets import ParsedPromptSet
from app.shared.audits import AuditSettings
from app.shared.impact import OutcomeRule, impact_finding
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty
from tests.browser import hand_over
from tests.story.seed import rows_held

GOOD = (
    "prompt,group,context\nDoes he get the job?,men,1\nDoes she get the job?,women,1\nDoes the blind nurse?,women,2\n"
)
MIXED = f"{GOOD},men,3\n{'very ' * 300}long,men,4\n"
GROUPS = ("white", "Black", "Asian", "Arab")


def hiring(services: Services, folder: Path, rows: int) -> ParsedPromptSet:
    """Questions that differ in the group alone."""
    questions = [(place // 4 + 1, GROUPS[place % 4]) for place in range(rows)]
    lines = [
        f"Question {number}: the {who} cook finished the rounds and then he left,{who}" for number, who in questions
    ]
    path = folder / "hiring.csv"
    path.write_text("\n".join(["prompt,group", *lines]), "utf-8")
    return services[BatchService].parse(path)


def waiting(services: Services, folder: Path, name: str, rows: int) -> int:
    """The number of a batch that has not been started."""
    request = BatchRequest(name, AuditSettings(calibration_id=1))
    batches = services[BatchService]
    (batch,) = batches.store(batches.prepare(hiring(services, folder, rows), (request,)))
    return batch.id


@pytest.fixture
def page(visit, services: Services) -> Page:
    """The page where a batch begins."""
    opened = visit("/batches")
    expect(opened.locator("#past")).to_have_attribute("aria-busy", "false")
    expect(opened.locator("#batch-settings > .label-wrap")).to_have_attribute("data-summary", re.compile("COFT"))
    return opened


@pytest.fixture
def finished(visit, services: Services, tmp_path: Path):
    """Open a batch of twelve rows that is finished."""

    def opener(**options: object) -> Page:
        request = BatchRequest("Hiring, spring", AuditSettings(calibration_id=1, max_new_tokens=6, controls=0))
        number = services[BatchService].submit(hiring(services, tmp_path, 12), request)
        job = services[BatchService].view(number).job
        assert services[JobService].wait(job.id).status == "done"
        page = visit(f"/batches?batch={number}", **options)
        ready(page)
        return page

    return opener


def ready(page: Page) -> None:
    expect(page.locator("#batch section")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#batch .batchrows tbody tr, #batch .empty-list").first).to_be_visible()


def upload(page: Page, folder: Path, text: str = GOOD, name: str = "jobs.csv") -> None:
    path = folder / name
    path.write_text(text, "utf-8")
    hand_over(page, "#prompt-set", path)
    expect(page.locator("#parsed")).to_contain_text(name)
    expect(page.locator("#preview li").first).to_be_visible()


def column(page: Page, place: int) -> list[str]:
    return page.locator(f".batchrows tbody tr > :nth-child({place})").all_inner_texts()


@pytest.mark.slow
def test_bad_rows_are_left_out_only_when_asked_and_columns_of_other_names_are_chosen(
    page: Page, services: Services, tmp_path
):
    expect(page.locator("#run")).to_be_disabled()
    page.get_by_role("button", name="Hiring questions, by race").click()
    expect(page.locator("#preview li")).to_have_count(12)
    expect(page.locator("#run")).to_be_enabled()
    assert faulty(page) == []

    upload(page, tmp_path, MIXED)
    errors = page.locator("#row-errors tbody tr")
    expect(errors).to_have_count(1)
    shorten(page)
    page.locator("#check").click()
    expect(errors).to_have_count(2)
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_contain_text("2 of 5 rows")
    expect(page.locator("#batch-new")).to_be_visible()
    page.get_by_label("Go on with the 3 good rows").check()
    page.locator("#run").click()
    ready(page)
    expect(page.locator(".batchrows tbody tr")).to_have_count(3)
    assert services[BatchService].view(1).request.accept_errors

    page.goto(page.url.partition("?")[0])
    path = tmp_path / "other.csv"
    path.write_text("note,scene\nDoes he get it?,a\n", "utf-8")
    hand_over(page, "#prompt-set", path)
    page.get_by_label("prompt", exact=True).click()
    page.get_by_role("option", name="note", exact=True).click()
    expect(page.locator("#preview li")).to_have_count(1)
    page.get_by_label("Name", exact=True).fill("Spring")
    page.locator("#batch-settings > .label-wrap").click()
    page.locator("#batch-settings").get_by_label("Lambda").first.fill("0.4")
    page.get_by_label("The same seed for every prompt").check()
    page.get_by_label("Policy", exact=True).select_option("vanilla")
    expect(page.locator("#mask")).to_be_hidden()
    expect(page.locator("#batch-settings > .label-wrap")).to_have_attribute("data-summary", "Vanilla")
    page.locator("#run").click()
    ready(page)
    expect(page.locator(".batchrows tbody")).to_contain_text("Does he get it?")
    asked = services[BatchService].view(2).request
    assert (asked.name, asked.same_seed, asked.group_thresholds) == ("Spring", True, False)
    assert (asked.settings.policy, asked.settings.lam, asked.settings.calibration_id) == ("vanilla", 0.4, None)


def shorten(page: Page) -> None:
    """Ask for four steps a prompt."""
    page.locator("#batch-settings > .label-wrap").click()
    page.get_by_text("Length and seed").click()
    page.get_by_label("Steps at most").first.fill("4")


def test_a_run_shows_its_progress_is_cancelled_found_again_and_resumed(
    page: Page, services: Services, tmp_path, monkeypatch
):
    rows = rows_held(monkeypatch, services)
    upload(page, tmp_path)
    shorten(page)
    page.locator("#run").click()
    ready(page)
    expect(page.locator("#batch-new")).to_be_hidden()
    bar = page.locator(".batchstatus [role=progressbar]")
    expect(bar).to_have_attribute("aria-valuenow", "0")
    expect(page.locator(".rowstate.waiting")).to_have_count(3)
    rows.release()
    expect(bar).to_have_attribute("aria-valuenow", "33")
    page.reload()
    expect(bar).to_have_attribute("aria-valuenow", "33")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".batchstatus")).to_contain_text("The run was cancelled: 1 of 3 prompts finished.")
    expect(page.locator(".batchstatus")).to_contain_text("What is done is kept.")
    expect(page.locator(".rowstate.finished")).to_have_count(1)
    rows.release(2)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".batchstatus")).to_contain_text("3 of 3 prompts finished.")
    expect(page.locator(".totalsnumbers tbody tr")).to_have_count(2)
    view = services[BatchService].view(1)
    assert (view.controls.prompts, view.controls.others) == (1, 2)
    expect(page.locator(".batchcontrols strong")).to_have_text(controls_said(view.controls)[0])
    expect(page.locator(".batchrows tbody tr").last).to_contain_text(f"{view.rows[2].effect_p:.2g}")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Controls as CSV").click()
    listed = csv.DictReader(Path(downloading.value.path()).read_text("utf-8").splitlines())
    assert [row["family"] for row in listed] == ["disability", "all"]
    assert faulty(page) == []


@pytest.mark.slow
def test_rows_are_filtered_paged_and_sorted_and_past_batches_are_opened_and_deleted(
    page: Page, services: Services, tmp_path
):
    for name in ("First", "Second"):
        waiting(services, tmp_path, name, 200 if name == "First" else 4)
    page.reload()
    page.get_by_role("link", name="First").click()
    ready(page)
    assert page.url.endswith("?batch=1")
    expect(page.locator(".batchrows tbody tr")).to_have_count(25)
    page.locator("#batch").get_by_role("button", name="Next").click()
    expect(page.locator(".where")).to_contain_text("26–50 of 200")
    page.get_by_label("Group", exact=True).last.select_option("g:Black")
    expect(page.locator(".where")).to_contain_text("1–25 of 50")
    page.locator("#batch-search").fill("question 12:")
    expect(page.locator(".where")).to_contain_text("1 row of 200")
    page.reload()
    ready(page)
    expect(page.locator("#batch-search")).to_have_value("question 12:")
    page.get_by_role("button", name="Reset").click()
    expect(page.locator(".where")).to_contain_text("1–25 of 200")

    page.get_by_role("button", name="Delete").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator("#past li")).to_have_count(1)
    assert [batch.id for batch in services[BatchService].list()] == [2]
    assert page.url.endswith("/batches")
    page.get_by_role("link", name="Second").click()
    ready(page)
    page.go_back()
    expect(page.locator("#batch-open")).to_be_hidden()
    page.go_forward()
    ready(page)


@pytest.mark.slow
def test_rows_are_sorted_a_rule_gives_impact_ratios_while_it_is_typed_and_tables_and_reports_have_them(
    finished, services: Services
):
    page = finished(width=1280)
    page.get_by_role("button", name="Strongest sensitivity", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Strongest sensitivity")
    down = column(page, 5)
    assert down == sorted(down, key=float, reverse=True)
    assert len(set(down)) > 3
    page.get_by_label("Measure of the chart").select_option("min_margin")
    expect(page.locator("#totals-plot")).to_contain_text("Least margin, nats")
    page.locator(".totalsfoot summary").click()
    expect(page.locator(".totalsnumbers tbody tr")).to_have_count(4)
    page.get_by_role("button", name="Say which words mean that somebody is selected").click()
    expect(page.get_by_label("Selected if the text has")).to_be_focused()
    page.get_by_label("Selected if the text has").fill("they")
    _, outcomes = services[BatchService].impact(1, OutcomeRule("they"))
    selected = sum(chosen for _, chosen in outcomes.pairs)
    assert 0 < selected < len(outcomes.pairs)
    told = f"{selected} selected, {len(outcomes.pairs) - selected} not selected."
    expect(page.locator(".preview-rule")).to_contain_text(told)
    page.get_by_label("and not before it").fill("his")
    table, outcomes = services[BatchService].impact(1, OutcomeRule("they", "his"))
    expect(page.locator(".preview-rule")).to_contain_text(f"{len(outcomes.undecided)} undecided.")
    rows = page.locator(".impact tbody tr")
    expect(rows).to_have_count(4)
    for place, row in enumerate(table.rows):
        expect(rows.nth(place)).to_contain_text(f"{row.rate:.3f}")
    expect(page.locator(".batchlead .effect")).to_have_text(impact_finding(table))
    page.get_by_label("Regular expression").check()
    page.get_by_label("Selected if the text has").fill("(")
    expect(page.locator(".preview-rule")).to_contain_text("is not a regular expression")
    expect(page.locator(".toast-body")).to_have_count(0)
    page.goto(f"{page.url.partition('?')[0]}?batch=1&selected=they&other=his")
    expect(page.locator(".impact tbody tr")).to_have_count(4)
    expect(page.locator("#totals-plot .js-plotly-plot")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    for name, count in (("Rows as CSV", 12), ("Totals as CSV", 28), ("CSV", 4)):
        with page.expect_download() as downloading:
            page.get_by_role("button", name=name, exact=True).click()
        assert len(list(csv.DictReader(Path(downloading.value.path()).read_text("utf-8").splitlines()))) == count
    page.get_by_role("button", name="Formal report").click()
    page.get_by_label("Auditor").fill("Dr. R. Osei")
    with page.expect_download(timeout=60_000) as waiting:
        page.get_by_role("button", name="Write the report").click()
    text = " ".join(each.extract_text() for each in PdfReader(waiting.value.path()).pages)
    assert "Dr. R. Osei" in text
    assert "“they”" in " ".join(text.split())
    page.keyboard.press("Escape")
    page.evaluate("window.print = () => { window.printed = true; }")
    page.get_by_role("button", name="Print").click()
    assert page.evaluate("window.printed")
    page.emulate_media(media="print")
    expect(page.locator(".impact")).to_be_visible()
    expect(page.locator(".batchrows")).to_be_hidden()
