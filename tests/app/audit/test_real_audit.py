"""The whole program on the embedded model, clicked through: pages, services, decoder and store together."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from app.calibrate.service import CalibrationService
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
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
