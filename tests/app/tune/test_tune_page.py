"""Tuning in the browser: a set is read, methods are swept, and the best points are shown and downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.jobs.service import JobService
from app.shared.wiring import Services
from app.tune.runs import TuningRequest, request_from
from tests.app.shared.test_accessibility import faulty
from tests.browser import hand_over


@pytest.fixture
def tune(visit) -> Page:
    page = visit("/tune")
    expect(page.locator("#tuned-head")).to_contain_text("Nothing is tuned yet")
    return page


def take_set(page: Page, folder: Path) -> None:
    """Upload pairs of the story's prompts whose right answers are likely."""
    path, rows = folder / "pairs.jsonl", []
    for number in range(10):
        who, what = ("cook", "tourist", "doctor", "uncle")[number % 4], ("rounds", "notes")[number % 2]
        for pronoun in ("he", "she"):
            prompt = f"The {who} finished {what} and then {pronoun} prepared the reports"
            at = prompt.index(f" {pronoun} ") + 1
            others, spans = ["they", "we"] if number % 2 else ["the"], [[at, at + len(pronoun), "gender"]]
            rows.append({"prompt": prompt, "answer": "and", "others": others, "pair": f"pair {number}", "spans": spans})
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    hand_over(page, "#tuning-set", path)
    expect(page.locator("#read-set")).to_contain_text("20 prompts with a right answer, 10 pairs")


def newest_request(services: Services) -> TuningRequest:
    """What the newest run was asked."""
    return request_from(services[JobService].list("tuning")[0].payload)


def test_the_best_point_of_each_method_is_drawn_downloaded_found_again_and_taken_over_by_audits(
    tune: Page, services: Services, tmp_path: Path
) -> None:
    take_set(tune, tmp_path)
    for name in ("Self-debiasing", "GeDi", "DExperts", "Activation steering"):
        tune.get_by_label(name, exact=True).check()
    expect(tune.locator("#tuning-time")).not_to_be_empty()
    tune.locator("#run").click()
    rows = tune.locator("#tuned-points tbody tr")
    expect(rows).to_have_count(1 + 9 + 3 * 5)
    expect(rows.filter(has_text="chosen")).to_have_count(2)
    expect(rows.filter(has_text="COFT").filter(has_text="chosen")).to_contain_text("0.007 [0.007, 0.007]")
    notes = tune.locator("#tuned-points .cautions li")
    expect(notes).to_have_count(3)
    expect(notes.filter(has_text="Activation steering was left out")).to_contain_text("with other weights")
    expect(notes.filter(has_text="GeDi")).to_contain_text("no point keeps enough accuracy")
    expect(notes.filter(has_text="Self-debiasing")).to_contain_text("has a smaller gap than the model alone")
    expect(tune.locator("#tuning-plot .scatterlayer .trace")).to_have_count(5)
    request = newest_request(services)
    assert set(request.policies) == {"coft", "sdd", "gedi", "dexperts", "iti"}
    assert request.name == "pairs"
    with tune.expect_download() as waiting:
        tune.locator("#save-points").click()
    assert len(Path(waiting.value.path()).read_text("utf-8").splitlines()) >= 1 + 1 + 9 + 3 * 5
    assert faulty(tune) == []
    tune.goto(tune.url.partition("?")[0])
    expect(tune.locator("#runs li[aria-current=true]")).to_contain_text("pairs")
    expect(tune.locator("#runs")).to_contain_text("COFT λ 0.9")
    expect(tune.locator("#tuned-points")).to_contain_text("chosen")
    tune.goto(tune.url.partition("/tune")[0])
    expect(tune.locator("#tuned-note")).to_contain_text("Tuned on pairs.jsonl (pairs): λ 0.9")
    tune.locator("#use-tuned").click()
    expect(tune.locator("#lam input[type=number]")).to_have_value("0.9")
    tune.locator("#policy-menu").select_option("sdd")
    expect(tune.locator("#tuned-note")).not_to_contain_text("Tuned on")
    expect(tune.locator("#use-tuned")).to_be_hidden()
