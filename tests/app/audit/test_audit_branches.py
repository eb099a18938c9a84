"""Journeys over the tree of branches on the audit page: walked and named, pruned and linked, laid beside another."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from app.audit.service import AuditService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.shared.wiring import Services

ROOT, AND, HE, THE = 1, 2, 3, 4


def unfolded(audit, query: str = "?session=1&branch=3") -> Page:
    page = audit(query)
    page.locator(".branching > summary").click()
    expect(page.locator("[role=treeitem]").first).to_be_visible()
    return page


def row(page: Page, branch: int) -> Locator:
    return page.locator(f"[role=treeitem][data-id='{branch}']")


def act(page: Page, branch: int, action: str) -> None:
    page.locator(f"[data-more='{branch}']").click()
    page.locator(f"#menu-branch [data-action={action}]").click()
    expect(page.locator("#menu-branch")).to_be_hidden()


@pytest.mark.slow
def test_the_tree_is_drawn_walked_folded_and_renamed_by_keyboard_while_the_page_does_not_step(
    audit, services: Services
):
    page = unfolded(audit)
    rows = page.locator("[role=treeitem]")
    assert [rows.nth(at).get_attribute("aria-level") for at in range(4)] == ["1", "2", "3", "3"]
    expect(row(page, HE)).to_have_accessible_name("he, forced at step 2, 38 steps, shown")
    # The shown chain runs through the lines of its ancestors up to where it leaves them.
    for shape, count in (("path.fork.on", 1), ("circle.fork", 3), ("path.lane.on", 3)):
        expect(page.locator(f".graph {shape}")).to_have_count(count)
    row(page, HE).focus()
    for key, there in (("ArrowDown", THE), ("ArrowLeft", AND), ("ArrowLeft", AND)):
        page.keyboard.press(key)
        expect(row(page, there)).to_be_focused()
    expect(row(page, AND)).to_have_attribute("aria-expanded", "false")
    expect(rows).to_have_count(2)
    for key, there in (("ArrowRight", AND), ("ArrowRight", HE), ("End", THE)):
        page.keyboard.press(key)
        expect(row(page, there)).to_be_focused()
    expect(page.locator("[role=treeitem][tabindex='0']")).to_have_count(1)
    expect(page.locator("#inspector .where")).to_contain_text("step 2 of 38")
    page.keyboard.press("F2")
    field = row(page, THE).get_by_role("textbox")
    field.evaluate("(node) => node.removeAttribute('maxlength')")
    field.fill("x" * 201)
    page.keyboard.press("Enter")
    expect(page.locator(".toast-body")).to_contain_text("The name of a branch has 1 to 200 characters")
    expect(field).to_have_value("x" * 201)
    field.press("Escape")
    expect(row(page, THE).locator(".called")).to_have_text("the")
    row(page, HE).focus()
    page.keyboard.press("F2")
    row(page, HE).get_by_role("textbox").fill("as a man")
    page.keyboard.press("Enter")
    expect(row(page, HE).locator(".called")).to_have_text("as a man")
    expect(row(page, HE)).to_be_focused()
    expect(page.locator(".crumbs .node.on")).to_contain_text("as a man")
    assert {branch.id: branch.name for branch in services[AuditService].view(1, HE).branches}[HE] == "as a man"
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(row(page, THE)).to_have_attribute("aria-current", "true")
    expect(page).to_have_url(re.compile("branch=4(&|$)"))
    expect(page.locator(".strip .tok[data-i]")).to_have_count(2)
    expect(page.locator("[data-do=overhead]")).to_be_enabled()
    page.locator("#typed").fill(" we")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(5)
    expect(page.locator("[role=treeitem][aria-current]")).to_have_accessible_name(re.compile("^we, forced"))


@pytest.mark.slow
def test_a_branch_is_linked_compared_and_pruned_with_what_departs_from_it_unless_it_was_judged(
    audit, services: Services
):
    page = unfolded(audit)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    act(page, THE, "link")
    expect(page.locator(".branching .told")).to_have_text("The link is copied.")
    assert page.evaluate("navigator.clipboard.readText()").endswith("/?session=1&branch=4&step=2")
    page.locator(".tok[data-i='12']").click()
    expect(page.locator("#inspector .where")).to_contain_text("step 13")
    act(page, HE, "link")
    page.wait_for_function("async () => (await navigator.clipboard.readText()).endsWith('session=1&branch=3&step=13')")
    link = page.get_by_role("link", name="Compare with siblings")
    expect(link).to_have_attribute("href", f"./compare?session=1&branches={AND},{HE},{THE}")
    page.locator(f"[data-more='{ROOT}']").click()
    expect(page.locator("#menu-branch [data-action=prune]")).to_be_hidden()
    page.keyboard.press("Escape")
    services[VerdictService].add(VerdictRequest(1, "R. Osei", "fair", HE, 1, 1))
    row(page, HE).focus()
    page.keyboard.press("Delete")
    expect(page.locator(".branching .told")).to_contain_text("The verdict log has 1 entry on this branch")
    question = page.locator("dialog#confirm")
    expect(question).to_be_hidden()
    act(page, THE, "prune")
    question.get_by_role("button", name="Keep it").click()
    assert len(services[AuditService].view(1).branches) == 4
    act(page, THE, "prune")
    question.get_by_role("button", name="Prune").click()
    expect(page.locator("[role=treeitem]")).to_have_count(3)
    expect(page.locator("#inspector .where")).to_contain_text("step 13 of 38")
    assert [branch.id for branch in services[AuditService].view(1).branches] == [ROOT, AND, HE]
