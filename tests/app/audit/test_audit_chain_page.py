"""The chain as a whole, contributions of spans and the cost of a policy, on the audit page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.story.model import LONG_PROMPT


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


def test_a_phone_shows_the_candidates_themselves_beside_their_numbers(audit):
    page = audit("?session=1", width=390)
    page.locator("#inspector [data-do=fold]").click()
    first = page.locator(".cand tbody tr td.t").first
    expect(first).to_be_visible()
    assert first.bounding_box()["width"] >= 44
    assert page.locator(".cand").evaluate("(table) => table.scrollWidth <= table.parentElement.clientWidth")
