"""Accounts in a real browser: the page to sign in on runs without scripts, and pages say who is signed in."""

from __future__ import annotations

import re
from secrets import token_hex

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from app.accounts.projects import ProjectService
from app.accounts.service import AccountService
from app.shared.visitors import Visitor, answering
from db.sessions import SessionsRepository
from db.verdicts import AnnotationFields, AnnotationsRepository
from tests.app.accounts.conftest import PASSWORD
from tests.app.shared.test_accessibility import CUT_OFF, broken, faults, faulty
from tests.browser import PATIENCE_MS
from tests.db.conftest import new_session

pytestmark = pytest.mark.ui


@pytest.mark.slow
def test_who_signs_in_without_scripts_comes_to_the_page_asked_for_signs_with_her_account_and_leaves(
    browser: Browser, served
):
    context = browser.new_context(viewport={"width": 390, "height": 844}, bypass_csp=True)
    page = context.new_page()
    assert page.goto(f"{served.url}/review?session=1").status == 401
    for scheme, colour in (("light", False), ("dark", True)):
        page.emulate_media(color_scheme=scheme)
        assert Axe().run(page).response["violations"] == []
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(18, 19, 21)") is colour
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
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
    panel = page.locator("#account-menu")
    expect(panel).to_contain_text("Signed in as reviewer")
    assert panel.bounding_box()["x"] > 900
    panel.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    assert page.goto(f"{served.url}/review").status == 401
    assert faults == []
    context.close()


def entered(page: Page, served, role: str, path: str) -> Page:
    """The page as an account of a role sees it."""
    page.goto(f"{served.url}/{path}")
    page.get_by_label("Name").fill(f"the {role}")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#account-name")).to_have_text(f"the {role}", timeout=PATIENCE_MS)
    return page


def test_an_admin_manages_accounts_and_projects_on_a_page_that_keeps_the_rules_of_axe(page: Page, served):
    wired, number = served.wired, token_hex(2)
    # A second try finds what the first one left.
    winter, scoring, mia = (f"{name} {number}" for name in ("Winter hiring", "Credit scoring", "Mia Chen"))
    made = wired[ProjectService].add(winter).record
    admin = wired[AccountService].named("the admin")
    with answering(Visitor(admin.name, "", admin, made)):
        session = SessionsRepository(wired.database).create(new_session())
        AnnotationsRepository(wired.database).add(AnnotationFields(session_id=session.id, verdict="fair"))
    entered(page, served, "admin", "accounts")
    expect(page.locator("#trail tbody tr").first).to_be_visible()
    page.locator("#account-new").get_by_label("Name").fill(mia)
    page.locator("#invite").click()
    password = page.locator(".once code")
    expect(password).to_be_visible()
    assert served.wired[AccountService].named(mia).one_time_until is not None
    page.locator("#project-new").get_by_label("Name").fill(scoring)
    page.locator("#add-project").click()
    expect(page.locator("#members h2")).to_have_text(scoring)
    # What is shown once stays while something else is done.
    expect(password).to_be_visible()
    page.locator("#member").get_by_label("Account").click()
    page.get_by_role("option", name=mia).click()
    page.locator("#join").click()
    expect(page.locator("#members li")).to_have_count(2)
    page.get_by_role("button", name="Disable").click()
    expect(page.locator("#account-said")).to_have_text(f"{mia} is disabled.")
    expect(page.get_by_role("button", name="Enable")).to_be_visible()
    page.locator("#trail-check").click()
    expect(page.locator("#trail-checked")).to_contain_text("The trail is whole")
    with page.expect_download() as waiting:
        page.locator("#trail-csv").click()
    assert "disable an account" in waiting.value.path().read_text("utf-8")
    assert "accounts: opened" not in waiting.value.path().read_text("utf-8")
    expect(page.locator("#accounts")).to_contain_text("The store takes")
    expect(page.locator("#accounts li", has_text="the admin")).to_contain_text(re.compile(r"has [\d.]+ [kM]B"))
    page.locator("#accounts").get_by_role("button", name="the admin").click()
    expect(page.locator("#account dl")).to_contain_text(re.compile(r"In the store.*sessions [\d.]+ [kM]B"))
    page.locator("#projects").get_by_role("button", name="Default").click()
    expect(page.locator("#members")).to_contain_text("It cannot be deleted")
    page.locator("#projects").get_by_role("button", name=winter).click()
    expect(page.locator("#members")).to_contain_text("1 session with 1 entry in verdict logs, for good")
    page.locator("#delete-project").click()
    expect(page.get_by_text("Repeat the project's name")).to_be_visible()
    page.locator("#project-repeated").get_by_label("Its name, to delete it").fill(winter)
    page.locator("#delete-project").click()
    expect(page.locator("#project-said")).to_contain_text(f"{winter} is deleted: 1 session with 1 entry")
    expect(page.locator("#projects")).not_to_contain_text(winter)
    expect(page.locator("#delete-project")).not_to_be_visible()
    expect(page.locator("#trail")).to_contain_text("delete a project")
    page.emulate_media(color_scheme="dark")
    assert faulty(page) == []
    page.locator(".account-button").click()
    page.get_by_role("link", name="Sign-ins and password").click()
    expect(page.get_by_role("heading", name="Where you are signed in")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 900})
    assert broken(page) == []
    assert faults(page, CUT_OFF) == []
    page.get_by_label("Present password").fill(PASSWORD)
    page.get_by_label("New password").fill("short words")
    page.get_by_label("New password").press("Enter")
    # The browser itself asks for a longer one, and nothing is sent.
    expect(page).to_have_url(f"{served.url}/account/sign-ins")
