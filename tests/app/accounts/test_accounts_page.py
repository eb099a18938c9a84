"""Accounts in a real browser: the page to sign in on runs without scripts, and pages say who is signed in."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.app.accounts.conftest import PASSWORD
from tests.browser import PATIENCE_MS

pytestmark = pytest.mark.ui


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_to_sign_in_on_keeps_the_rules_of_axe_and_fits_a_phone(browser: Browser, served, scheme: str):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 844}, bypass_csp=True)
    page = context.new_page()
    assert page.goto(f"{served.url}/review?session=1").status == 401
    assert Axe().run(page).response["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 19, 21)") is (scheme == "dark")
    context.close()


def test_who_signs_in_without_scripts_comes_to_the_page_asked_for_signs_with_her_account_and_leaves(
    browser: Browser, served
):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies([{"name": "coft-reviewer", "value": "Somebody%20Else", "url": served.url}])
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if "Content Security" in said.text else None)
    page.goto(f"{served.url}/review?nothing=1")
    page.get_by_label("Name").fill("the reviewer")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#account-name")).to_have_text("the reviewer", timeout=PATIENCE_MS)
    assert page.url == f"{served.url}/review?nothing=1"
    expect(page.locator(".named")).to_have_text("You are the reviewer.", timeout=PATIENCE_MS)
    expect(page.locator("[data-do=rename]").first).to_be_hidden()
    page.locator(".account-button").click()
    panel = page.locator("#account")
    expect(panel).to_contain_text("Signed in as reviewer")
    assert panel.bounding_box()["x"] > 900
    panel.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    assert page.goto(f"{served.url}/review").status == 401
    assert faults == []
    context.close()
