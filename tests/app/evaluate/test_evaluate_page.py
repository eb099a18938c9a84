"""Benchmarks in the browser: chosen, run, looked at, sorted, saved, and opened item by item."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.evaluate.service import EvaluationService
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty
from tests.browser import Opener


@pytest.fixture
def evaluate(visit: Opener, services: Services) -> tuple[Page, EvaluationService]:
    """The page before anything is measured, with the service behind it."""
    page = visit("/evaluate")
    expect(page.locator("#suites input")).not_to_have_count(0)
    return page, services[EvaluationService]


def run(page: Page) -> None:
    """Two phantom suites, few items, one seed, with the methods that stand there."""
    page.get_by_text("Protocol").click()
    page.get_by_label("Items of a suite").fill("6")
    page.locator("#run").click()
    expect(page.locator("table.figures tbody tr")).to_have_count(2)


def test_suites_are_looked_at_estimated_run_shown_and_an_item_is_opened_as_an_audit(
    evaluate, picture: Callable[[Page, str], None]
) -> None:
    page, service = evaluate
    expect(page.locator("#runs li, #runs tr")).to_have_count(0)
    known = service.suites()
    here = [suite.title for suite in known if suite.source == "program"]
    far = [suite.title for suite in known if suite.source == "hub"]
    expect(page.locator("#suites label")).to_contain_text(here)
    page.get_by_role("button", name="From a hub, downloaded when first read").click()
    expect(page.locator("#hub-suites label")).to_have_count(len(far))
    expect(page.locator("#hub-suites input:checked")).to_have_count(0)
    page.get_by_text("What they measure, and what not").click()
    expect(page.locator("#cards .card")).to_have_count(len(known))
    page.get_by_role("button", name="Prompt format").click()
    page.locator("#system-prompt textarea").fill("Be fair, and brief.")
    page.locator("#estimate-run").click()
    expect(page.locator("#estimate tbody tr")).to_have_count(2)
    run(page)
    (summary,) = service.list()
    view = service.view(summary.id)
    assert {method.settings.system_prompt for method in view.request.methods} == {"Be fair, and brief."}
    assert not any("Be fair" in method.label for method in view.request.methods)
    assert view.done == view.planned > 0
    expect(page.locator("#figures-plot .js-plotly-plot")).to_be_visible()
    expect(page.locator("#plane-plot .js-plotly-plot")).to_be_visible()
    picture(page, "evaluate-1440-light")
    page.get_by_label("Figures", exact=True).click()
    page.get_by_role("option", name="Phantom decisions").click()
    expect(page.locator("table.figures thead th")).to_contain_text(["Figure", "Vanilla", "COFT"])
    assert faulty(page) == []
    page.get_by_role("button", name="Open as audit: item").first.click()
    page.wait_for_url("**/?session=3*")
    expect(page.locator(".strip .tok[data-i]").first).to_be_visible()


@pytest.mark.slow
def test_figures_are_sorted_by_keyboard_saved_as_they_are_shown_and_deleted(evaluate) -> None:
    page, service = evaluate
    run(page)
    head = page.locator("table.figures thead th").nth(1)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    values = page.locator("table.figures tbody tr td:nth-child(2)")
    rising = [float(value) for value in values.evaluate_all("cells => cells.map((cell) => cell.dataset.value)")]
    assert rising == sorted(rising)
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    with page.expect_download() as waiting:
        page.locator("#save-figures").click()
    rows = list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))
    (summary,) = service.list()
    assert {row["method"] for row in rows} == {method.label for method in summary.request.methods}
    assert {row["suite"] for row in rows if row["figure"] == "gap"} == {"phantom_gaps"}
    page.locator("#evaluation-head [data-do=delete]").click()
    page.get_by_role("button", name="Delete", exact=True).last.click()
    expect(page.locator("table.figures tbody tr")).to_have_count(0)
    assert service.list() == ()
