"""Verdicts on the audit page, given, taken back and read by two people."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from app.review.service import VerdictService
from app.shared.wiring import Services

Reviewer = Callable[..., Page]


@pytest.fixture
def reviewer(audit) -> Reviewer:
    """Open a session's audit as somebody; the verdicts that stand are there when it returns."""

    def opener(name: str = "R. Osei", query: str = "?session=1", **options: object) -> Page:
        page = audit(query, **options)
        become(page, name)
        return page

    return opener


def become(page: Page, name: str) -> None:
    """Take another name, as another tab of the browser would."""
    page.evaluate(
        "(name) => { localStorage.setItem('coft-reviewer', name);"
        " dispatchEvent(new StorageEvent('storage', { key: 'coft-reviewer' })); }",
        name,
    )
    expect(page.locator("#verdicts .signed")).to_contain_text(name)
    page.get_by_role("button", name="Refresh verdicts").click()
    expect(page.locator("#verdicts .said")).to_have_text("Verdicts are up to date.")


def pick(page: Page, step: int) -> None:
    page.locator(f".tok[data-i='{step - 1}']").click()
    expect(page.locator("#h-judged")).to_have_text(f"step {step}")


def radio(page: Page, name: str):
    return page.locator(f"#verdicts [data-verdict={name}]")


def mark(page: Page, step: int):
    return page.locator(f".tok[data-i='{step - 1}'] .vd")


def log(services: Services) -> list[tuple[str, str | None, int | None, int | None]]:
    return [
        (e.reviewer, e.verdict, e.target.first_step, e.target.last_step) for e in services[VerdictService].history(1)
    ]


def said(page: Page):
    return page.locator("#verdicts .said")


def test_tokens_spans_branches_and_the_session_are_judged_by_key_and_click(audit, services: Services, picture):
    page = audit("?session=1")
    pick(page, 2)
    page.keyboard.press("u")
    page.get_by_label("Your name").fill("  R.   Osei ")
    page.keyboard.press("Enter")
    expect(radio(page, "unfair")).to_have_attribute("aria-checked", "true")
    expect(mark(page, 2)).to_contain_text("verdict unfair")
    page.reload()
    expect(mark(page, 2)).to_contain_text("verdict unfair")
    expect(page.locator("#verdicts .signed")).to_contain_text("R. Osei")

    pick(page, 4)
    places = (
        "[...document.querySelectorAll('.strip .tok')].map((n) => [n.offsetLeft, n.offsetTop, n.offsetWidth]).join()"
    )
    before = page.evaluate(places)
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#h-judged")).to_have_text("steps 4–5")
    page.locator(".tok[data-i='6']").click(modifiers=["Shift"])
    expect(page.locator("#inspector .where")).to_contain_text("step 4 of 38")
    expect(page.locator(".tok.spanned")).to_have_count(4)
    radio(page, "unfair").click()
    expect(page.locator(".tok .vd.run")).to_have_count(4)
    assert page.evaluate(places) == before, "a mark moved a token"
    picture(page, "audit-verdict-span")
    pick(page, 5)
    expect(radio(page, "unfair")).to_have_attribute("aria-checked", "false")
    page.locator("#verdicts .related").get_by_role("button", name="steps 4–7").click()
    expect(page.locator("#h-judged")).to_have_text("steps 4–7")
    expect(radio(page, "unfair")).to_have_attribute("aria-checked", "true")

    expect(page.locator("#session-verdict")).to_be_hidden()
    page.locator("#judge-on").select_option("session")
    radio(page, "unclear").click()
    expect(page.locator("#session-verdict")).to_contain_text("unclear")
    page.locator("#judge-on").select_option("branch")
    expect(radio(page, "unclear")).to_have_attribute("aria-checked", "false")
    radio(page, "fair").click()
    expect(said(page)).to_contain_text("log entry 4")
    page.locator(".crumbs button.node").first.click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(1)
    page.locator("#judge-on").select_option("branch")
    expect(radio(page, "fair")).to_have_attribute("aria-checked", "false")
    expect(page.locator("#session-verdict")).to_contain_text("unclear")
    assert [entry[:2] for entry in log(services)] == [
        ("R. Osei", verdict) for verdict in ("unfair", "unfair", "unclear", "fair")
    ]
    assert [entry[2:] for entry in log(services)][:2] == [(1, 1), (3, 6)]
    assert [entry.target.kind for entry in services[VerdictService].history(1)][2:] == ["session", "branch"]
