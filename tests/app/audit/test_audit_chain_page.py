"""The chain as a whole, contributions of spans and the cost of a policy, on the audit page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from tests.fakes import FakeServices

PROMPT = "The German nurse, a Muslim, finished rounds and then he left"


def started(audit, steps: int = 0, **options: object) -> Page:
    page = audit(**options)
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(4)
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("0 of 64 steps")
    for number in range(1, steps + 1):
        page.locator("[data-do=step]").click()
        expect(page.locator(".strip .tok[data-i]")).to_have_count(number)
    return page


def test_both_certificates_of_a_chain_stand_side_by_side_and_follow_each_step(audit):
    page = started(audit)
    expect(page.locator(".whole")).to_be_hidden()
    page.locator("[data-do=step]").click()
    answers = page.locator(".answer")
    expect(answers).to_have_count(2)
    expect(answers.nth(0)).to_contain_text("As one chain")
    expect(answers.nth(0)).to_contain_text("No token is less supported")
    expect(answers.nth(1)).to_contain_text("Step by step, added up")
    expect(answers.nth(1).locator("dl div", has_text="Steps that are charged")).to_contain_text("8")
    expect(answers.nth(0).locator("dl div", has_text="Weakest token")).to_contain_text("and, step 1")
    for _ in range(8):
        page.locator("[data-do=step]").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(9)
    expect(answers.nth(1).locator("dl div", has_text="Steps that are charged")).to_contain_text("16")


def test_the_weakest_token_leads_to_its_step(audit):
    page = audit("?session=1")
    weakest = page.locator(".answer [data-weakest]")
    expect(weakest).to_contain_text("doctor, step 13")
    weakest.click()
    expect(page.locator("#inspector .where")).to_contain_text("step 13 of 38")
    expect(page.locator(".tok[data-i='12']")).to_be_focused()


def test_a_run_keeps_the_certificate_up_to_date_and_says_where_it_ends(audit):
    page = started(audit)
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    first = page.locator(".answer").first
    expect(first.locator(".badge")).to_have_text("says nothing")
    expect(first).to_contain_text(
        "The chain has 64 steps, and the certificate of whole chains is for chains that reach 40 steps"
    )


def test_without_a_certificate_nothing_is_claimed_for_a_chain(audit):
    page = audit()
    page.goto(page.url.split("?")[0] + "?session=2")
    expect(page.locator(".count")).to_contain_text("0 of 64 steps")
    page.locator("[data-do=step]").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(1)
    expect(page.locator(".whole")).to_be_hidden()


def test_contributions_are_drawn_for_the_chain_and_for_the_selected_token(audit, services: FakeServices, picture):
    page = started(audit, 4)
    button = page.locator("[data-do=contribute]")
    expect(button).to_have_text("What does each span contribute?")
    expect(page.locator("#facts .shares")).to_be_hidden()
    button.click()
    matrix = page.locator(".matrix")
    expect(matrix.locator(".lines > div")).to_have_count(4)
    expect(matrix.locator("rect.more, rect.less").first).to_be_visible()
    expect(page.locator(".spans .lead")).to_contain_text("The largest contribution is +0.90, of “German”")
    shares = page.locator("#facts .shares tbody tr")
    expect(shares).to_have_count(6)
    expect(shares.nth(0)).to_contain_text("German")
    expect(shares.nth(0)).to_contain_text("+0.90")
    expect(shares.nth(4)).to_contain_text("only together")
    expect(shares.nth(5)).to_contain_text("+1.12")
    expect(page.locator("#facts .shares")).to_contain_text("need not sum to the total")
    page.locator(".tok[data-i='1']").click()
    expect(shares.nth(0)).to_contain_text("+0.71")
    page.locator(".numbers summary").click()
    cells = page.locator(".numbers tbody tr").nth(3).locator("td")
    expect(cells).to_have_text(["4", "his", "+0.90", "−0.39", "+0.22", "+0.11", "+0.28", "+1.12"])
    picture(page, "audit-contributions-1440-light")


def test_a_cell_of_the_picture_selects_its_step(audit):
    page = started(audit, 4)
    page.locator("[data-do=contribute]").click()
    svg = page.locator(".matrix svg")
    expect(svg).to_be_visible()
    svg.click(position={"x": 4, "y": 4})
    expect(page.locator("#inspector .where")).to_contain_text("step 1 of 4")


def test_further_steps_are_said_to_be_missing_until_it_is_computed_again(audit):
    page = started(audit, 2)
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".matrix svg")).to_be_visible()
    expect(page.locator("[data-do=contribute]")).to_be_disabled()
    page.locator("[data-do=step]").click()
    expect(page.locator(".spans .lead")).to_have_text("Computed for the first 2 of 3 steps.")
    expect(page.locator("#facts .shares")).to_be_hidden()
    page.locator("[data-do=contribute]").click()
    expect(page.locator("#facts .shares")).to_be_visible()
    page.locator(".cand tbody tr").nth(1).get_by_role("button").click()
    expect(page.locator(".crumbs .node.on")).to_contain_text("3")
    expect(page.locator(".spans .found")).to_be_hidden()


def test_computing_shows_that_it_works_and_another_model_is_one_sentence(audit, services: FakeServices):
    page = started(audit, 2)
    services[AuditService].measuring.clear()
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".spans .working")).to_be_visible()
    expect(page.locator("[data-do=contribute]")).to_be_disabled()
    services[AuditService].changed = True
    services[AuditService].measuring.set()
    expect(page.locator(".toast-body")).to_contain_text("other weights")
    expect(page.locator(".spans .working")).to_be_hidden()
    expect(page.locator("[data-do=contribute]")).to_be_enabled()


def test_the_cost_is_measured_on_demand(audit):
    page = started(audit, 1)
    cost = page.locator(".cost")
    expect(cost).to_contain_text("Each step reads 2 branches: as typed, and masked.")
    expect(cost.locator(".measured")).to_have_text("")
    cost.get_by_role("button", name="Measure the cost").click()
    expect(cost.locator(".measured")).to_contain_text("2 branches instead of 1: 1.64 times the time per token")
    expect(page.locator("[data-do=go]")).to_be_enabled()


@pytest.mark.parametrize("width", [768, 1024, 1280])
def test_nothing_is_cut_off_at_any_width(audit, width: int):
    page = audit("?session=1", width=width)
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".matrix svg")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_screen_reader_hears_the_largest_contribution_and_each_answers_state(audit):
    page = started(audit, 2)
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".matrix .vh")).to_contain_text("The largest contribution is")
    expect(page.locator(".spans .working")).to_have_attribute("role", "status")
    expect(page.locator(".answer .badge").first).to_have_text("certified")
    expect(page.locator(".whole")).to_have_attribute("aria-labelledby", "h-whole")
