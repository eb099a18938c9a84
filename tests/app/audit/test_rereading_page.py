"""The panel that reads a chain at another lambda or alpha, on the audit page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.wiring import Services
from tests.story.seed import calibrate, prompt_set


def opened(audit, **options: object) -> Page:
    page = audit("?session=1", **options)
    expect(page.locator("#reread-lam")).to_be_enabled()
    return page


def marked(page: Page, kind: str):
    return page.locator(f".restrip .rt[data-mark^='{kind}']")


def rows(page: Page):
    return page.locator(".differing tbody tr")


@pytest.mark.slow
def test_tokens_and_certificates_that_would_differ_are_marked_counted_selected_and_taken_back(audit):
    page = opened(audit)
    number = page.locator("#reread-lam-number")
    expect(page.locator(".onward")).to_be_hidden()
    page.locator("#reread-lam").focus()
    page.keyboard.press("End")
    expect(number).to_have_value("1")
    expect(marked(page, "other")).to_have_count(2)
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    expect(number).to_have_value("0.94")
    expect(marked(page, "other")).to_have_count(1)
    expect(page.locator(".told-now")).to_contain_text("1 of 38 tokens would be another one, at step 4 (“his” → “they”)")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("they")
    expect(page.locator(".standing .badge")).to_have_text("no threshold fits")
    expect(page.locator("#inspector .where")).to_contain_text("step 2 of 38")
    number.fill("1")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Select step 15").click()
    expect(page.locator("#inspector .where")).to_contain_text("step 15 of 38")
    expect(page.locator(".restrip .rt[data-i='14']")).to_have_class("rt after sel")
    for width in (768, 1440):
        page.set_viewport_size({"width": width, "height": 1000})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("(n => n.scrollWidth <= n.clientWidth)(document.querySelector('.differing .scroll'))")
    number.fill("1.4")
    expect(page.locator(".rereading .wrong")).to_have_text("Lambda is a number from 0 to 1.")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Back to the audit’s own").click()
    expect(number).to_have_value("0.6")
    expect(marked(page, "other")).to_have_count(0)
    expect(page.locator(".standing .badge")).to_have_text("under thresholds")
    page.locator("#reread-alpha-number").fill("0.3")
    expect(page.locator(".told-now .certificate")).to_contain_text("21 would lose the certificate and 8 would gain one")
    lost = page.locator(".restrip .rt[data-mark$='lost']")
    expect(lost).to_have_count(21)
    expect(lost.first.locator(".mk svg")).to_have_count(1)
    expect(rows(page)).to_have_count(21 + 8)
    expect(rows(page).first).to_contain_text("missed")


@pytest.mark.slow
def test_a_lambda_with_a_calibration_of_its_own_is_offered_and_its_token_leads_to_a_new_audit_or_a_branch(
    audit, services: Services, tmp_path: Path
):
    calibrate(services, prompt_set(tmp_path, {16: 60}), "Ward notes at 0.9", lam=0.9)
    page = opened(audit)
    page.locator("[data-offer='0.9']").click()
    expect(page.locator("#reread-lam-number")).to_have_value("0.9")
    expect(page.locator(".standing")).to_contain_text("“Ward notes at 0.9” counts, which was made for it")
    expect(page.locator("[data-offer='0.9']")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="New audit with λ 0.9 and α 0.1").click()
    expect(page.locator(".rereading .came")).to_contain_text("repeats the first 3 tokens of audit 1")
    expect(page.locator(".rereading .came")).to_contain_text("departs at step 4")
    expect(page.locator(".strip .tok[data-i]")).to_have_count(4)
    expect(page.locator(".strip .tok[data-i='3'] .w")).to_have_text("they")
    expect(page.locator("#reread-lam-number")).to_have_value("0.9")
    assert services[AuditService].view(3).settings.lam == 0.9
    page.get_by_role("button", name="Back to audit 1").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(38)
    expect(page.locator(".rereading .came")).to_be_hidden()
    expect(page.locator("#reread-lam-number")).to_have_value("0.6")
    page.locator("#reread-lam-number").fill("0.9")
    page.get_by_role("button", name="Fork with “they” at step 4").click()
    expect(page.locator(".crumbs .node.on")).to_contain_text("they")
    expect(page.locator("#inspector .where")).to_contain_text("step 4 of 4")
    assert services[AuditService].view(1).settings.lam == 0.6
