"""Journeys over the tree of branches on the audit page: walked and named, pruned and linked, laid beside another."""

from __future__ import annotations

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
