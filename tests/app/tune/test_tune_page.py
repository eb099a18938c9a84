"""Tuning in the browser: a set is read, methods are swept, and the best points are shown and downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.tune.service import TuningService
from tests.fakes import FakeServices

MADE_UP = True


@pytest.fixture
def tune(visit) -> Page:
    page = visit("/tune")
    expect(page.locator("#tuned-head")).to_contain_text("Nothing is tuned yet")
    return page


def take_sample(page: Page) -> None:
    page.get_by_role("button", name="Decisions and questions").click()
    expect(page.locator("#read-set")).to_contain_text("100 prompts with a right answer, 60 pairs")


def test_a_set_is_tuned_on_and_the_best_point_of_each_method_is_named(tune: Page, services: FakeServices) -> None:
    expect(tune.locator("#run")).to_be_disabled()
    take_sample(tune)
    for name in ("Self-debiasing", "GeDi", "DExperts"):
        tune.get_by_label(name, exact=True).check()
    tune.locator("#run").click()
    rows = tune.locator("#tuned-points tbody tr")
    expect(rows).to_have_count(1 + 3 * 3)
    expect(rows.filter(has_text="chosen")).to_have_count(2)
    expect(rows.filter(has_text="COFT").filter(has_text="chosen")).to_contain_text("0.200 [0.180, 0.220]")
    notes = tune.locator("#tuned-points .cautions li")
    expect(notes).to_have_count(2)
    expect(notes.filter(has_text="GeDi was left out")).to_contain_text("no model at nowhere")
    expect(notes.filter(has_text="DExperts")).to_contain_text("no point keeps enough accuracy")
    expect(tune.locator("#tuning-plot .scatterlayer .trace")).to_have_count(4)
    (request,) = services[TuningService].requests
    assert set(request.policies) == {"coft", "sdd", "gedi", "dexperts"}
    assert request.name == "tuning_demo"


def test_all_points_are_downloaded_as_csv(tune: Page) -> None:
    take_sample(tune)
    tune.locator("#run").click()
    expect(tune.locator("#tuned-points")).to_contain_text("chosen")
    with tune.expect_download() as waiting:
        tune.locator("#save-points").click()
    lines = Path(waiting.value.path()).read_text("utf-8").splitlines()
    assert lines[0].startswith("policy,values,gap,gap_low")
    assert len(lines) == 1 + 1 + 3


def test_a_row_that_cannot_be_used_is_named_and_nothing_can_be_run(tune: Page, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("prompt,answer\nA man was,\n", "utf-8")
    tune.locator("#tuning-set input[type=file]").set_input_files(path)
    expect(tune.get_by_text("bad.csv, line 2: answer is empty")).to_be_visible()
    expect(tune.locator("#run")).to_be_disabled()


def test_a_finished_run_is_there_when_the_page_is_opened_again(tune: Page, visit) -> None:
    take_sample(tune)
    tune.locator("#run").click()
    expect(tune.locator("#runs")).to_contain_text("COFT strength 0.5")
    again = visit("/tune")
    expect(again.locator("#runs li[aria-current=true]")).to_contain_text("tuning_demo")
    expect(again.locator("#tuned-points")).to_contain_text("chosen")


def test_the_tuned_strength_is_offered_where_the_method_is_chosen_and_taken_over(tune: Page, visit) -> None:
    take_sample(tune)
    tune.locator("#run").click()
    expect(tune.locator("#tuned-points")).to_contain_text("chosen")
    audit = visit("/")
    expect(audit.locator("#tuned-note")).to_contain_text("Tuned on tuning_demo.jsonl (tuning_demo): λ 0.85")
    audit.locator("#use-tuned").click()
    expect(audit.locator("#lam input[type=number]")).to_have_value("0.85")
    audit.locator("#policy-menu").select_option("sdd")
    expect(audit.locator("#tuned-note")).not_to_contain_text("Tuned on")
    expect(audit.locator("#use-tuned")).to_be_hidden()


def test_the_sampling_controls_and_the_source_of_the_calibration_reach_the_run(
    tune: Page, services: FakeServices, tmp_path: Path
) -> None:
    take_sample(tune)
    tune.get_by_text("Sampling", exact=True).click()
    for label, value in (("Temperature", "0.7"), ("Top-p", "0.8"), ("Top-k", "5")):
        box = tune.get_by_role("spinbutton", name=label)
        box.fill(value)
        box.press("Tab")
    tune.get_by_text("Certify COFT while tuning").click()
    steps = tune.get_by_role("spinbutton", name="Steps of a chain")
    expect(steps).to_be_hidden()
    tune.get_by_label("Rollouts: what this policy itself writes").check()
    steps.fill("32")
    steps.press("Tab")
    prompts = tmp_path / "prompts.csv"
    prompts.write_text("prompt\nHe said\n", "utf-8")
    tune.locator("#calibrate-on input[type=file]").set_input_files(prompts)
    expect(tune.locator("#calibrate-on")).to_contain_text("prompts")
    tune.locator("#run").click()
    expect(tune.locator("#tuned-head")).to_contain_text("on rollouts, what it writes itself on the prompts of prompts")
    expect(tune.locator("#tuned-head")).to_contain_text("temperature 0.7, top-p 0.8, top-k 5")
    (request,) = services[TuningService].requests
    assert request.calibration_source == "rollout"
    own = request.settings
    assert (own.temperature, own.top_p, own.top_k, own.max_new_tokens) == (0.7, 0.8, 5, 32)


def test_a_run_that_was_cancelled_shows_the_points_that_it_kept_and_chooses_none(
    tune: Page, services: FakeServices
) -> None:
    take_sample(tune)
    for name in ("Self-debiasing", "DExperts"):
        tune.get_by_label(name, exact=True).check()
    services[TuningService].cancelled_after = 1
    tune.locator("#run").click()
    notes = tune.locator("#tuned-points .cautions li")
    expect(notes.first).to_contain_text("was cancelled after 3 of 9 points")
    expect(notes).to_have_count(1)
    rows = tune.locator("#tuned-points tbody tr")
    expect(rows).to_have_count(1 + 3)
    expect(rows.filter(has_text="chosen")).to_have_count(0)
    expect(tune.locator("#runs")).to_contain_text("was cancelled, 3 of 9 points, nothing chosen")
