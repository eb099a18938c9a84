"""The chain as a whole, contributions of spans and the cost of a policy, on the audit page."""

from __future__ import annotations

import re
import threading

from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.step_words import signed
from app.shared.wiring import Services
from tests.story.model import LONG_PROMPT, PROMPT
from tests.story.seed import newest


def started(audit, steps: int = 0, **options: object) -> Page:
    page = audit(**options)
    page.locator("#prompt").fill(LONG_PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(4)
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
    expect(answers.nth(0)).to_contain_text("and has not ended: the certificate of whole chains is for")
    expect(answers.nth(1)).to_contain_text("Step by step")
    expect(answers.nth(1).locator("dl div", has_text="Steps counted")).to_contain_text("8")
    expect(answers.nth(0).locator("dl div", has_text="Weakest token")).to_contain_text("step 1")
    for _ in range(8):
        page.locator("[data-do=step]").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(9)
    expect(answers.nth(1).locator("dl div", has_text="Steps counted")).to_contain_text("16")


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
        "0 contexts with chains that reach 64 steps are too few for a threshold of whole chains."
    )


def test_a_chain_as_long_as_those_calibrated_on_is_certified_as_a_whole(audit, services: Services):
    settings = AuditSettings(calibration_id=1, greedy=True, max_new_tokens=16)
    made = services[AuditService].start(StartAudit(PROMPT.replace("rounds", "notes"), settings))
    list(services[AuditService].run(made.session_id))
    page = audit(f"?session={made.session_id}")
    first = page.locator(".answer").first
    expect(first.locator(".badge")).to_have_text("threshold held")
    expect(first).to_contain_text("The text as a whole passes the 90\N{NO-BREAK SPACE}% test.")


def test_without_a_certificate_nothing_is_claimed_for_a_chain(audit):
    page = audit()
    page.goto(page.url.split("?")[0] + "?session=2")
    expect(page.locator(".count")).to_contain_text("0 of 64 steps")
    page.locator("[data-do=step]").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(1)
    expect(page.locator(".whole")).to_be_hidden()


def test_contributions_are_drawn_for_the_chain_and_for_the_selected_token(audit, services: Services, picture):
    page = started(audit, 4)
    measured = services[AuditService].contributions(newest(services))
    totals, first = measured.log_ratio, measured.spans[0].log_ratio
    largest = max((value for part in measured.spans for value in part.log_ratio), key=abs)
    button = page.locator("[data-do=contribute]")
    expect(button).to_have_text("What does each span contribute?")
    expect(page.locator("#facts .shares")).to_be_hidden()
    button.click()
    matrix = page.locator(".matrix")
    expect(matrix.locator(".lines > div")).to_have_count(4)
    expect(matrix.locator("rect.more, rect.less").first).to_be_visible()
    expect(page.locator(".spans .lead")).to_contain_text(f"The largest contribution is {signed(largest)}, of “")
    shares = page.locator("#facts .shares tbody tr")
    expect(shares).to_have_count(6)
    expect(shares.nth(0)).to_contain_text("elderly")
    expect(shares.nth(0)).to_contain_text(signed(first[3]))
    expect(shares.nth(4)).to_contain_text("only together")
    expect(shares.nth(5)).to_contain_text(signed(totals[3]))
    expect(page.locator("#facts .shares")).to_contain_text("need not sum to the total")
    page.locator(".tok[data-i='1']").click()
    expect(shares.nth(0)).to_contain_text(signed(first[1]))
    page.locator(".numbers summary").click()
    cells = page.locator(".numbers tbody tr").nth(3).locator("th, td")
    alone = [part.log_ratio[3] for part in measured.spans]
    token = services[AuditService].view(newest(services)).steps[3].token.strip()
    expect(cells).to_have_text(["4", token, *map(signed, [*alone, measured.interaction[3], totals[3]])])
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


def test_computing_shows_that_it_works_and_another_model_is_one_sentence(audit, services: Services, monkeypatch):
    page = started(audit, 2)
    measured = threading.Event()

    def refused(*_: object) -> None:
        measured.wait(10)
        raise ServiceError("This session was made with other weights than are loaded now; start a new one.")

    monkeypatch.setattr(services[AuditService], "contributions", refused)
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".spans .working")).to_be_visible()
    expect(page.locator("[data-do=contribute]")).to_be_disabled()
    measured.set()
    expect(page.locator(".toast-body")).to_contain_text("other weights")
    expect(page.locator(".spans .working")).to_be_hidden()
    expect(page.locator("[data-do=contribute]")).to_be_enabled()


def test_the_cost_is_measured_on_demand(audit):
    page = started(audit, 1)
    cost = page.locator(".cost")
    expect(cost).to_contain_text("Each step reads 2 branches: as typed, and masked.")
    expect(cost.locator(".measured")).to_have_text("")
    cost.get_by_role("button", name="Measure the cost").click()
    expect(cost.locator(".measured")).to_contain_text(
        re.compile(r"2 branches instead of 1: \d+\.\d+ times the time per token")
    )
    expect(page.locator("[data-do=go]")).to_be_enabled()


def test_nothing_is_cut_off_at_any_width(audit):
    page = audit("?session=1", width=768)
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".matrix svg")).to_be_visible()
    for width in (768, 1024, 1280):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_a_screen_reader_hears_the_largest_contribution_and_each_answers_state(audit):
    page = started(audit, 2)
    page.locator("[data-do=contribute]").click()
    expect(page.locator(".matrix .vh")).to_contain_text("The largest contribution is")
    expect(page.locator(".spans .working")).to_have_attribute("role", "status")
    expect(page.locator(".answer .badge").first).to_have_text("says nothing")
    expect(page.locator(".whole")).to_have_attribute("aria-labelledby", "h-whole")


def test_a_phone_shows_the_candidates_themselves_beside_their_numbers(audit):
    page = audit("?session=1", width=390)
    page.locator("#inspector [data-do=fold]").click()
    first = page.locator(".cand tbody tr td.t").first
    expect(first).to_be_visible()
    assert first.bounding_box()["width"] >= 44
    assert page.locator(".cand").evaluate("(table) => table.scrollWidth <= table.parentElement.clientWidth")
