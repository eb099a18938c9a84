"""The panel that reads a chain at another lambda or alpha, on the audit page."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import Page, expect

from app.audit.reread_service import RereadService
from app.audit.rereading import Rereading, RereadRequest
from app.audit.service import AuditService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from tests.story.model import PROMPT
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
def test_the_newest_wish_is_shown_last_what_is_typed_stays_and_new_tokens_join_the_reading(
    audit, services: Services, monkeypatch
):
    answering, asked = threading.Event(), []
    read = services[RereadService].read

    def late(request: RereadRequest) -> Rereading:
        asked.append(request)
        answering.wait(20)
        return read(request)

    page = opened(audit)
    monkeypatch.setattr(services[RereadService], "read", late)
    try:
        page.locator("#reread-lam-number").fill("0.9")
        page.wait_for_function("() => window.performance && document.querySelector('#reread-lam').value === '0.9'")
        page.locator("#reread-lam-number").fill("1")
    finally:
        answering.set()
    expect(marked(page, "other")).to_have_count(2)
    expect(page.locator("#reread-lam-number")).to_have_value("1")
    assert asked[-1].lam == 1
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    expect(page.locator(".restrip .rt")).to_have_count(64)
    expect(page.locator(".told-now .token")).to_contain_text("of 64 tokens")


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


@pytest.mark.slow
def test_without_thresholds_only_lambda_can_be_moved_and_a_chain_that_cannot_be_read_says_why(
    visit, services: Services
):
    audits = services[AuditService]
    audits.step(2)
    made = audits.start(StartAudit(PROMPT, AuditSettings(policy="vanilla"), None, "plain"))
    audits.step(made.session_id)
    page = visit("/?session=2")
    expect(page.locator("#reread-lam")).to_be_enabled()
    expect(page.locator("#reread-alpha")).to_be_disabled()
    page.goto(f"{page.url.partition('?')[0]}?session={made.session_id}")
    expect(page.locator(".rereading .why")).to_contain_text("Vanilla")
    expect(page.locator("#reread-lam")).to_be_hidden()


@pytest.mark.usefixtures("services")
def test_another_program_reads_an_audit_by_the_endpoint_as_the_page_does(address):
    client = Client(address, verbose=False)
    read = client.predict(1, 1.0, 0.1, api_name="/reread_audit")
    assert (read["first"], read["differing"], read["thresholds"]) == (4, 2, "mismatch")
    assert read["steps"][3]["policy_token"] == " they"
    assert read["certified"] == 0
    own = client.predict(1, api_name="/reread_audit")
    assert (own["lam"], own["alpha"], own["first"]) == (0.6, 0.1, None)
    with pytest.raises(AppError, match="lambda is 3"):
        client.predict(1, 3.0, api_name="/reread_audit")
