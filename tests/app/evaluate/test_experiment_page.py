"""A named experiment in the browser: chosen by keyboard, run, and shown with the paper's rows and its picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.bootstrap import services as open_services
from app.evaluate.experiments.figures import Experiment, Sweep
from app.evaluate.experiments.grid import Paper, Value
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.speed import SpeedTable
from app.evaluate.experiments.tables import ChoiceTable
from app.evaluate.service import EvaluationService
from app.settings import Settings
from coft_core.experiments.averages import Part
from coft_core.experiments.choice import Averaged
from tests.app.shared.test_accessibility import broken
from tests.browser import served
from tests.conftest import load_tiny

MADE = Experiment(
    "sweep",
    "Two strengths",
    "Figure 9",
    "What a higher lambda does.",
    ("It is small.",),
    (
        ChoiceTable(
            "Sweep of lambda", (Paper("LLaMA-2-13B", "Figure 9", {"lambda 0.5": (Value(0.147), Value(68.0))}),)
        ),
        SpeedTable("Lengths", (), "lengths", ("lambda 0", "lambda 1"), (1,), (36, 40), prompt=30, repeats=1),
    ),
    suites=("phantom_gaps", "phantom_questions", "stereoset"),
    methods=("CDA=cda",),
    sweep=Sweep("lambda", (0, 0.5, 1), "coft:top_k=0"),
    needs={"CDA": ("checkpoint", "a trained model")},
    averaged=Averaged((Part("phantom_gaps"),), (Part("phantom_questions"),)),
    seeds=(0,),
)
"""Small enough for a test."""


@pytest.fixture
def evaluate(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Page, EvaluationService]]:
    """The page on an empty store, where a small experiment is among the named ones, with the services behind it."""
    (tmp_path / "data").mkdir()
    url = f"sqlite:///{tmp_path / 'evaluate.sqlite3'}"
    settings = Settings(database_url=url, pipeline="none", data=str(tmp_path / "data"))
    monkeypatch.setitem(EXPERIMENTS, MADE.name, MADE)
    with open_services(settings, loader=load_tiny, owns_store=True) as wired, served(wired) as address:
        page.goto(f"{address}/evaluate")
        expect(page.locator("#suites input")).not_to_have_count(0)
        yield page, wired[EvaluationService]


def choose(page: Page, title: str) -> None:
    """Choose what is read by keyboard alone."""
    field = page.get_by_label("What to run")
    field.focus()
    field.fill(title)
    page.keyboard.press("Enter")
    expect(page.locator("#experiment-card .experiment")).to_be_visible()


@pytest.mark.slow
def test_an_experiment_is_chosen_by_keyboard_run_and_shown_with_the_papers_row_and_its_front(
    evaluate, picture: Callable[[Page, str], None]
) -> None:
    page, evaluations = evaluate
    choose(page, "Two strengths")
    card = page.locator("#experiment-card")
    assert broken(page) == []
    expect(card).to_contain_text("CDA is left out, since it needs")
    expect(card).to_contain_text("StereoSet is left out")
    expect(page.locator("#suites")).to_be_hidden()
    page.get_by_text("Protocol").click()
    page.get_by_label("Items of a suite").fill("40")
    page.locator("#estimate-run").click()
    expect(page.locator("#estimate tbody tr")).to_have_count(2)
    page.locator("#run").focus()
    page.keyboard.press("Enter")
    table = page.locator("#experiment-table table")
    expect(table.locator("tbody tr.elsewhere th")).to_contain_text("paper, LLaMA-2-13B", timeout=60_000)
    expect(table.locator("tbody tr.elsewhere td").first).to_have_text("0.147")
    expect(page.locator("#experiment-plot .js-plotly-plot")).to_be_visible()
    expect(page.locator("table.figures tbody tr")).not_to_have_count(0)
    picture(page, "experiment-1440-light")
    (summary,) = evaluations.list()
    assert (summary.request.experiment.title, summary.done) == ("Two strengths (Figure 9)", summary.planned)
    with page.expect_download() as waiting:
        page.locator("#save-tables").click()
    rows = list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))
    assert {row["source"] for row in rows} == {"", "paper, LLaMA-2-13B"}
    page.get_by_label("Table", exact=True).click()
    page.get_by_role("option", name="Lengths").click()
    expect(page.locator("#experiment-table tbody th")).to_have_text(["36", "40"])
