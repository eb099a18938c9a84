"""The whole program on the embedded model, clicked through: pages, services, decoder and store together."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.bootstrap import services as open_services
from app.calibrate.service import CalibrationService
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from tests.browser import served
from tests.story.model import EMBEDDED

PROMPT = "The nurse finished rounds and then he prepared the reports"


def report_of(page: Page, target: Path) -> list[dict[str, str]]:
    with page.expect_download() as waiting:
        page.locator("[data-do=report]").click()
        page.get_by_role("menuitem", name="CSV One table").click()
    waiting.value.save_as(target)
    return list(csv.DictReader(target.open(newline="", encoding="utf-8")))


def keep_what_was_certified(rows: list[dict[str, str]]) -> None:
    """The rows of a report certify what reaches the threshold, and only that is chosen by itself."""
    for row in rows:
        joint = min(float(row["p_fused"]), float(row["p_masked"]))
        assert (row["certified"] == "true") == (joint >= float(row["tau"]))
        assert row["chosen_by"] == "reviewer" or row["certified"] == "true" or row["fallback"] == "true"
        assert row["certificate"] == "certified"
        assert re.fullmatch(r"0\.0000\d+ nats, float32", row["numeric_noise"])


def cats(folder: Path, rows: int) -> Path:
    """A prompt set with so many good rows and a bad one."""
    path = folder / "cats.jsonl"
    good = [{"prompt": f"He had {i} cats and", "reference": "he was happy."} for i in range(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in good) + '{"prompt": ""}\n', "utf-8")
    return path


def test_a_reviewer_calibrates_the_embedded_model_on_her_own_prompts_and_audits_a_prompt_with_it(
    visit, services: Services, tmp_path
):
    page = visit("/calibrate")
    page.get_by_label("Model", exact=True).first.fill(EMBEDDED)
    page.keyboard.press("Enter")
    page.locator("#prompt-set input[type=file]").set_input_files(cats(tmp_path, 24))
    expect(page.locator("#row-errors tbody tr")).to_have_count(1)
    page.get_by_label("Go on with the 24 good rows").check()
    page.locator("#run").click()
    expect(page.locator("#result h2").first).to_contain_text("cats")
    made = [each for each in services[CalibrationService].list() if not each.embedded]
    assert [(each.contexts, each.model) for each in made] == [(18, EMBEDDED)]
    with page.expect_download() as waiting:
        page.locator("#result").get_by_role("button", name="Download").click()
    assert Calibration.from_bytes(Path(waiting.value.path()).read_bytes()).context_count == 18
    page.get_by_role("link", name="Use in audits").click()
    expect(page.locator(".rail .note .badge")).to_contain_text("18 contexts")
    of_another_model = page.locator(".rail .note", has_text=EMBEDDED)
    expect(of_another_model).not_to_have_count(0)
    page.get_by_label("Model", exact=True).fill(EMBEDDED)
    page.keyboard.press("Enter")
    expect(of_another_model).to_have_count(0)
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(1)
    tokens = page.locator(".strip .tok[data-i]")
    for number in (1, 2, 3):
        page.locator("[data-do=step]").click()
        expect(tokens).to_have_count(number)
    page.locator(".tok[data-i='1']").click()
    page.locator("#typed").fill(" she")
    page.keyboard.press("Enter")
    expect(tokens).to_have_count(2)
    rows = report_of(page, tmp_path / "report.csv")
    assert [row["chosen_by"] for row in rows][-1] == "reviewer"
    assert len(rows) == 4
    keep_what_was_certified(rows)


@pytest.mark.slow
def test_a_reviewer_audits_a_prompt_exports_it_and_finds_it_again(embedded, page, picture, tmp_path):
    tokens = page.locator(".strip .tok[data-i]")
    wired, url = embedded
    page.goto(url)
    expect(page.locator(".rail .note .badge")).to_contain_text("calibrated")
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(1)
    expect(page.locator(".spanlist tbody tr")).to_contain_text("gender")
    expect(page.locator(".masked b")).to_have_count(1)
    for number in (1, 2, 3):
        page.locator("[data-do=step]").click()
        expect(tokens).to_have_count(number)
    page.locator("[data-do=back]").click()
    expect(page.locator("#inspector .where")).to_contain_text("step 2 of 3")
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text(" · ")
    expect(page.locator("[data-do=go]")).to_be_disabled()
    expect(page.locator(".answer")).to_have_count(2)
    page.locator(".madewith > summary").click()
    expect(page.locator(".madewith dl")).to_contain_text("float32, steps")
    expect(page.locator(".madewith dl")).to_contain_text("preallocated memory")
    expect(page.locator(".madewith dl")).to_contain_text(
        re.compile(r"log-probabilities agree within 0\.0000[\d]+ nats, float32")
    )
    page.locator(".madewith > summary").click()
    expect(page.locator("details.computed")).to_contain_text("Keys and values")
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".matrix .lines > div")).to_have_count(1)
    expect(page.locator("#facts .shares tbody tr.total")).to_have_count(1)
    picture(page, "real-audit-1440-light")
    length = tokens.count()
    page.locator(".tok[data-i='1']").click()
    page.locator("#typed").fill(" she")
    page.keyboard.press("Enter")
    expect(tokens).to_have_count(2)
    expect(page.locator("#inspector .where")).to_contain_text("you forced it")
    rows = report_of(page, tmp_path / "report.csv")
    address = page.url
    assert len(rows) == length + 1
    keep_what_was_certified(rows)
    assert all("preallocated memory" in row["computed"] for row in rows)
    with open_services(wired.settings, owns_store=True) as again, served(again) as url:
        page.goto(f"{url}/?{address.split('?', 1)[1]}")
        expect(tokens).to_have_count(2)
        expect(page.locator("#prompt")).to_have_value(PROMPT)
        page.locator("[data-do=step]").click()
        expect(tokens).to_have_count(3)
