"""The batches page clicked through: a new batch, its run, its rows, totals and impact ratios."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.batch.impact import OutcomeRule
from app.batch.service import BatchRequest, BatchService
from app.shared.audits import AuditSettings
from tests.fakes import FakeServices
from tests.fakes.batches import hiring, read_rows

MADE_UP = True

GOOD = "prompt,group,context\nDoes he get the job?,men,1\nDoes she get the job?,women,1\nDoes the nurse?,women,2\n"
MIXED = f"{GOOD},men,3\n{'very ' * 100}long,men,4\n"


@pytest.fixture
def page(visit, services: FakeServices) -> Page:
    """The page where a batch begins."""
    opened = visit("/batches")
    expect(opened.locator("#past")).to_have_attribute("aria-busy", "false")
    expect(opened.locator("#settings .badge").first).to_contain_text("calibrated")
    return opened


@pytest.fixture
def opened(visit, services: FakeServices):
    """Open a batch of some rows that is finished."""

    def opener(rows: int = 24, query: str = "", **options: object) -> Page:
        request = BatchRequest("Hiring, spring", AuditSettings(calibration_id=1))
        number = services[BatchService].add(request, hiring(rows), "hiring.csv", finished=True)
        page = visit(f"/batches?batch={number}{query}", **options)
        ready(page)
        return page

    return opener


def ready(page: Page) -> None:
    expect(page.locator("#batch section")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#batch .batchrows tbody tr, #batch .empty-list").first).to_be_visible()


def upload(page: Page, folder: Path, text: str = GOOD, name: str = "jobs.csv") -> None:
    path = folder / name
    path.write_text(text, "utf-8")
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed")).to_contain_text(name)
    expect(page.locator("#preview li").first).to_be_visible()


def column(page: Page, place: int) -> list[str]:
    return page.locator(f".batchrows tbody tr > :nth-child({place})").all_inner_texts()


def test_an_empty_page_teaches_the_next_step_and_a_sample_is_one_click(page: Page):
    expect(page.locator("#past")).to_contain_text("No batch yet. Upload prompts or take a sample")
    expect(page.locator("#run")).to_be_disabled()
    page.get_by_role("button", name="Hiring questions, by race").click()
    expect(page.locator("#parsed")).to_contain_text("hiring_questions.csv, 72 rows")
    expect(page.locator("#preview li")).to_have_count(12)
    expect(page.locator("#run")).to_be_enabled()


def test_bad_rows_are_listed_and_left_out_only_when_asked(page: Page, services: FakeServices, tmp_path):
    upload(page, tmp_path, MIXED)
    errors = page.locator("#row-errors tbody tr")
    expect(errors).to_have_count(1)
    page.locator("#check").click()
    expect(errors).to_have_count(2)
    expect(errors.last).to_contain_text("has 1,200 tokens")
    expect(page.locator("#estimate")).to_contain_text("4 prompts, 3 contexts, 2 groups")
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_contain_text("2 rows cannot be used")
    expect(page.locator("#batch-new")).to_be_visible()
    page.get_by_label("Go on with the 3 good rows").check()
    page.locator("#run").click()
    ready(page)
    expect(page.locator(".batchrows tbody tr")).to_have_count(3)
    assert services[BatchService].requests[-1].accept_errors


def test_settings_and_columns_of_other_names_are_those_of_every_session(page: Page, services: FakeServices, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("note,scene\nDoes he get it?,a\n", "utf-8")
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed")).to_contain_text("Choose the column that holds the prompts.")
    page.get_by_label("prompt", exact=True).click()
    page.get_by_role("option", name="note", exact=True).click()
    expect(page.locator("#preview li")).to_have_count(1)
    expect(page.get_by_test_id("dropdown-option")).to_have_count(0)
    page.get_by_label("Name", exact=True).fill("Spring")
    page.locator("#settings").get_by_label("Lambda").first.fill("0.4")
    page.get_by_label("The same seed for every prompt").check()
    page.get_by_label("Policy", exact=True).select_option("vanilla")
    expect(page.locator("#mask")).to_be_hidden()
    page.locator("#run").click()
    ready(page)
    expect(page.locator(".batchrows tbody")).to_contain_text("Does he get it?")
    asked = services[BatchService].requests[-1]
    assert (asked.name, asked.same_seed, asked.group_thresholds) == ("Spring", True, False)
    assert (asked.settings.policy, asked.settings.lam, asked.settings.calibration_id) == ("vanilla", 0.4, None)


def test_a_run_shows_its_progress_is_cancelled_found_again_and_resumed(page: Page, services: FakeServices, tmp_path):
    services[BatchService].limit = 0
    upload(page, tmp_path)
    page.locator("#run").click()
    ready(page)
    expect(page.locator("#batch-new")).to_be_hidden()
    bar = page.locator(".batchstatus [role=progressbar]")
    expect(bar).to_have_attribute("aria-valuenow", "0")
    expect(page.locator(".batchstatus")).to_contain_text("about 40 s left")
    expect(page.locator(".rowstate.waiting")).to_have_count(3)
    services[BatchService].limit = 1
    expect(bar).to_have_attribute("aria-valuenow", "33")
    page.reload()
    expect(bar).to_have_attribute("aria-valuenow", "33")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".batchstatus")).to_contain_text("The run was cancelled: 1 of 3 prompts finished.")
    expect(page.locator(".batchstatus")).to_contain_text("What is done is kept.")
    expect(page.locator(".rowstate.finished")).to_have_count(1)
    services[BatchService].limit = None
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".batchstatus")).to_contain_text("3 of 3 prompts finished.")
    expect(page.locator(".totalsnumbers tbody tr")).to_have_count(2)


def test_a_click_on_a_column_sorts_by_it_and_the_next_one_turns_it_round(opened):
    page = opened()
    expect(page.locator("[aria-sort]")).to_contain_text("Line")
    page.get_by_role("button", name="Max log-ratio").click()
    head = page.locator("th[aria-sort=descending]")
    expect(head).to_contain_text("Max log-ratio")
    down = column(page, 9)
    assert down == sorted(down, key=float, reverse=True)
    expect(page.get_by_role("button", name="Max log-ratio")).to_be_focused()
    page.get_by_role("button", name="Max log-ratio").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Max log-ratio")
    assert column(page, 9) == sorted(down, key=float)


def test_rows_are_filtered_by_text_group_and_state_and_shown_page_by_page(opened):
    page = opened(500)
    expect(page.locator(".batchrows tbody tr")).to_have_count(25)
    expect(page.locator(".where")).to_have_text("1–25 of 500 rows")
    page.locator("#batch").get_by_role("button", name="Next").click()
    expect(page.locator(".where")).to_have_text("26–50 of 500 rows")
    page.get_by_label("Group", exact=True).last.select_option("g:Black")
    expect(page.locator(".where")).to_have_text("1–25 of 125 rows of 500")
    page.locator("#batch-search").fill("question 12:")
    expect(page.locator(".where")).to_have_text("1 row of 500")
    page.get_by_label("State", exact=True).select_option("finished")
    expect(page.locator(".batchrows tbody tr")).to_have_count(1)
    page.reload()
    ready(page)
    expect(page.locator("#batch-search")).to_have_value("question 12:")
    expect(page.locator(".where")).to_have_text("1 row of 500")
    page.get_by_role("button", name="Reset").click()
    expect(page.locator(".where")).to_have_text("1–25 of 500 rows")


def test_totals_are_a_chart_and_their_numbers_one_click_away(opened, picture):
    page = opened(96)
    plot = page.locator("#totals-plot")
    expect(plot.locator(".js-plotly-plot")).to_be_visible()
    expect(plot).to_have_attribute("aria-label", "Share of tokens that are certified by group with intervals; "
                                   "the numbers stand below")  # fmt: skip
    expect(plot).to_contain_text("white")
    page.get_by_label("Measure of the chart").select_option("min_margin")
    expect(plot).to_contain_text("Least margin, nats")
    page.locator(".totalsfoot summary").click()
    expect(page.locator(".totalsnumbers tbody tr")).to_have_count(4)
    picture(page, "batch-open-1440-light")


def test_a_rule_is_previewed_while_it_is_typed_and_gives_the_impact_ratios(opened, services: FakeServices):
    page = opened()
    expect(page.locator(".preview-rule")).to_contain_text("Say which word or phrase")
    expect(page.get_by_role("button", name="Print")).to_be_disabled()
    page.get_by_label("Selected if the text has").fill("Yes")
    expect(page.locator(".preview-rule")).to_contain_text("7 selected, 17 not selected.")
    page.get_by_label("and not before it").fill("No")
    expect(page.locator(".preview-rule")).to_contain_text("7 selected, 14 not selected, 3 undecided.")
    expect(page.locator(".preview-rule")).to_contain_text("Undecided: lines 9, 17, 25.")
    table, _ = services[BatchService].impact(1, OutcomeRule("Yes", "No"))
    rows = page.locator(".impact tbody tr")
    expect(rows).to_have_count(4)
    for place, row in enumerate(table.rows):
        expect(rows.nth(place)).to_contain_text(f"{row.rate:.3f}")
        expect(rows.nth(place)).to_contain_text("most selected" if row.reference else f"{row.ratio:.2f}")
    expect(page.locator(".impactreport")).to_contain_text("3 rows with neither word")
    page.get_by_label("Regular expression").check()
    page.get_by_label("Selected if the text has").fill("(")
    expect(page.locator(".preview-rule")).to_contain_text("is not a regular expression")
    expect(page.get_by_label("Selected if the text has")).to_have_value("(")
    expect(page.locator(".toast-body")).to_have_count(0)


def test_the_address_keeps_the_rule_tables_are_downloaded_and_printing_leaves_one(opened):
    page = opened(query="&selected=Yes&other=No")
    expect(page.locator(".impact tbody tr")).to_have_count(4)
    expect(page.get_by_label("Selected if the text has")).to_have_value("Yes")
    found = {}
    for name in ("Rows as CSV", "Totals as CSV", "CSV"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        found[waiting.value.suggested_filename] = read_rows(waiting.value.path())
    assert {name: len(rows) for name, rows in found.items()} == {
        "coft-audit-batch-1-rows.csv": 24, "coft-audit-batch-1-groups.csv": 28, "coft-audit-batch-1-impact.csv": 4,
    }  # fmt: skip
    page.evaluate("window.print = () => { window.printed = true; }")
    page.get_by_role("button", name="Print").click()
    assert page.evaluate("window.printed")
    page.emulate_media(media="print")
    expect(page.locator(".impact")).to_be_visible()
    expect(page.locator(".printed")).to_contain_text("Batch “Hiring, spring”")
    expect(page.locator(".batchrows")).to_be_hidden()
    expect(page.locator(".topbar")).to_be_hidden()


def test_past_batches_are_opened_and_deleted_after_a_question(page: Page, services: FakeServices):
    for name in ("First", "Second"):
        services[BatchService].add(BatchRequest(name), hiring(4), "x.csv", finished=True)
    page.reload()
    page.get_by_role("link", name="First").click()
    ready(page)
    expect(page.locator(".batchbar h2")).to_have_text("First")
    assert page.url.endswith("?batch=1")
    page.go_back()
    expect(page.locator("#batch-open")).to_be_hidden()
    expect(page.locator("#past li")).to_have_count(2)
    page.go_forward()
    ready(page)
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog#confirm [value=no]").click()
    expect(page.locator(".batchbar h2")).to_have_text("First")
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator("#past li")).to_have_count(1)
    expect(page.locator("#past")).to_contain_text("Second")
    assert list(services[BatchService].stored) == [2]
    assert page.url.endswith("/batches")


def test_an_address_of_a_batch_that_is_gone_says_so_and_shows_the_others(visit, services: FakeServices):
    page = visit("/batches?batch=99")
    expect(page.locator(".toast-body")).to_contain_text("There is no batch 99")
    expect(page.locator("#past")).to_be_visible()


@pytest.mark.parametrize(("width", "dark"), [(768, True), (1280, False)])
def test_nothing_runs_out_of_the_page(opened, width: int, dark: bool, picture):
    page = opened(96, "&selected=Yes", width=width, dark=dark)
    expect(page.locator(".impact tbody tr")).to_have_count(4)
    expect(page.locator("#totals-plot .js-plotly-plot")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    picture(page, f"batch-open-{width}-{'dark' if dark else 'light'}")
