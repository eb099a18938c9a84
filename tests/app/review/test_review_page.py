"""The review page: blind reviews, disputes, agreement and the log."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.review.service import VerdictService
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty, unfold
from tests.browser import PATIENCE_MS
from tests.story.seed import say


@pytest.fixture
def review(visit):
    """Open a session's review as somebody."""

    def opener(name: str, query: str = "?session=1", **options: object) -> Page:
        page = visit("/review", **options)
        expect(page.locator(".choices .session-choices")).to_be_visible()
        page.evaluate("(name) => localStorage.setItem('coft-reviewer', name)", name)
        page.goto(page.url.split("?")[0] + query)
        expect(page.locator(".named")).to_have_text(f"You are {name}.")
        return page

    return opener


@pytest.fixture
def disputed(services: Services) -> Services:
    """Two reviewers who differ on a token, agree on another, and one opinion on a span."""
    say(services, "A. Lee", "fair", 1, note="zebra\nfrom it")
    say(services, "R. Osei", "unfair", 1)
    say(services, "A. Lee", "unclear", 7)
    say(services, "R. Osei", "unclear", 7)
    say(services, "A. Lee", "unfair", 3, 5)
    return services


def rows(page: Page):
    return page.locator(".targets tbody tr:visible")


def test_a_second_reviewer_judges_blind_and_sees_the_verdicts_and_the_log_when_she_has_finished(
    review, disputed: Services, tmp_path
):
    page = review("C. Ruiz")
    expect(page.locator(".log-part")).to_be_hidden()
    expect(page.locator(".agreement")).to_be_hidden()
    page.get_by_role("button", name="Start a blind review").click()
    expect(page.locator(".log tbody tr")).to_have_count(1)
    assert "zebra" not in page.content()
    page.get_by_role("link", name="Judge on the audit page").click()
    expect(page.locator(".strip .tok[data-i]").first).to_be_visible()
    expect(page.locator("#verdicts .signed")).to_contain_text("C. Ruiz")
    expect(page.locator("#verdicts .blindly")).to_be_visible(timeout=3 * PATIENCE_MS)
    expect(page.locator(".strip .vd")).to_have_count(0)
    page.go_back()
    page.get_by_role("button", name="Finish the review").click()
    expect(rows(page)).to_have_count(3)
    expect(page.locator(".reviews")).to_contain_text("C. Ruiz blind")
    assert [entry.kind for entry in disputed[VerdictService].history(1)][-2:] == ["review_started", "review_finished"]

    expect(page.locator(".log tbody tr")).to_have_count(7)
    expect(page.locator(".agree-result")).to_be_visible()
    unfold(page)
    assert faulty(page) == []
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download as CSV").click()
    waiting.value.save_as(tmp_path / "log.csv")
    found = list(csv.DictReader((tmp_path / "log.csv").open(newline="", encoding="utf-8")))
    assert [row["verdict"] for row in found][:5] == ["fair", "unfair", "unclear", "unclear", "unfair"]
    assert found[0]["note"] == "zebra\nfrom it"
    with closing(sqlite3.connect(disputed.settings.database_url.removeprefix("sqlite:///"))) as store, store:
        store.execute("DROP TRIGGER annotations_stay")
        store.execute("DELETE FROM annotations WHERE entry = 3")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("span.check")).to_contain_text("Entry 3 is missing")


@pytest.mark.slow
def test_disputes_are_decided_by_a_third_person_on_the_session_or_from_the_list(review, disputed: Services, picture):
    say(disputed, "A. Lee", "unfair", 9)
    say(disputed, "R. Osei", "fair", 9)
    page = review("R. Osei")
    expect(rows(page)).to_have_count(4)
    expect(page.locator(".targets [data-do=decide]")).to_have_count(0)
    page.evaluate("localStorage.setItem('coft-reviewer', 'C. Ruiz')")
    page.reload()
    page.get_by_role("button", name="Show the verdicts").click()
    expect(rows(page)).to_have_count(4)
    picture(page, "review-1440-light")
    page.get_by_label("Show", exact=True).select_option("disputed")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first.locator(".sides li")).to_have_count(2)
    page.get_by_role("button", name="Decide on Step 2").click()
    dialog = page.locator("dialog#decide")
    expect(dialog.locator(".sides li")).to_have_count(2)
    chain = disputed[AuditService].view(1).steps
    expect(dialog.locator(".passage mark")).to_have_text(chain[1].token)
    expect(dialog.locator(".passage")).to_contain_text(chain[0].token + chain[1].token + chain[2].token)
    dialog.get_by_label("Unfair").check()
    dialog.get_by_label("Why").fill("copied\nfrom the prompt")
    dialog.get_by_role("button", name="Decide").click()
    expect(page.locator(".told")).to_contain_text("log entry 8")
    page.get_by_label("Show", exact=True).select_option("adjudicated")
    expect(rows(page).locator(".decision .judge-note")).to_have_text("copied\nfrom the prompt")
    made = disputed[VerdictService].history(1)[-1]
    assert (made.kind, made.reviewer, made.note) == ("adjudication", "C. Ruiz", "copied\nfrom the prompt")
    page.get_by_role("link", name="Step 2").click()
    expect(page.locator(".tok[data-i='1'] .vd")).to_have_class("vd unfair", timeout=3 * PATIENCE_MS)

    page = review("C. Ruiz", query="")
    expect(page.locator(".finding")).not_to_be_empty()
    assert "zebra" not in page.content()
    page.get_by_role("button", name="Show what waits for a decision").click()
    listed = page.locator(".disputes tbody tr")
    expect(listed).to_have_count(1)
    expect(listed.locator(".sides li")).to_have_count(2)
    picture(page, "review-disputes")
    listed.get_by_role("button", name="Decide on Step 10").click()
    dialog = page.locator("dialog#decide")
    dialog.get_by_label("Fair", exact=True).check()
    dialog.get_by_role("button", name="Decide").click()
    expect(listed).to_have_count(0)
    made = disputed[VerdictService].history(1)[-1]
    assert (made.kind, made.reviewer, made.verdict) == ("adjudication", "C. Ruiz", "fair")
    assert not disputed[VerdictService].sheet(1, "C. Ruiz", reveal=False).may_be_blind
