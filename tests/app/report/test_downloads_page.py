"""The menu of exports on every page that shows a session, clicked through and used with keys."""

from __future__ import annotations

import io
from pathlib import Path

import pypdf
import pytest
from playwright.sync_api import Page, expect

from app.report.panel import MENU
from app.report.service import EXPORTS
from app.shared.requirements import listed
from app.shared.wiring import Services
from tests.story.seed import say

QUESTION = "Does the pronoun change the text?"


def test_every_report_that_there_is_is_offered_and_explained() -> None:
    assert set(MENU) == set(EXPORTS)
    assert all(own.about.endswith(".") for own in EXPORTS.values())


def opened(page: Page) -> Page:
    page.get_by_role("button", name="Get report", exact=True).click()
    expect(page.get_by_role("menuitem")).to_have_count(len(EXPORTS))
    return page


def signed(page: Page, item: str, language: str = "en") -> Page:
    """Choose a formal report and fill in its dialog, up to the last button."""
    page.get_by_role("menuitem", name=item).click()
    page.get_by_label("Auditor").fill("Dr. R. Osei")
    page.get_by_label("What the audit was to answer").fill(QUESTION)
    page.get_by_label("Language").select_option(language)
    page.get_by_label("ISO/IEC 42001:2023, Annex A").check()
    return page


def content(page: Page, button: str, name: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.get_by_role(button, name=name, exact=True).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def exported(page: Page) -> None:
    """All exports are offered, and two of them taken."""
    for title, kind in (("HTML report Everything", "html"), ("Evidence bundle The report", "bundle")):
        opened(page)
        with page.expect_download() as waiting:
            page.get_by_role("menuitem", name=title).click()
        assert waiting.value.suggested_filename == f"coft-audit-session-1{EXPORTS[kind].suffix}"


@pytest.mark.parametrize("kind", ["html", pytest.param("pdf", marks=pytest.mark.slow)])
def test_audit_offers_all_exports_and_a_formal_report_is_signed_in_a_dialog_and_holds_what_was_typed(
    kind: str, audit
) -> None:
    page = audit("?session=1")
    exported(page)
    signed(opened(page), f"Formal report ({kind.upper()})", "de")
    name, data = content(page, "button", "Write the report")
    assert name == f"coft-audit-session-1-formal.{kind}"
    pages = (
        [own.extract_text() for own in pypdf.PdfReader(io.BytesIO(data)).pages] if kind == "pdf" else [data.decode()]
    )
    assert "Förmlicher Bericht" in pages[0]
    assert "Dr. R. Osei" in pages[0]
    assert QUESTION in pages[0]
    titles = {name: annex["title"]["de"] for name, annex in listed()["annexes"].items()}
    assert [name for name, title in titles.items() if title in " ".join(" ".join(pages).split())] == ["iso-42001"]


@pytest.mark.slow
def test_nobody_in_the_middle_of_a_blind_review_is_offered_a_report_with_the_verdicts_of_others(
    visit, services: Services
) -> None:
    say(services, "A. Lee", "unfair", 1)
    page = visit("/review")
    page.evaluate("localStorage.setItem('coft-reviewer', 'C. Ruiz')")
    page.goto(f"{page.url.split('?')[0]}?session=1")
    expect(page.locator(".targets-box")).to_contain_text("Others have judged this session.")
    expect(page.locator(".head [data-do=report]")).to_have_count(0)
    page.get_by_role("button", name="Start a blind review").click()
    expect(page.locator(".told")).to_have_text("Your blind review has begun.")
    expect(page.locator(".head [data-do=report]")).to_have_count(0)
    page.get_by_role("button", name="Finish the review").click()
    expect(page.locator(".head [data-do=report]")).to_have_count(1)
