"""The panel that reads a chain at another lambda or alpha, on the audit page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import Page, expect

from app.audit.reread_service import RereadService
from app.audit.service import AuditService
from app.bootstrap import services as open_services
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from tests.browser import served
from tests.fakes import FakeServices

MADE_UP = True


def opened(audit, session: int = 1) -> Page:
    page = audit(f"?session={session}")
    expect(page.locator("#reread-lam")).to_be_enabled()
    return page


def marked(page: Page, kind: str):
    return page.locator(f".restrip .rt[data-mark^='{kind}']")


def rows(page: Page):
    return page.locator(".differing tbody tr")


def test_a_slider_moved_by_keys_marks_the_tokens_that_would_be_others_and_reset_takes_it_back(audit):
    page = opened(audit)
    expect(page.locator(".told-now .token")).to_contain_text("the audit’s own values")
    expect(page.locator(".onward")).to_be_hidden()
    page.locator("#reread-lam").focus()
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#reread-lam-number")).to_have_value("0.54")
    expect(marked(page, "other")).to_have_count(1)
    expect(page.locator(".told-now")).to_contain_text("1 of 38 tokens would be another one, at step 4 (“his” → “her”)")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("her")
    expect(page.locator(".standing .badge")).to_have_text("uncertified")
    expect(page.locator(".reach")).to_contain_text("not what would be written")
    expect(page.locator("#inspector .where")).to_contain_text("step 2 of 38")
    page.get_by_role("button", name="Back to the audit’s own").click()
    expect(page.locator("#reread-lam-number")).to_have_value("0.6")
    expect(marked(page, "other")).to_have_count(0)
    expect(page.locator(".standing .badge")).to_have_text("certified")


def test_certificates_that_would_differ_are_marked_and_counted_in_words(audit):
    page = opened(audit)
    page.locator("#reread-alpha-number").fill("0.3")
    expect(page.locator(".told-now .certificate")).to_contain_text("would lose the certificate")
    lost = page.locator(".restrip .rt[data-mark$='lost']")
    expect(lost.first).to_be_visible()
    expect(lost.first.locator(".mk svg")).to_have_count(1)
    expect(rows(page)).to_have_count(lost.count())
    expect(rows(page).first).to_contain_text("not certified")


def test_a_row_selects_its_token_and_a_number_outside_the_range_is_refused_in_place(audit):
    page = opened(audit)
    page.locator("#reread-lam-number").fill("0.4")
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name="Select step 15").click()
    expect(page.locator("#inspector .where")).to_contain_text("step 15 of 38")
    expect(page.locator(".restrip .rt[data-i='14']")).to_have_class("rt after sel")
    page.locator("#reread-lam-number").fill("1.4")
    expect(page.locator(".rereading .wrong")).to_have_text("Lambda is a number from 0 to 1.")
    expect(rows(page)).to_have_count(3)


def test_the_newest_wish_is_shown_last_and_what_is_typed_stays(audit, services: FakeServices):
    page = opened(audit)
    services[RereadService].answering.clear()
    try:
        page.locator("#reread-lam-number").fill("0.4")
        page.wait_for_function("() => window.performance && document.querySelector('#reread-lam').value === '0.4'")
        page.locator("#reread-lam-number").fill("0.25")
    finally:
        services[RereadService].answering.set()
    expect(marked(page, "other")).to_have_count(4)
    expect(page.locator("#reread-lam-number")).to_have_value("0.25")
    assert services[RereadService].calls[-1].lam == 0.25


def test_a_lambda_with_a_calibration_of_its_own_is_offered_by_name(audit):
    page = opened(audit)
    page.locator("[data-offer='0.4']").click()
    expect(page.locator("#reread-lam-number")).to_have_value("0.4")
    expect(page.locator(".standing")).to_contain_text("“Ward notes at 0.4” counts, which was made for it")
    expect(page.locator("[data-offer='0.4']")).to_have_attribute("aria-pressed", "true")


def test_the_token_of_the_reading_is_forced_in_a_branch_of_this_audit(audit, services: FakeServices):
    page = opened(audit)
    page.locator("#reread-lam-number").fill("0.5")
    services[AuditService].stored[1].branches[2].steps[3] = with_candidate(services, 3, " her")
    page.get_by_role("button", name="Fork with “her” at step 4").click()
    expect(page.locator(".crumbs .node.on")).to_contain_text("her")
    expect(page.locator("#inspector .where")).to_contain_text("step 4 of 4")
    assert services[AuditService].view(1).settings.lam == 0.6


def with_candidate(services: FakeServices, index: int, token: str):
    """A stored step that knows the token as a candidate, so that it can be forced by its number."""
    step = services[AuditService].view(1).steps[index]
    row = replace(step.candidates[-1], token_id=100 + sum(map(ord, token)), token=token)
    return replace(step, candidates=(*step.candidates[:-1], row))


def test_a_new_audit_with_these_settings_opens_where_it_departs_and_leads_back(audit, services: FakeServices):
    page = opened(audit)
    page.locator("#reread-lam-number").fill("0.5")
    page.get_by_role("button", name="New audit with λ 0.5 and α 0.1").click()
    expect(page.locator(".rereading .came")).to_contain_text("repeats the first 3 tokens of audit 1")
    expect(page.locator(".strip .tok[data-i]")).to_have_count(4)
    expect(page.locator("#reread-lam-number")).to_have_value("0.5")
    assert services[AuditService].view(3).settings.lam == 0.5
    page.get_by_role("button", name="Back to audit 1").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(38)
    expect(page.locator(".rereading .came")).to_be_hidden()
    expect(page.locator("#reread-lam-number")).to_have_value("0.6")


def test_new_tokens_join_the_reading_while_the_audit_runs(audit, services: FakeServices):
    page = opened(audit)
    page.locator("#reread-lam-number").fill("0.4")
    expect(rows(page)).to_have_count(3)
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    expect(page.locator(".restrip .rt")).to_have_count(64)
    expect(page.locator(".told-now .token")).to_contain_text("of 64 tokens")


def test_without_thresholds_only_lambda_can_be_moved(visit, services: FakeServices):
    services[AuditService].step(2)
    page = visit("/?session=2")
    expect(page.locator("#reread-lam")).to_be_enabled()
    expect(page.locator("#reread-alpha")).to_be_disabled()
    expect(page.locator("#reread-alpha-hint")).to_contain_text("no alpha to change")
    expect(page.locator(".told-now .certificate")).to_be_empty()


def test_a_chain_that_cannot_be_read_says_why(audit, services: FakeServices):
    made = services[AuditService]._create(StartAudit("The nurse", AuditSettings(policy="vanilla"), None, "plain"))
    services[AuditService].step(made.id)
    page = audit(f"?session={made.id}")
    expect(page.locator(".rereading .why")).to_contain_text("Vanilla decoding mixes no readings")
    expect(page.locator("#reread-lam")).to_be_hidden()


@pytest.mark.parametrize(("width", "dark"), [(768, True), (1440, False)])
def test_the_panel_never_scrolls_sideways(audit, width, dark, picture):
    page = audit("?session=1", width=width, dark=dark)
    expect(page.locator("#reread-lam")).to_be_enabled()
    page.locator("#reread-lam-number").fill("0.4")
    expect(rows(page)).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("(n => n.scrollWidth <= n.clientWidth)(document.querySelector('.differing .scroll'))")
    picture(page, f"rereading-{width}")


def test_a_real_audit_is_read_at_another_lambda_and_continued_from_there(page: Page, tmp_path: Path):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'real.sqlite3'}")
    with open_services(settings, owns_store=True) as wired, served(wired) as url:
        audit = AuditSettings(max_new_tokens=12, seed=5)
        prompt = "The nurse finished rounds and then he prepared the reports"
        first = wired[AuditService].start(StartAudit(prompt, audit))
        for _ in wired[AuditService].run(first.session_id):
            pass
        page.goto(f"{url}/?session={first.session_id}")
        expect(page.locator("#reread-lam")).to_be_enabled(timeout=60_000)
        expect(page.locator("#reread-alpha")).to_be_disabled()
        page.locator("#reread-lam-number").fill("0")
        expect(marked(page, "other").first).to_be_visible()
        at = int(page.locator(".restrip .rt.first").get_attribute("data-i") or "-1")
        would = page.locator(".differing tbody tr.first .would").inner_text()
        page.get_by_role("button", name="New audit with λ 0").click()
        expect(page.locator(".rereading .came")).to_contain_text(f"departs at step {at + 1}")
        expect(page.locator(".strip .tok[data-i]")).to_have_count(at + 1)
        expect(page.locator(f".strip .tok[data-i='{at}'] .w")).to_have_text(would.removeprefix("≠").strip())


def test_another_program_reads_an_audit_by_the_endpoint_as_the_page_does(address, services: FakeServices):
    client = Client(address, verbose=False)
    read = client.predict(1, 0.5, 0.1, api_name="/reread_audit")
    assert (read["first"], read["differing"], read["thresholds"]) == (4, 1, "mismatch")
    assert read["steps"][3]["policy_token"] == " her"
    assert read["certified"] == 0
    own = client.predict(1, api_name="/reread_audit")
    assert (own["lam"], own["alpha"], own["first"]) == (0.6, 0.1, None)
    with pytest.raises(AppError, match="Lambda is 3"):
        client.predict(1, 3.0, api_name="/reread_audit")
