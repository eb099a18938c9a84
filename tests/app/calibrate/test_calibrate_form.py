"""The settings of a calibration: what applies shows, what does not hides, and the request is what was chosen."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.shared.jobs import JobService
from app.shared.wiring import Services
from tests.app.calibrate.test_calibrate_page import GOOD, pick, run, unfold, upload
from tests.story.seed import CALIBRATION

DRAWN_ANEW = """(node) => {
  const late = node.cloneNode(true);
  ["data-summary", "aria-expanded"].forEach((name) => late.removeAttribute(name));
  node.replaceWith(late);
}"""
"""The head of a fold as Gradio draws it, which on a slow machine is long after the rest of the page."""


@pytest.fixture
def page(visit, services: Services) -> Page:
    opened = visit("/calibrate")
    expect(opened.locator("#result .headline")).to_be_visible()
    return opened


@pytest.mark.slow
def test_a_choice_brings_its_fields_and_what_is_folded_says_what_it_holds(
    page: Page, services: Services, tmp_path, picture
):
    summary = page.locator("#fold-estimator .label-wrap")
    expect(summary).to_have_attribute("data-summary", "hierarchical, each step")
    unfold(page, "fold-estimator")
    width = page.locator("#fold-estimator").get_by_label("Steps of a bin").first
    expect(width).to_be_hidden()
    pick(page, "Estimator", "one per context: one token each")
    pick(page, "Steps that share a threshold", "the same number throughout, as in the paper")
    expect(summary).to_have_attribute("data-summary", "one per context, even bins of 8")
    expect(width).to_be_visible()
    expect(page.locator("#fold-estimator").get_by_label("Draws that are averaged").first).to_be_visible()
    summary.evaluate(DRAWN_ANEW)
    expect(summary).to_have_attribute("data-summary", "one per context, even bins of 8")
    expect(summary).to_have_attribute("aria-expanded", "true")
    unfold(page, "fold-check")
    for source, visible in (("Rollouts: ", "#rollouts"), ("The references: ", "#fold-check")):
        page.get_by_label(source).first.check()
        expect(page.locator(visible)).to_be_visible()
    expect(page.locator("#rollouts")).to_be_hidden()
    upload(page, tmp_path, GOOD)
    expect(page.locator("#estimate")).to_contain_text("2 prompts")
    unfold(page, "fold-mask")
    page.get_by_label("One masked view for each family").check()
    page.get_by_label("by hand").check()
    expect(page.locator("#estimate")).to_contain_text("check again")
    expect(page.locator("#shares input:visible")).to_have_count(8)
    page.locator("#shares").get_by_label("gender").fill("0.05")
    expect(page.locator("#shares-sum .caution, #shares-sum.caution, #shares-sum p.caution")).to_be_visible()
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_have_count(1)
    assert services[JobService].list()[0].title == CALIBRATION
    picture(page, "calibrate-shares-1440-light")
    page.locator("#shares").get_by_label("gender").fill("0.01")
    made = run(page, services)
    assert (made.mask_layout, made.estimator, made.bin_spacing) == ("factorized", "one_per_context", "even")
    assert dict(made.alpha_by_family)["gender"] == 0.01
