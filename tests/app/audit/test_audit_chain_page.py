"""The chain as a whole, contributions of spans and the cost of a policy, on the audit page."""

from __future__ import annotations

import re
import threading

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.errors import ServiceError
from app.shared.format import signed
from app.shared.wiring import Services
from tests.story.model import LONG_PROMPT
from tests.story.seed import newest


def begun(audit, steps: int) -> Page:
    page = audit()
    page.locator("#prompt").fill(LONG_PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(4)
    for number in range(1, steps + 1):
        page.locator("[data-do=step]").click()
        expect(page.locator(".strip .tok[data-i]")).to_have_count(number)
    return page


@pytest.mark.slow
def test_both_certificates_of_a_chain_follow_it_and_the_weakest_token_leads_to_its_step(audit):
    page = begun(audit, 1)
    answers = page.locator(".answer")
    page.locator(".whole > summary").click()
    expect(answers).to_have_count(2)
    expect(answers.nth(1).locator("dl div", has_text="Steps counted")).to_contain_text("8")
    expect(answers.nth(0).locator("dl div", has_text="Weakest token")).to_contain_text("step 1")
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    expect(answers.first.locator(".badge")).to_have_text("says nothing")
    cost = page.locator(".cost")
    cost.get_by_role("button", name="Measure the cost").click()
    expect(cost.locator(".measured")).to_contain_text(re.compile(r"\d+\.\d+ times the time per token"))
    page.goto(f"{page.url.split('?')[0]}?session=1")
    expect(page.locator(".tok[data-i='37']")).to_be_visible()
    expect(page.locator(".byfamily")).to_be_hidden()
    expect(page.locator(".cand thead th").nth(4)).to_be_visible()
    page.locator(".whole > summary").click()
    page.locator(".answer [data-weakest]").click()
    expect(page.locator("#inspector .where")).to_contain_text("step 13 of 38")
    expect(page.locator(".tok[data-i='12']")).to_be_focused()


@pytest.mark.slow
def test_contributions_are_drawn_for_the_chain_and_the_selected_token_and_say_what_is_missing(
    audit, services: Services, monkeypatch
):
    page = begun(audit, 4)
    audits = services[AuditService]
    measured = audits.contributions(newest(services))
    totals, first = measured.log_ratio, measured.spans[0].log_ratio
    button, shares = page.locator("[data-do=contribute]"), page.locator("#facts .shares tbody tr")
    asked, contributions = threading.Event(), audits.contributions

    def refused(*_: object) -> None:
        asked.wait(10)
        raise ServiceError("This session was made with other weights than are loaded now; start a new one.")

    monkeypatch.setattr(audits, "contributions", refused)
    button.click()
    expect(page.locator(".spans .working")).to_be_visible()
    expect(button).to_be_disabled()
    asked.set()
    expect(page.locator(".toast-body")).to_contain_text("other weights")
    expect(page.locator(".spans .working")).to_be_hidden()
    monkeypatch.setattr(audits, "contributions", contributions)
    button.click()
    expect(page.locator(".matrix .lines > div")).to_have_count(4)
    expect(page.locator(".matrix").locator("rect.more, rect.less").first).to_be_visible()
    largest = max((value for part in measured.spans for value in part.log_ratio), key=abs)
    expect(page.locator(".spans .lead")).to_contain_text(signed(largest))
    expect(shares).to_have_count(6)
    expect(shares.nth(0)).to_contain_text(signed(first[3]))
    expect(shares.nth(5)).to_contain_text(signed(totals[3]))
    page.locator(".numbers summary").click()
    cells = page.locator(".numbers tbody tr").nth(3).locator("th, td")
    single = [part.log_ratio[3] for part in measured.spans]
    token = audits.view(newest(services)).steps[3].token.strip()
    expect(cells).to_have_text(["4", token, *map(signed, [*single, measured.interaction[3], totals[3]])])
    page.locator(".matrix svg").click(position={"x": 4, "y": 4})
    expect(page.locator("#inspector .where")).to_contain_text("step 1 of 4")
    expect(shares.nth(0)).to_contain_text(signed(first[0]))
    for width in (768, 1024, 1280):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("End")
    page.locator("[data-do=step]").click()
    expect(page.locator(".spans .lead")).to_contain_text("4 of 5 steps")
    expect(page.locator("#facts .shares")).to_be_hidden()
    button.click()
    expect(page.locator("#facts .shares")).to_be_visible()
    page.locator(".cand tbody").get_by_role("button").first.click()
    expect(page.locator(".spans .found")).to_be_hidden()


def test_a_phone_shows_the_candidates_themselves_beside_their_numbers(audit):
    page = audit("?session=1", width=390)
    page.locator("#inspector [data-do=fold]").click()
    first = page.locator(".cand tbody tr td.t").first
    expect(first).to_be_visible()
    assert first.bounding_box()["width"] >= 44
    assert page.locator(".cand").evaluate("(table) => table.scrollWidth <= table.parentElement.clientWidth")
