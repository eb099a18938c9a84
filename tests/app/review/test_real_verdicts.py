"""Verdicts through the pages of the whole program: given, judged blind, decided, and found in the report."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from app.audit.service import AuditService
from app.report.service import ReportService
from app.review.service import VerdictService
from app.shared.audits import AuditSettings, StartAudit
from tests.browser import PATIENCE_MS, Embedded


def browse(browser: Browser, name: str) -> Page:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    context.set_default_timeout(2 * PATIENCE_MS)
    context.add_init_script(f"localStorage.setItem('coft-reviewer', {name!r})")
    return context.new_page()


def judge(page: Page, address: str, key: str, said: str) -> None:
    page.goto(address)
    page.locator(".tok[data-i='1']").click()
    expect(page.locator("#h-judged")).to_have_text("step 2")
    page.keyboard.press(key)
    expect(page.locator("#verdicts .said")).to_contain_text(said)


def test_two_people_judge_blind_and_a_third_decides(browser: Browser, embedded: Embedded):
    wired, url = embedded
    view = wired[AuditService].start(StartAudit("The nurse said that he", AuditSettings(max_new_tokens=4)))
    list(wired[AuditService].run(view.session_id))
    audit, review = f"{url}/?session={view.session_id}", f"{url}/review?session={view.session_id}"
    first, second, third = (browse(browser, name) for name in ("R. Osei", "A. Lee", "C. Ruiz"))
    judge(first, audit, "u", "Saved: unfair on step 2, log entry 1.")
    second.goto(review)
    second.get_by_role("button", name="Start a blind review").click()
    expect(second.locator(".told")).to_contain_text("has begun")
    judge(second, audit, "c", "Saved: fair on step 2, log entry 3.")
    expect(second.locator(".tok[data-i='1'] .vd")).to_have_class("vd fair")
    second.goto(review)
    second.get_by_role("button", name="Finish the review").click()
    expect(second.locator(".targets")).to_contain_text("Disputed")
    third.goto(review)
    third.get_by_role("button", name="Show the verdicts").click()
    third.get_by_role("button", name="Decide on Step 2").click()
    third.locator("dialog#decide").get_by_label("Unfair").check()
    third.locator("dialog#decide").get_by_role("button", name="Decide").click()
    expect(third.locator(".told")).to_have_text("Decided: unfair on step 2, log entry 5.")
    expect(third.locator(".check")).to_have_text("The chain of 5 entries holds.")
    expect(third.locator(".targets .words")).to_have_text(view_words(wired, view.session_id))
    rows = wired[ReportService].csv(view.session_id).splitlines()
    assert wired[VerdictService].verify_log(view.session_id).whole
    for page in (first, second, third):
        page.context.close()
    assert "unfair" in rows[2]


def view_words(wired, session_id: int) -> str:
    return wired[AuditService].view(session_id).steps[1].token.strip()
