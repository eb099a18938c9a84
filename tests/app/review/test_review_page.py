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
    expect(page.locator(".check")).to_contain_text("Entry 3 is missing")


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


@pytest.mark.slow
def test_agreement_shows_kappa_with_its_interval_and_the_counts(review, services: Services, picture):
    for step in range(24):
        first = "fair" if step < 14 else "unfair"
        say(services, "A. Lee", first, step)
        say(services, "R. Osei", "unfair" if step == 3 else first, step)
    page = review("A. Lee")
    result = page.locator(".agree-result")
    expect(result.locator(".kappa-value")).to_contain_text("κ 0.92")
    cells = result.locator("tbody tr").first.locator("td")
    expect(cells).to_have_text(["13", "1", "0", "14"])
    picture(page, "review-agreement")
    page.get_by_label("First reviewer").select_option("R. Osei")
    expect(cells).to_have_count(0)
    page.get_by_label("Second reviewer").select_option("A. Lee")
    expect(cells).to_have_text(["13", "0", "0", "13"])
    page.get_by_role("button", name="Another session").click()
    expect(page.get_by_label("Over")).to_have_value("all")
    expect(result.locator(".kappa-value")).to_contain_text("κ 0.92")

    for step in range(24):
        say(services, "C. Ruiz", "fair" if step < 14 else "unfair", step)
    page.goto(page.url.partition("?")[0])
    finding = page.locator(".finding")
    expect(finding).to_have_text(services[VerdictService].team_agreement().sentence)
    page.locator(".session-choices button", has_text="Nurse").click()
    expect(finding).to_contain_text("23 of 24")
    tops = "document.querySelector('.finding').getBoundingClientRect().top"
    assert page.evaluate(f"{tops} < document.querySelector('.targets-box').getBoundingClientRect().top")
    page.evaluate("localStorage.setItem('coft-reviewer', 'D. Who')")
    page.reload()
    expect(page.get_by_role("button", name="Show the verdicts")).to_be_visible()
    expect(finding).to_be_empty()


@pytest.mark.slow
def test_a_session_is_searched_assigned_and_reviewed_from_the_reviewers_queue(review, services: Services, picture):
    page = review("Lead", query="")
    page.get_by_label("Search sessions").fill("nothing like it")
    expect(page.locator(".session-choices button")).to_have_count(0)
    page.get_by_label("Search sessions").fill("tourist")
    page.locator(".session-choices button", has_text="Tourist").click()
    expect(page.locator(".log tbody tr")).to_have_count(0)
    assert page.url.endswith("/review?session=2")
    page.goto(page.url.replace("session=2", "session=77"))
    expect(page.locator(".toast-body")).to_contain_text("77")
    expect(page.locator(".session-choices")).to_be_visible()
    expect(page.locator(".loads li")).to_have_count(0)

    page.get_by_text("Assign reviews").click()
    page.get_by_label("Reviewers", exact=True).fill("Ana, Ben")
    page.get_by_label("Sessions that mention").fill("tourist")
    page.get_by_label("Due on").fill("2026-01-02")
    expect(page.locator(".matches p")).to_have_text("1 audit matches and will be assigned:")
    expect(page.locator(".matches li")).to_contain_text("Tourist")
    page.get_by_role("button", name="Assign", exact=True).click()
    expect(page.locator(".loads li")).to_have_text(["Ana: 0 of 1 done, 1 overdue", "Ben: 0 of 1 done, 1 overdue"])
    expect(page.locator(".queue")).to_be_empty()
    page.evaluate("localStorage.setItem('coft-reviewer', 'Ana')")
    page.reload()
    mine = page.locator(".queue button")
    expect(mine).to_contain_text("Tourist")
    expect(mine).to_contain_text("2026-01-02")
    tops = "(name) => document.querySelector(name).getBoundingClientRect().top"
    assert page.evaluate(tops, ".queue") < page.evaluate(tops, ".picker")
    picture(page, "review-queue")
    mine.click()
    page.get_by_role("button", name="Start a blind review").click()
    page.get_by_role("button", name="Finish the review").click()
    expect(page.locator(".told")).to_contain_text("finished")
    page.get_by_role("button", name="Another session").click()
    expect(page.locator(".loads li")).to_have_text(["Ben: 0 of 1 done, 1 overdue", "Ana: 1 of 1 done"])
    expect(page.locator(".queue")).to_be_empty()
