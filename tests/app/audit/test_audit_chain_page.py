"""The chain as a whole, contributions of spans and the cost of a policy, on the audit page."""

from __future__ import annotations

from playwright.sync_api import expect


def test_a_phone_shows_the_candidates_themselves_beside_their_numbers(audit):
    page = audit("?session=1", width=390)
    page.locator("#inspector [data-do=fold]").click()
    first = page.locator(".cand tbody tr td.t").first
    expect(first).to_be_visible()
    assert first.bounding_box()["width"] >= 44
    assert page.locator(".cand").evaluate("(table) => table.scrollWidth <= table.parentElement.clientWidth")
