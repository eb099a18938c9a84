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
    page.locator(".rereading summary").click()
    expect(page.locator("#reread-lam")).to_be_enabled()
    return page


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
