"""Benchmarks in the browser: chosen, run, looked at, sorted, saved, and opened item by item."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.bootstrap import services as open_services
from app.evaluate.service import EvaluationService
from app.settings import Settings
from tests.browser import served
from tests.conftest import load_tiny
from tests.story.seed import Seeded


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Seeded, str]]:
    """The program on the tiny model and an empty store, and where it runs."""
    path = tmp_path_factory.mktemp("evaluate") / "evaluate.sqlite3"
    settings = Settings(database_url=f"sqlite:///{path}", pipeline="none")
    with open_services(settings, loader=load_tiny, owns_store=True) as wired, served(wired) as url:
        yield Seeded(wired, path), url


@pytest.fixture
def evaluate(page: Page, measuring: tuple[Seeded, str]) -> tuple[Page, EvaluationService]:
    """The page on an empty store, with the services behind it."""
    program, url = measuring
    services = program.restore()
    page.goto(f"{url}/evaluate")
    expect(page.locator("#suites input")).not_to_have_count(0)
    return page, services[EvaluationService]


def run(page: Page) -> None:
    """Two phantom suites, few items, one seed, with the methods that stand there."""
    page.get_by_text("Protocol").click()
    page.get_by_label("Items of a suite").fill("6")
    page.locator("#run").click()
    expect(page.locator("table.figures tbody tr")).to_have_count(2)


def test_an_empty_page_says_what_to_do_first_and_what_each_suite_measures(evaluate) -> None:
    page, _ = evaluate
    expect(page.locator("#evaluation-head")).to_contain_text("Measure a model on benchmarks")
    expect(page.locator("#runs")).to_contain_text("No evaluation yet")
    page.get_by_text("What they measure, and what not").click()
    card = page.locator("#cards .card", has_text="Phantom decisions")
    card.locator("summary").click()
    expect(card).to_contain_text("differ in the group of one person")
    expect(page.locator("#cards .card", has_text="COMPAS")).to_contain_text("no files")


def test_suites_of_a_hub_stand_apart_from_those_that_are_here_and_are_not_chosen_at_first(evaluate) -> None:
    page, service = evaluate
    known = service.suites()
    here = [suite.title for suite in known if suite.source == "program"]
    far = [suite.title for suite in known if suite.source == "hub"]
    expect(page.locator("#suites label")).to_have_text([f"{title} ({kind}, with the program)" for title, kind in zip(
        here, ("bias", "utility"), strict=True)])  # fmt: skip
    page.get_by_role("button", name="From a hub, downloaded when first read").click()
    expect(page.locator("#hub-suites label")).to_have_count(len(far))
    expect(page.locator("#hub-suites input:checked")).to_have_count(0)
    page.get_by_text("What they measure, and what not").click()
    expect(page.locator("#cards .card", has_text=far[0]).first).to_contain_text("from a hub")


def test_a_run_is_estimated_watched_and_shown_with_its_figures(evaluate, picture: Callable[[Page, str], None]) -> None:
    page, service = evaluate
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
    expect(page.locator("#evaluation-head")).to_contain_text(f"{view.done} of {view.planned} answers")
    expect(page.locator("#figures-plot .js-plotly-plot")).to_be_visible()
    expect(page.locator("#plane-plot .js-plotly-plot")).to_be_visible()
    picture(page, "evaluate-1440-light")
    page.get_by_label("Figures", exact=True).click()
    page.get_by_role("option", name="Phantom decisions").click()
    expect(page.locator("table.figures thead th")).to_contain_text(["Figure", "Vanilla", "COFT"])
    expect(page.locator("#items tbody tr")).not_to_have_count(0)


def test_a_column_sorts_the_methods_by_keyboard(evaluate) -> None:
    page, _ = evaluate
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


def test_an_item_opens_as_an_audit_of_its_prompt(evaluate) -> None:
    page, _ = evaluate
    run(page)
    page.get_by_label("Figures", exact=True).click()
    page.get_by_role("option", name="Phantom decisions").click()
    page.get_by_role("button", name="Open as audit: item").first.click()
    page.wait_for_url("**/?session=1*")
    expect(page.locator(".strip .tok[data-i]").first).to_be_visible()


def test_the_figures_are_saved_as_the_table_has_them(evaluate) -> None:
    page, _ = evaluate
    run(page)
    with page.expect_download() as waiting:
        page.locator("#save-figures").click()
    rows = list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))
    assert {row["method"] for row in rows} == {"Vanilla", "COFT, fusion only"}
    assert {row["suite"] for row in rows if row["figure"] == "gap"} == {"phantom_gaps"}


def test_an_evaluation_is_deleted_after_a_question(evaluate) -> None:
    page, service = evaluate
    run(page)
    page.locator("#evaluation-head [data-do=delete]").click()
    page.get_by_role("button", name="Delete", exact=True).last.click()
    expect(page.locator("#runs")).to_contain_text("No evaluation yet")
    assert service.list() == ()
