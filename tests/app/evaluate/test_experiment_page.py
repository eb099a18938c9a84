"""A named experiment in the browser: chosen by keyboard, run, and shown with the paper's rows and its picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import app.evaluate.experiment_files as files
import app.evaluate.experiment_service as service
from app.bootstrap import services as open_services
from app.evaluate.experiment_speed import SpeedMeter
from app.evaluate.experiments import SpeedTable
from app.evaluate.service import EvaluationService
from app.settings import Settings
from app.shared.errors import JobCancelled
from tests.app.shared.test_accessibility import broken
from tests.browser import served
from tests.conftest import load_tiny
from tests.story.seed import Seeded

MADE = {
    "sweep": """
title: Two strengths
source: Figure 9
shows: What a higher lambda does.
differs: [It is small.]
suites: [phantom_gaps, phantom_questions, stereoset]
methods:
  - {method: CDA=cda, needs: {checkpoint: a trained model}}
sweep: {knob: lam, values: [0, 0.5, 1], method: coft, validation: 0.6}
averages:
  bias: [{suite: phantom_gaps}]
  utility: [{suite: phantom_questions}]
run: {seeds: [0]}
tables:
  - kind: choice
    title: Sweep of lambda
    paper: [{model: LLaMA-2-13B, source: Figure 9, rows: {lambda 0.5: [0.147, 68.0]}}]
""",
    "timed": """
title: Two speeds
source: Table 9
shows: How fast two methods are.
differs: [This computer is another one.]
methods: [{method: Vanilla=vanilla}, {method: COFT=coft}]
tables:
  - {kind: speed, title: Efficiency, batches: [1], lengths: [40], prompt: 30, repeats: 1,
     paper: [{model: LLaMA-2-13B, source: Table 9, rows: {COFT: [108.2, 10.2, 27.1]}}]}
  - {kind: speed, title: Lengths, rows: lengths, methods: [Vanilla, COFT], batches: [1], lengths: [36, 40], prompt: 30,
     repeats: 1}
""",
}
"""Experiments small enough for a test, in the place of the shipped ones."""


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Seeded, str]]:
    """The program on an empty store, where two small experiments are the named ones, and where it runs."""
    folder = tmp_path_factory.mktemp("experiments")
    for name, text in MADE.items():
        (folder / f"{name}.yaml").write_text(text)
    made = {name: files.read_experiment(folder / f"{name}.yaml") for name in MADE}
    (folder / "data").mkdir()
    path = folder / "evaluate.sqlite3"
    settings = Settings(database_url=f"sqlite:///{path}", pipeline="none", data=str(folder / "data"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "experiment_names", lambda: tuple(made))
        patch.setattr(service, "load_experiment", lambda name: made.get(name) or files.load_experiment(name))
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


def choose(page: Page, title: str) -> None:
    """Choose what is read by keyboard alone."""
    field = page.get_by_label("What is read")
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
    expect(card).to_contain_text("What a higher lambda does.")
    expect(card).to_contain_text("CDA is left out, since it needs")
    expect(card).to_contain_text("StereoSet is left out")
    expect(card).to_contain_text("It is small.")
    expect(page.locator("#suites")).to_be_hidden()
    expect(page.locator("#methods")).to_be_hidden()
    page.get_by_text("Protocol").click()
    page.get_by_label("Items of a suite").fill("40")
    page.locator("#estimate-run").click()
    expect(page.locator("#estimate tbody tr")).to_have_count(2)
    expect(page.locator("#estimate")).to_contain_text("CDA is left out")
    page.locator("#run").focus()
    page.keyboard.press("Enter")
    table = page.locator("#experiment-table table")
    expect(table.locator("tbody tr.elsewhere th")).to_contain_text("paper, LLaMA-2-13B", timeout=60_000)
    expect(table.locator("tbody tr.elsewhere td").first).to_have_text("0.147")
    expect(page.locator("#experiment-plot .js-plotly-plot")).to_be_visible()
    expect(page.locator("#experiment-plot .legend")).to_contain_text("not eligible")
    expect(page.locator("table.figures tbody tr")).not_to_have_count(0)
    picture(page, "experiment-1440-light")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 768, "height": 1000})
    assert broken(page) == []
    (summary,) = evaluations.list()
    assert (summary.experiment, summary.done) == ("Two strengths (Figure 9)", summary.planned)
    with page.expect_download() as waiting:
        page.locator("#save-tables").click()
    rows = list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))
    assert {row["source"] for row in rows} == {"", "paper, LLaMA-2-13B"}


OWN = """
title: Mine
source: our own
shows: What two strengths do.
suites: [phantom_questions]
methods: [{method: Vanilla=vanilla}, {method: Weak=coft:lam=0.3}]
run: {seeds: [0]}
tables: [{kind: methods, title: Both, columns: [{title: Questions, suite: phantom_questions}]}]
"""


@pytest.mark.slow
def test_an_experiment_of_ones_own_is_checked_run_and_kept_with_its_results(evaluate, tmp_path: Path) -> None:
    page, evaluations = evaluate
    field = page.get_by_label("What is read")
    field.fill("An experiment of your own")
    page.keyboard.press("Enter")
    expect(page.locator("#suites")).to_be_hidden()
    own = tmp_path / "mine.yaml"
    own.write_text(OWN.replace("suites: [phantom_questions]", "suites: [nowhere]"))
    page.locator("#experiment-upload input[type=file]").set_input_files(own)
    expect(page.locator(".toast-body")).to_contain_text("mine.yaml, line 5: the field suites.0 is wrong")
    page.locator("#experiment-upload").get_by_label("Clear").click()
    own.write_text(OWN)
    page.locator("#experiment-upload input[type=file]").set_input_files(own)
    expect(page.locator("#experiment-card")).to_contain_text("What two strengths do.")
    assert broken(page) == []
    page.get_by_text("Protocol").click()
    page.get_by_label("Items of a suite").fill("6")
    page.locator("#run").click()
    expect(page.locator("#experiment-table tbody tr")).to_have_count(2, timeout=60_000)
    (summary,) = evaluations.list()
    asked = evaluations.view(summary.id).request.experiment
    assert (asked.name, asked.content["shows"]) == ("mine.yaml", "What two strengths do.")
    field.fill("Suites and methods")
    page.keyboard.press("Enter")
    expect(page.locator("#suites")).to_be_visible()
    expect(page.locator("#experiment-card")).to_be_hidden()
    page.locator("#run").click()
    expect(page.locator("#figures tbody tr")).not_to_have_count(0)
    expect(page.locator("#experiment-tables")).to_be_hidden()


@pytest.mark.slow
def test_a_run_of_speed_that_was_stopped_is_resumed_to_its_tables_and_picture(
    evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, evaluations = evaluate

    def stopped(self: SpeedMeter, place: int, table: SpeedTable) -> None:
        raise JobCancelled

    with monkeypatch.context() as patch:
        patch.setattr(SpeedMeter, "table", stopped)
        choose(page, "Two speeds")
        page.locator("#run").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=60_000)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#experiment-table tbody tr")).to_have_count(3, timeout=60_000)
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    expect(page.locator("#experiment-plot .js-plotly-plot")).to_be_visible()
    expect(page.locator("#figures")).to_be_hidden()
    page.get_by_label("Table", exact=True).click()
    page.get_by_role("option", name="Lengths").click()
    expect(page.locator("#experiment-table tbody th")).to_have_text(["36", "40"])
    (summary,) = evaluations.list()
    assert not evaluations.view(summary.id).resumable
