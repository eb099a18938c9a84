"""Coefficients in the browser: offered for the suites that have them, fitted when asked for, and taken away again."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.bootstrap import services as open_services
from app.evaluate.items import outcome_bytes
from app.evaluate.runs import EvaluationRequest, SuitePlan, plans_json, request_json
from app.settings import Settings
from app.shared.wiring import Services
from db.evaluations import EvaluationItemRecord, EvaluationsRepository
from tests.app.evaluate.made import VANILLA, method, rights
from tests.app.evaluate.test_coefficients import EXPLICIT, answers
from tests.app.shared.test_accessibility import broken
from tests.browser import served
from tests.conftest import load_tiny


def keep(wired: Services) -> None:
    """An evaluation of two suites, one of which has a mixed-effects model."""
    store, methods = wired[EvaluationsRepository], (VANILLA, method("COFT"))
    facts = {"right": 0, "lengths": [1, 1]}
    made = {EXPLICIT: answers(0), "piqa": [replace(own, facts=facts) for own in rights("rwrwr")]}
    plans = tuple(
        SuitePlan(suite, suite, "folder", "", {}, "", len(own), 8, {0: 0}, {0: len(own)}) for suite, own in made.items()
    )
    request = EvaluationRequest("decisions", tuple(made), methods, "tiny", (0,))
    record = store.add("decisions", request_json(request), plans_json(plans))
    for suite, label in product(made, ("Vanilla", "COFT")):
        keys = {f"{suite}{label}{at}": own for at, own in enumerate(made[suite])}
        records = [
            EvaluationItemRecord(suite=suite, method=label, seed=0, place=at, item=own.item, key=key)
            for at, (key, own) in enumerate(keys.items())
        ]
        store.keep(record.id, records, {key: outcome_bytes(own) for key, own in keys.items()})


@pytest.fixture
def evaluate(page: Page, tmp_path: Path):
    """The page with a stored evaluation."""
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'evaluate.sqlite3'}", pipeline="none")
    with open_services(settings, loader=load_tiny, owns_store=True) as wired:
        keep(wired)
        with served(wired) as url:
            page.goto(f"{url}/evaluate")
            expect(page.locator("table.figures tbody tr")).to_have_count(2)
            yield page


def choose(page: Page, suite: str) -> None:
    page.get_by_label("Figures", exact=True).click()
    page.get_by_role("option", name=suite, exact=True).click()


@pytest.mark.slow
def test_coefficients_are_offered_where_there_are_any_and_fitted_when_asked_for(evaluate: Page) -> None:
    page = evaluate
    fit = page.get_by_role("button", name="Fit mixed-effects coefficients")
    expect(fit).to_be_hidden()
    choose(page, EXPLICIT)
    expect(fit).to_be_visible()
    fit.focus()
    page.keyboard.press("Enter")
    table = page.locator("#coefficients table")
    expect(table.locator("tbody tr")).to_have_count(7)
    assert broken(page) == []
    expect(table.locator("thead th")).to_contain_text(["Coefficient", "Vanilla", "COFT"])
    expect(table.locator("tbody tr", has_text="race: black")).to_contain_text("[")
    expect(page.locator("#coefficients")).to_contain_text("Tamkin et al. 2023")
    expect(page.locator("#coefficients-busy")).to_be_hidden()
    choose(page, "piqa")
    expect(fit).to_be_hidden()
    expect(page.locator("table.figures tbody tr").first).to_contain_text("Accuracy")
    expect(page.locator("#figures-busy")).to_be_hidden()
