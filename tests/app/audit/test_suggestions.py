"""Suggested spans: drawn apart, accepted, dismissed, and not masked before."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.wiring import Services
from tests.story.seed import newest

PROMPT = "Emily met a blind friend and Emily left"


@pytest.fixture
def page(audit) -> Page:
    opened = audit()
    opened.locator("#prompt").fill(PROMPT)
    expect(rows(opened)).to_have_count(3)
    expect(opened.locator(".masked b")).to_have_count(1)
    return opened


def rows(page: Page):
    return page.locator(".spanlist tbody tr")


def test_a_suggestion_is_framed_labelled_and_not_masked(page: Page):
    offer = page.locator(".backdrop .offer").first
    expect(offer.locator(".fam")).to_have_text("first name, suggested")
    assert offer.evaluate("node => getComputedStyle(node).outlineStyle") == "dashed"
    assert offer.evaluate("node => getComputedStyle(node).backgroundImage") == "none"
    expect(rows(page).first).to_contain_text("suggested")
    expect(rows(page).first).to_contain_text("lexicon, female first names")
    expect(rows(page).nth(1)).to_contain_text("sensory disability")
    expect(page.locator(".masked")).to_contain_text("Emily met")
    expect(page.locator(".offers")).to_contain_text("2 suggestions")


def test_accepting_a_suggestion_masks_it_as_the_reviewers_own(page: Page, services: Services):
    page.get_by_role("button", name="Accept: Emily").first.click()
    expect(page.locator(".masked b")).to_have_count(2)
    expect(rows(page).first).to_contain_text("yours")
    expect(page.locator(".offers")).to_contain_text("1 suggestion:")
    page.locator("[data-do=step]").click()
    expect(page.locator(".count")).to_contain_text("1 of 64")
    sent = services[AuditService].view(newest(services)).spans
    assert [(span.start, span.source, span.suggested) for span in sent] == [
        (0, "user", False),
        (12, "lexicon", False),
        (29, "lexicon", True),
    ]


def test_all_suggestions_are_accepted_at_once_and_taken_back_at_once(page: Page):
    page.get_by_role("button", name="Accept all suggestions").click()
    expect(page.locator(".masked b")).to_have_count(3)
    expect(page.locator(".offers")).to_be_hidden()
    page.locator("#editor [data-do=undo]").click()
    expect(page.locator(".masked b")).to_have_count(1)
    expect(page.locator(".offers")).to_be_visible()


def test_a_dismissed_suggestion_stays_dismissed(page: Page):
    page.get_by_role("button", name="Dismiss: Emily").first.click()
    expect(rows(page)).to_have_count(2)
    field = page.locator("#prompt")
    field.press("Control+End")
    field.press_sequentially(" him")
    expect(page.locator(".offers")).to_contain_text("1 suggestion")


def test_a_suggestion_at_the_cursor_is_accepted_with_the_keyboard(page: Page):
    field = page.locator("#prompt")
    field.focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Alt+a")
    expect(page.locator(".masked b")).to_have_count(2)
    expect(field).to_be_focused()
    expect(rows(page).first).to_contain_text("yours")


def test_the_masked_families_are_a_setting_and_change_what_is_suggested(page: Page, services: Services):
    page.locator(".fold .label-wrap", has_text="Masking").click()
    page.locator("#masked-families").get_by_label("first name").check()
    expect(page.locator(".offers")).to_be_hidden()
    expect(page.locator(".masked b")).to_have_count(3)
    page.locator("#masked-families").get_by_label("disability").uncheck()
    expect(page.locator(".offers")).to_contain_text("1 suggestion")
    page.locator("[data-do=step]").click()
    page.locator("[data-do=proceed]").click()
    expect(page.locator(".count")).to_contain_text("1 of 64")
    settings = services[AuditService].view(newest(services)).settings
    assert "name" in settings.masked_families
    assert "disability" not in settings.masked_families


def test_a_reopened_session_shows_its_suggestions_and_families_without_looking_again(page: Page, audit):
    page.locator("[data-do=step]").click()
    expect(page.locator(".strip .tok[data-i]")).to_have_count(1)
    again = audit(page.url[page.url.index("?") :])
    expect(again.locator(".backdrop .offer")).to_have_count(2)
    expect(again.locator(".offers")).to_contain_text("2 suggestions")
    expect(again.locator(".notice")).to_be_hidden()


def test_the_legend_explains_suggestions_and_names_every_family(page: Page):
    page.locator(".families summary").click()
    legend = page.locator(".families ul")
    for words in ("appearance", "suggested: not masked until you accept it", "kept: stays visible"):
        expect(legend).to_contain_text(words)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_suggestions_have_a_picture(audit, picture, dark: bool):
    page = audit(dark=dark)
    page.locator("#prompt").fill(PROMPT)
    expect(rows(page)).to_have_count(3)
    page.locator(".families summary").click()
    page.locator(".fold .label-wrap", has_text="Masking").click()
    expect(page.locator("#masked-families")).to_be_visible()
    picture(page, f"suggestions-{'dark' if dark else 'light'}")
