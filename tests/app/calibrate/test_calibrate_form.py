"""The settings of a calibration: what applies shows, what does not hides, and the request is what was chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.shared.jobs import JobService
from app.shared.wiring import Services
from tests.app.calibrate.test_calibrate_page import GOOD, run, unfold, upload
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


def test_rollouts_bring_their_fields_and_take_away_the_recording(page: Page, services: Services, tmp_path):
    unfold(page, "fold-check")
    expect(page.locator("#rollouts")).to_be_hidden()
    expect(page.get_by_label("Record chains, to notice drift later")).to_be_visible()
    page.get_by_label("Rollouts: what this policy itself writes.").check()
    expect(page.locator("#rollouts")).to_be_visible()
    expect(page.get_by_label("Record chains, to notice drift later")).to_be_hidden()
    page.locator("#rollouts input[type=number]").first.fill("6")
    upload(page, tmp_path, "prompt\nThe nurse said that he\n")
    expect(page.locator("#row-errors tbody tr")).to_have_count(0)
    made = run(page, services)
    assert (made.source, made.max_iterations, made.max_new_tokens) == ("rollout", 6, 64)


def test_shares_by_hand_are_summed_and_refused_over_alpha(page: Page, services: Services, tmp_path, picture):
    upload(page, tmp_path, GOOD)
    unfold(page, "fold-mask")
    page.get_by_label("One masked view for each family").check()
    page.get_by_label("by hand").check()
    fields = page.locator("#shares input:visible")
    expect(fields).to_have_count(8)
    expect(page.locator("#shares-sum")).to_contain_text("The shares sum to 0.1 of alpha 0.10.")
    page.locator("#shares").get_by_label("gender").fill("0.05")
    expect(page.locator("#shares-sum")).to_contain_text("sum to 0.1375, more than alpha 0.10")
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_contain_text("sum to more than alpha")
    assert services[JobService].list()[0].title == CALIBRATION
    picture(page, "calibrate-shares-1440-light")
    page.locator("#shares").get_by_label("gender").fill("0.01")
    made = run(page, services)
    assert made.mask_layout == "factorized"
    assert dict(made.alpha_by_family)["gender"] == 0.01


def test_one_family_alone_is_one_masked_view_of_it(page: Page, services: Services, tmp_path):
    upload(page, tmp_path, GOOD)
    unfold(page, "fold-mask")
    page.get_by_label("One family only").check()
    expect(page.locator("#masked-families")).to_be_hidden()
    made = run(page, services)
    assert (made.mask_layout, made.masked_families) == ("joint", ("gender",))


def test_the_soft_mask_has_a_hint_and_terms_can_be_kept(page: Page, services: Services, tmp_path):
    upload(page, tmp_path, GOOD)
    unfold(page, "fold-mask")
    expect(page.get_by_label("Hint", exact=True)).to_be_hidden()
    page.get_by_label("Soft: a neutral hint in their place").check()
    page.get_by_label("Hint", exact=True).fill("someone")
    page.get_by_label("Never masked").fill("head nurse, matron , head nurse")
    made = run(page, services)
    assert (made.mask_mode, made.mask_hint, made.whitelist) == ("soft", "someone", ("head nurse", "matron"))


def test_what_is_assumed_of_prompts_in_use_is_asked_for(page: Page, services: Services, tmp_path: Path):
    rows = "".join(f"The {who} said that he {n}, left,a\n" for who in ("nurse", "cook", "clerk") for n in range(20))
    upload(page, tmp_path, f"prompt,reference,group\n{rows}")
    unfold(page, "fold-shift")
    expect(page.get_by_label("ρ, at least 1")).to_be_hidden()
    page.get_by_label("They may differ: at most").check()
    page.get_by_label("ρ, at least 1").fill("2")
    made = run(page, services)
    assert (made.rho, made.weighting) == (2.0, "none")
    page.get_by_label("Estimate the difference from a file of them").check()
    expect(page.get_by_label("ρ, at least 1")).to_be_hidden()
    other = tmp_path / "in use.csv"
    prompts = tuple(f"The {who} said {n}" for who in ("nurse", "cook", "clerk") for n in range(20))
    other.write_text("\n".join(("prompt", *prompts)), "utf-8")
    page.locator("#deployment input[type=file]").set_input_files(other)
    expect(page.locator("#deployment")).to_contain_text("in use.csv")
    made = run(page, services)
    assert (made.rho, made.weighting, made.deployment) == (1.0, "estimated", prompts)


def test_folded_settings_say_what_they_hold(page: Page):
    summary = page.locator("#fold-estimator .label-wrap")
    expect(summary).to_have_attribute("data-summary", "hierarchical, bins of 8")
    unfold(page, "fold-estimator")
    page.get_by_label("Estimator", exact=True).first.click()
    page.get_by_role("option", name="one per context").click()
    expect(summary).to_have_attribute("data-summary", "one per context, bins of 8")
    expect(page.locator("#fold-estimator").get_by_label("Draws that are averaged").first).to_be_visible()
    summary.evaluate(DRAWN_ANEW)
    expect(summary).to_have_attribute("data-summary", "one per context, bins of 8")
    expect(summary).to_have_attribute("aria-expanded", "true")
