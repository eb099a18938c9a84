"""Journeys over the audit page: from a prompt to a report, by keys, through a stored chain, and what goes wrong."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService, RunUntil
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from coft_core.types import Span
from tests.story.model import PROMPT
from tests.story.seed import newest

STRONGEST = 4
"""Step of the token that differs most between shown and masked in the chains of these tests."""
WATCHED = """() => {
  const table = document.querySelector("#inspector .cand"), said = document.querySelector("#inspector .announce");
  Object.assign(window, { moved: 0, places: new Set([table.getBoundingClientRect().top]) });
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => { window.moved += entry.value; }))
    .observe({ type: "layout-shift", buffered: false });
  new MutationObserver(() => window.places.add(table.getBoundingClientRect().top))
    .observe(said, { childList: true, subtree: true, characterData: true });
  document.querySelector(".tok[data-i='0']").dataset.same = "yes";
}"""
"""How far parts of the page move, and where the candidates lie."""


def type_prompt(page: Page) -> None:
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)


def tokens(page: Page):
    return page.locator(".strip .tok[data-i]")


def token(page: Page, step: int):
    return page.locator(f".tok[data-i='{step - 1}']")


def selected(page: Page, step: int) -> None:
    expect(page.locator(".tok.sel")).to_have_attribute("data-i", str(step - 1))
    expect(page.locator("#inspector .where")).to_contain_text(f"step {step} of")


def started(services: Services, steps: int = 64, calibration: int | None = 1) -> int:
    """A session that has no step yet."""
    settings = AuditSettings(calibration_id=calibration, max_new_tokens=steps, greedy=True)
    return services[AuditService].start(StartAudit(PROMPT, settings, (Span(35, 37, "gender"),))).session_id


def test_from_a_prompt_to_a_report_while_nothing_on_the_page_moves(audit, services: Services, tmp_path):
    page = audit()
    type_prompt(page)
    expect(page.locator(".reading .counts")).to_have_text("10 tokens, 2 masked, same length")
    expect(page.locator(".reading .several")).to_have_text(services[AuditService].model("demo").sentinel)
    page.locator("[data-do=step]").click()
    expect(tokens(page)).to_have_count(1)
    expect(page.locator("#inspector .where")).to_have_text("step 1 of 1")
    page.locator(".charted > summary").click()
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_visible()
    page.evaluate(WATCHED)
    page.evaluate("coft.session.run()")
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    expect(tokens(page)).to_have_count(64)
    expect(tokens(page).first).to_have_attribute("data-same", "yes")
    expect(page.locator("[data-do=go]")).to_be_disabled()
    selected(page, STRONGEST)
    assert page.evaluate("window.moved") < 0.02
    assert page.evaluate("window.places.size") == 1
    with page.expect_download() as waiting:
        page.locator("[data-do=report]").click()
        page.get_by_role("menuitem", name="CSV One table").click()
    waiting.value.save_as(tmp_path / "report.csv")
    assert len((tmp_path / "report.csv").read_text("utf-8").splitlines()) == 65
    page.goto(page.url.split("?")[0])
    expect(page.locator("[data-do=go]")).to_be_enabled()
    expect(page.locator("#prompt")).to_have_value("")


def test_one_journey_by_keyboard_keeps_the_focus_at_what_each_key_brought(audit, services: Services):
    page = audit()
    type_prompt(page)
    page.locator("[data-do=step]").focus()
    page.keyboard.press("Enter")
    expect(tokens(page)).to_have_count(1)
    assert page.evaluate("document.querySelector('.strip').contains(document.activeElement)")
    for number in (2, 3):
        page.keyboard.press("ArrowRight")
        expect(tokens(page)).to_have_count(number)
        expect(token(page, number)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(token(page, 2)).to_be_focused()
    expect(page.locator("#inspector .where")).to_contain_text("step 2 of")
    page.keyboard.press("3")
    expect(page.locator("#inspector .where")).to_have_text("step 2 of 2 · you forced it")
    expect(token(page, 2)).to_be_focused()
    page.keyboard.press("b")
    page.keyboard.type("two words")
    page.keyboard.press("Enter")
    expect(page.locator(".toast-body")).to_contain_text("is not one token of this model")
    expect(page.locator("#typed")).to_have_value("two words")
    page.locator("#typed").fill(" nobody")
    page.keyboard.press("Enter")
    expect(page.locator("#inspector .bigtok")).to_contain_text("nobody")
    expect(token(page, 2)).to_be_focused()
    on = page.get_by_role("button", name="Run on")
    on.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    expect(on).to_have_count(0)
    assert page.evaluate("document.querySelector('.strip').contains(document.activeElement)")
    expect(page.locator(".crumbs .node.on")).to_contain_text("nobody")
    page.keyboard.press("u")
    expect(page.locator("dialog#reviewer")).to_be_visible()
    page.keyboard.type("R. Osei")
    page.keyboard.press("Enter")
    expect(page.locator("#verdicts [role=radio]:focus")).to_have_count(1)
    expect(page.locator("[role=radio][aria-checked=true]")).to_have_attribute("data-verdict", "unfair")
    assert services[AuditService].view(newest(services)).settings.calibration_id == 1
    page.locator(".crumbs button.node").first.click()
    expect(tokens(page)).to_have_count(3)


@pytest.mark.slow
def test_what_is_not_started_survives_a_reload_and_can_be_discarded(audit):
    page = audit()
    type_prompt(page)
    page.locator(".spanlist [data-do=keep]").first.click()
    page.get_by_label("number input for Lambda").fill("0.3")
    page.keyboard.press("Tab")
    expect(page.locator(".rail .block.note").nth(1)).to_contain_text("belongs to another policy")
    page.reload()
    expect(page.locator(".notice")).to_contain_text("is here again")
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    expect(page.locator(".spanlist tbody tr").first).to_contain_text("kept")
    expect(page.get_by_label("number input for Lambda")).to_have_value("0.3")
    page.locator(".notice button").click()
    expect(page.locator("#prompt")).to_have_value("")
    expect(page.get_by_label("number input for Lambda")).to_have_value("0.6")


@pytest.mark.slow
def test_an_audit_that_certifies_nothing_is_started_knowingly_and_looks_so(audit, services: Services):
    page = audit()
    page.locator("[data-do=go]").click()
    expect(page.locator(".notice")).to_contain_text("The prompt is empty")
    expect(page.locator("#prompt")).to_be_focused()
    type_prompt(page)
    page.get_by_label("number input for Lambda").fill("0.3")
    page.keyboard.press("Tab")
    expect(page.locator(".rail .block.note").nth(1)).to_contain_text("belongs to another policy")
    page.locator("[data-do=step]").click()
    expect(page.locator(".notice")).to_contain_text("This calibration belongs to another policy")
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    page.locator("[data-do=proceed]").click()
    expect(page.locator("#transcript .cautions")).to_contain_text("Uncertified: policy mismatch")
    expect(tokens(page).first).to_have_class(re.compile("open"))
    assert services[AuditService].view(newest(services)).settings.proceed_uncertified
    page.locator("#calibration input").click()
    page.get_by_role("option", name="None: audit without certificate").click()
    expect(page.locator(".notice")).to_contain_text("Run begins a new audit")
    page.locator("[data-do=step]").click()
    expect(page.locator("#transcript .cautions")).to_contain_text("Uncertified: no calibration.")
    expect(page.locator(".cand .tick")).to_have_count(0)


def test_a_step_that_is_not_there_and_a_lost_connection_are_one_sentence_each(visit, services: Services):
    number = started(services)
    list(services[AuditService].run(number, until=RunUntil("steps", steps=3)))
    page = visit(f"/?session={number}&step=99")
    selected(page, 3)
    expect(page.locator(".notice")).to_contain_text("The address names step 99; this text has 3 so far")
    expect(page.locator("[data-do=step]")).to_be_enabled()
    page.context.set_offline(True)
    lost = page.locator(".lost")
    for _ in range(2):
        # What is asked after it was said ends too.
        page.locator("[data-do=step]").click()
        expect(lost).to_contain_text("The program cannot be reached")
        expect(page.locator("[data-do=go]")).to_be_enabled()
    lost.get_by_role("button").click()
    expect(lost).to_contain_text("Still not there")
    page.context.set_offline(False)
    lost.get_by_role("button").click()
    selected(page, 3)
    expect(lost).to_have_count(0)
    expect(page.locator("body")).not_to_contain_text("Traceback")
