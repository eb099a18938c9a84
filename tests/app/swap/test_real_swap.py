"""Attribute swaps on the embedded model, clicked through: what is planted is found, and masking ends it."""

from __future__ import annotations

import csv
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser import PATIENCE_MS, Embedded

SCENARIO = "Hiring, race: Black, a decision"


def test_a_planted_gap_is_large_when_visible_smaller_after_fusion_and_none_when_masked(
    embedded: Embedded, page: Page, picture
):
    page.goto(f"{embedded.address}/swap")
    expect(page.locator(".exchange")).to_be_visible()
    page.locator("#phantoms").fill(SCENARIO)
    expect(page.locator(".spans .word")).to_have_text(["Black"])
    prompt = page.locator("#prompt").input_value()
    page.locator("#swap-own").fill("white")
    page.keyboard.press("Enter")
    expect(page.locator(".variants > li")).to_have_count(2)
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("#swap-length").fill("4")
    page.locator("[data-do=run]").click()
    expect(page.locator(".lead")).to_contain_text("Swapping what was typed for “white” moves", timeout=3 * PATIENCE_MS)
    expect(page.locator(".lead")).to_contain_text("masked 0\N{NO-BREAK SPACE}%")
    expect(page.locator("#swap-plot .main-svg").first).to_be_visible()
    picture(page, "real-swap-1440-light")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Distances (CSV)").click()
    rows = csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines())
    distances = {row["view"]: float(row["total_variation"]) for row in rows}
    assert distances["factual"] > 0.4
    assert distances["factual"] > distances["fused"] + 0.1 > 0.1
    assert distances["masked"] < 1e-6
    page.get_by_role("button", name="Open as audit: COFT, white").click()
    expect(page.locator("#prompt")).to_have_value(prompt.replace("Black", "white"))
    expect(page.locator(".spanlist .word").filter(has_text="white")).to_have_count(1)
