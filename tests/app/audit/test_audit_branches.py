"""The tree of branches on the audit page: drawn, walked by keyboard, renamed, pruned, linked and compared."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from app.audit.service import AuditService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.shared.wiring import Services
from tests.story.seed import slowed

ROOT, AND, HE, THE = 1, 2, 3, 4


def unfolded(audit, query: str = "?session=1&branch=3", **options: object) -> Page:
    page = audit(query, **options)
    page.locator(".branching > summary").click()
    expect(page.locator("[role=treeitem]").first).to_be_visible()
    return page


def row(page: Page, branch: int) -> Locator:
    return page.locator(f"[role=treeitem][data-id='{branch}']")


def act(page: Page, branch: int, action: str) -> None:
    page.locator(f"[data-more='{branch}']").click()
    page.locator(f"#menu-branch [data-action={action}]").click()
    expect(page.locator("#menu-branch")).to_be_hidden()


def is_open(page: Page, branch: int) -> None:
    """The branch is shown, in the address too, and the page is ready for the next thing."""
    expect(row(page, branch)).to_have_attribute("aria-current", "true")
    expect(page).to_have_url(re.compile(f"branch={branch}(&|$)"))
    expect(page.locator("[data-do=overhead]")).to_be_enabled()


def test_the_whole_tree_is_drawn_with_the_shown_chain_marked_by_shape(audit, picture):
    page = unfolded(audit)
    expect(page.locator(".branching > summary .title")).to_have_text("Branches (4)")
    rows = page.locator("[role=treeitem]")
    assert [rows.nth(at).get_attribute("aria-level") for at in range(4)] == ["1", "2", "3", "3"]
    expect(row(page, HE)).to_have_attribute("aria-label", "he, forced at step 2, 38 steps, shown")
    expect(row(page, ROOT).locator(".leaf")).to_have_text("1 step")
    expect(page.locator(".graph path.fork.on")).to_have_count(1)
    expect(page.locator(".graph circle.fork")).to_have_count(3)
    # the shown chain runs through the lines of its ancestors up to where it leaves them
    expect(page.locator(".graph path.lane.on")).to_have_count(3)
    picture(page, "audit-branches-1440-light")


def test_a_click_opens_a_branch_and_the_mark_moves(audit):
    page = unfolded(audit)
    row(page, THE).click()
    is_open(page, THE)
    expect(page.locator(".strip .tok[data-i]")).to_have_count(2)
    expect(page.locator(".crumbs .node.on")).to_contain_text("the")
    expect(row(page, HE)).not_to_have_attribute("aria-current", "true")


def test_the_tree_is_walked_and_folded_by_keyboard_and_the_page_does_not_step_meanwhile(audit):
    page = unfolded(audit)
    row(page, HE).focus()
    page.keyboard.press("ArrowDown")
    expect(row(page, THE)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(row(page, AND)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(row(page, AND)).to_have_attribute("aria-expanded", "false")
    expect(page.locator("[role=treeitem]")).to_have_count(2)
    expect(row(page, AND)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[role=treeitem]")).to_have_count(4)
    page.keyboard.press("ArrowRight")
    expect(row(page, HE)).to_be_focused()
    page.keyboard.press("End")
    expect(row(page, THE)).to_be_focused()
    expect(page.locator("[role=treeitem][tabindex='0']")).to_have_count(1)
    expect(page.locator("#inspector .where")).to_contain_text("step 2 of 38")
    page.keyboard.press("Enter")
    is_open(page, THE)
    page.keyboard.press("Shift+F10")
    expect(page.locator("#menu-branch")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#menu-branch")).to_be_hidden()


def test_a_branch_is_renamed_in_its_place_and_keeps_its_token(audit, services: Services):
    page = unfolded(audit)
    row(page, HE).focus()
    page.keyboard.press("F2")
    field = row(page, HE).get_by_role("textbox")
    expect(field).to_be_focused()
    field.fill("as a man")
    page.keyboard.press("Enter")
    expect(row(page, HE).locator(".called")).to_have_text("as a man")
    expect(row(page, HE)).to_have_attribute("aria-label", re.compile("as a man, token he, forced at step 2"))
    expect(row(page, HE)).to_be_focused()
    expect(page.locator(".crumbs .node.on")).to_contain_text("as a man")
    page.reload()
    expect(page.locator(".crumbs .node.on")).to_contain_text("as a man")
    view = services[AuditService].view(1, HE)
    assert {branch.id: branch.name for branch in view.branches}[HE] == "as a man"


def test_a_refused_name_stays_in_its_field_and_escape_gives_the_old_one_back(audit):
    page = unfolded(audit)
    row(page, THE).focus()
    page.keyboard.press("F2")
    field = row(page, THE).get_by_role("textbox")
    field.evaluate("(node) => node.removeAttribute('maxlength')")
    field.fill("x" * 201)
    page.keyboard.press("Enter")
    expect(page.locator(".toast-body")).to_contain_text("The name of a branch has 1 to 200 characters")
    expect(field).to_have_value("x" * 201)
    expect(field).to_be_enabled()
    field.press("Escape")
    expect(field).to_have_count(0)
    expect(row(page, THE).locator(".called")).to_have_text("the")


def test_a_name_that_is_being_typed_survives_tokens_that_arrive(audit, services: Services, monkeypatch):
    slowed(monkeypatch, services, 0.02)
    page = unfolded(audit, "?session=1&branch=4")
    page.locator("[data-do=go]").click()
    expect(page.locator(".strip .tok[data-i]").nth(4)).to_be_attached()
    row(page, HE).focus()
    page.keyboard.press("F2")
    field = row(page, HE).get_by_role("textbox")
    field.fill("half a na")
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    expect(field).to_have_value("half a na")
    field.press("Enter")
    expect(row(page, HE).locator(".called")).to_have_text("half a na")
    expect(row(page, THE).locator(".leaf")).to_have_text("64 steps · length reached")


def test_pruning_says_what_goes_along_and_the_parent_is_shown_afterwards(audit, services: Services):
    page = unfolded(audit)
    act(page, AND, "prune")
    question = page.locator("dialog#confirm")
    expect(question).to_contain_text("Prune “and”?")
    expect(question).to_contain_text("2 branches that depart from it")
    expect(question).to_contain_text("It takes along: “he”, “the”.")
    question.get_by_role("button", name="Keep it").click()
    expect(question).to_be_hidden()
    assert len(services[AuditService].view(1).branches) == 4
    act(page, AND, "prune")
    question.get_by_role("button", name="Prune").click()
    expect(page.locator(".branching > summary .title")).to_have_text("Branches (1)")
    expect(page.locator(".strip .tok[data-i]")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"branch=1(&|$)"))
    expect(page.locator(".branching .alone")).to_contain_text("force another word there")
    assert [branch.id for branch in services[AuditService].view(1).branches] == [ROOT]


def test_pruning_another_branch_leaves_the_shown_chain_as_it_is(audit):
    page = unfolded(audit)
    page.locator(".tok[data-i='12']").click()
    act(page, THE, "prune")
    page.locator("dialog#confirm").get_by_role("button", name="Prune").click()
    expect(page.locator("[role=treeitem]")).to_have_count(3)
    expect(page.locator(".branching .told")).to_have_text("Pruned.")
    expect(page.locator("#inspector .where")).to_contain_text("step 13 of 38")
    expect(page.locator(".crumbs .sib")).not_to_contain_text("the chain before the")


def test_a_branch_with_verdicts_says_why_it_stays(audit, services: Services):
    services[VerdictService].add(VerdictRequest(1, "R. Osei", "fair", THE, 1, 1))
    page = unfolded(audit)
    row(page, THE).focus()
    page.keyboard.press("Delete")
    expect(page.locator(".branching .told")).to_contain_text("The verdict log has 1 entry on this branch")
    expect(page.locator("dialog#confirm")).to_be_hidden()
    assert len(services[AuditService].view(1).branches) == 4


def test_the_main_branch_is_not_offered_for_pruning(audit):
    page = unfolded(audit)
    page.locator(f"[data-more='{ROOT}']").click()
    expect(page.locator("#menu-branch [data-action=open]")).to_be_visible()
    expect(page.locator("#menu-branch [data-action=prune]")).to_be_hidden()


def test_a_branchs_link_opens_it_at_its_fork_and_the_shown_one_at_its_token(audit):
    page = unfolded(audit)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    act(page, THE, "link")
    expect(page.locator(".branching .told")).to_have_text("The link is copied.")
    assert page.evaluate("navigator.clipboard.readText()").endswith("/?session=1&branch=4&step=2")
    page.locator(".tok[data-i='12']").click()
    expect(page.locator("#inspector .where")).to_contain_text("step 13")
    act(page, HE, "link")
    page.wait_for_function(
        "async () => (await navigator.clipboard.readText()).endsWith('/?session=1&branch=3&step=13')"
    )


def test_siblings_are_compared_on_their_own_page_with_the_chain_that_they_left(audit):
    page = unfolded(audit)
    link = page.get_by_role("link", name="Compare with siblings")
    expect(link).to_have_attribute("href", f"./compare?session=1&branches={AND},{HE},{THE}")
    page.locator(f"[data-more='{THE}']").click()
    expect(page.locator("#menu-branch [data-action=compare]")).to_have_attribute(
        "href", f"./compare?session=1&branches={AND},{THE},{HE}"
    )


def test_two_chains_stand_beside_each_other_from_where_they_part_and_follow_further_steps(audit, picture):
    page = unfolded(audit, "?session=1&branch=4")
    act(page, HE, "beside")
    beside = page.locator(".beside")
    expect(beside.locator("h3")).to_have_text("Apart from step 2 on")
    expect(beside.locator(".parted")).to_have_text("both: and")
    expect(beside.locator("thead")).to_contain_text("the (shown)")
    first = beside.locator("tbody tr").first
    expect(first.locator("td")).to_contain_text(["2", "the", "−0.53", "he", "+0.89"])
    expect(first.locator(".gauge i.hot")).to_have_count(2)
    expect(beside.locator("tbody tr")).to_have_count(37)
    picture(page, "audit-beside-1440-light")
    page.locator("[data-do=step]").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(3)
    expect(beside.locator("tbody tr").nth(1).locator("td").nth(1)).to_contain_text("filed")
    beside.get_by_role("button", name="Close").click()
    expect(beside).to_be_hidden()


def test_a_forced_token_appears_in_the_open_tree_at_its_step(audit):
    page = unfolded(audit)
    page.locator(".tok[data-i='6']").click()
    page.locator("#typed").fill(" we")
    page.keyboard.press("Enter")
    expect(page.locator("[role=treeitem]")).to_have_count(5)
    expect(page.locator("[role=treeitem][aria-current]")).to_have_attribute(
        "aria-label", "we, forced at step 7, 7 steps, shown"
    )


def test_the_open_tree_is_not_cut_off_at_any_width(audit):
    page = unfolded(audit, width=768)
    act(page, THE, "beside")
    expect(page.locator(".beside table")).to_be_visible()
    for width in (768, 1280):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
