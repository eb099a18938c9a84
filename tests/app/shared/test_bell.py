"""Notifications: reviewers are told of their own long jobs, and nobody stops or takes over those of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from app.batch.service import BatchService
from app.compare.chains import SetRequest
from app.compare.sets import SetComparisonService
from app.jobs.service import JobContext, JobService
from app.shared.audits import AuditSettings
from app.shared.bell import Bell
from app.shared.errors import ServiceError
from app.shared.visitors import KEY_COOKIE, NAME_COOKIE, Visitor, answering, visitor_of
from app.shared.wiring import Services
from db.jobs import JobsRepository
from tests.browser import open_page
from tests.story.seed import rows_held

Opener = Callable[..., Page]
ANA, BEN = Visitor("Ana"), Visitor("Ben", "b" * 32)
LONG = 60.0
PROMPTS = "prompt,group\nDoes he get the job?,men\nDoes she get the job?,women\n"


class Work:
    """A job that goes on until it is let go, fails then if it is told to, and stops when it is cancelled."""

    def __init__(self) -> None:
        self.go, self.begun, self.error = Event(), Event(), ""

    def __call__(self, context: JobContext) -> None:
        context.progress(0.4, "forty")
        self.begun.set()
        while not self.go.wait(0.02):
            context.check_cancelled()
        if self.error:
            raise ServiceError(self.error)


@pytest.fixture
def work() -> Iterator[Work]:
    """Let go at the end, whatever happened."""
    made = Work()
    yield made
    made.go.set()


def begin(services: Services, visitor: Visitor | None, work: Work, title: str = "Strengths, spring") -> int:
    """A job that a visitor has begun, at work."""
    with answering(visitor):
        number = services[JobService].submit("tuning", title, work)
    assert work.begun.wait(LONG)
    return number


def visitor_on(page: Page) -> Visitor:
    """Whom the program takes a page's reviewer for."""
    cookies = {item["name"]: item["value"] for item in page.context.cookies()}
    return visitor_of(cookies)


def test_a_visitor_with_a_name_owns_by_it_and_keeps_what_was_begun_in_this_browser_before() -> None:
    key = "0123456789abcdef" * 2
    named = visitor_of({NAME_COOKIE: quote("  Zoë   Ålund "), KEY_COOKIE: key})
    assert named.name == "Zoë Ålund"
    assert named.owner == "name:Zoë Ålund"
    assert visitor_of({KEY_COOKIE: key}).owner in named.owners
    assert visitor_of({NAME_COOKIE: "Ana"}).owner not in named.owners


def test_a_damaged_key_owns_nothing() -> None:
    for key in ("", "x" * 32, "0" * 31, "name:Ana", "0" * 33):
        assert visitor_of({KEY_COOKIE: key}).owner is None, key


def test_nobody_hears_of_dismisses_stops_or_resumes_anothers_job(services: Services, work: Work) -> None:
    number = begin(services, ANA, work)
    told = services[Bell].told
    assert [entry["name"] for entry in told(ANA.owners)] == ["Strengths, spring"]
    assert told(BEN.owners) == []
    assert told(()) == []
    with answering(BEN):
        assert not services[JobService].get(number).own
        with pytest.raises(ServiceError, match="was begun by Ana, and only they can cancel"):
            services[JobService].cancel(number)
    work.go.set()
    services[JobService].wait(number, LONG)
    store = services[JobsRepository]
    store.mark_seen([number], BEN.owners)
    store.dismiss([number], BEN.owners)
    assert [entry["seen"] for entry in told(ANA.owners)] == [False]
    store.mark_seen([number], ANA.owners)
    assert [entry["seen"] for entry in told(ANA.owners)] == [True]
    store.dismiss([number], ANA.owners)
    assert told(ANA.owners) == []


def test_a_job_of_a_program_is_told_to_nobody_and_can_be_stopped_by_everybody(services: Services, work: Work) -> None:
    number = begin(services, None, work)
    assert services[Bell].told(ANA.owners) == []
    with answering(BEN):
        services[JobService].cancel(number)
    assert services[JobService].wait(number, LONG).status == "cancelled"


def test_a_running_job_is_neither_seen_nor_dismissed(services: Services, work: Work) -> None:
    number = begin(services, ANA, work)
    store = services[JobsRepository]
    store.mark_seen([number], ANA.owners)
    store.dismiss([number], ANA.owners)
    (entry,) = services[Bell].told(ANA.owners)
    assert (entry["status"], entry["percent"], entry["seen"]) == ("running", 40, False)


def test_the_columns_of_a_comparison_are_told_as_one_and_a_resumed_batch_by_its_last_run(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_held(monkeypatch, services)
    path = tmp_path / "set.csv"
    path.write_text(PROMPTS, "utf-8")
    prompts = services[BatchService].parse(path)
    columns = (AuditSettings(policy="vanilla"), AuditSettings(policy="coft"))
    with answering(ANA):
        compared = services[SetComparisonService].submit(prompts, SetRequest("Two ways", columns))
        (entry,) = services[Bell].told(ANA.owners)
        assert (entry["kind"], entry["name"], entry["status"]) == ("Comparison", "Two ways", "running")
        assert entry["address"] == f"./compare?set={compared}"
        services[SetComparisonService].cancel(compared)
        for number in entry["ids"]:
            services[JobService].wait(number, LONG)
        assert services[Bell].told(ANA.owners)[0]["status"] == "cancelled"
        services[SetComparisonService].resume(compared)
        (entry,) = services[Bell].told(ANA.owners)
        assert (entry["status"], len(entry["ids"])) == ("running", 4)
        services[SetComparisonService].cancel(compared)


@pytest.mark.slow
def test_a_batch_of_the_page_is_told_on_other_pages_after_its_tab_was_closed_until_it_is_dismissed(
    visit: Opener, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_held(monkeypatch, services)
    first = visit("/batches")
    expect(first.locator("#batch-settings > .label-wrap")).to_have_attribute("data-summary", re.compile("COFT"))
    path = tmp_path / "jobs.csv"
    path.write_text(PROMPTS, "utf-8")
    first.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(first.locator("#preview li").first).to_be_visible()
    first.get_by_label("Name", exact=True).fill("Hiring, spring")
    first.locator("#run").click()
    expect(first.locator("#bell")).to_have_attribute("aria-label", "Jobs: 1 running")
    expect(first).to_have_title(re.compile(r"^0 % · "))
    window = first.context
    first.close()

    page = open_page(window)
    page.goto(re.sub(r"/batches.*", "/lists", first.url))
    expect(page.locator("#bell .bell-count")).to_have_text("1")
    button, panel = page.locator("#bell"), page.locator("#bell-list")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(panel.get_by_role("progressbar", name="Hiring, spring")).to_be_visible()
    expect(panel.get_by_role("button", name="Dismiss Hiring, spring")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(button).to_have_attribute("aria-expanded", "false")
    expect(button).to_be_focused()
    expect(page.locator("#bell-said")).to_have_text("")
    rows.release(2)
    expect(page.locator("#bell-said")).to_have_text("Batch “Hiring, spring” is finished.")
    expect(button).to_have_attribute("aria-label", "Jobs: 1 ended and not seen")
    expect(page).to_have_title(re.compile(r"^Done: Hiring, spring · "))

    button.click()
    expect(page.locator("#bell .bell-count")).to_be_hidden()
    expect(page).to_have_title(re.compile(r"^(?!Done)"))
    expect(panel.locator("li")).to_contain_text("finished 20")
    panel.get_by_role("link", name="Hiring, spring").click()
    expect(page.locator("#batch h2")).to_have_text("Hiring, spring")
    page.locator("#bell").click()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(panel.get_by_role("button", name="Dismiss Hiring, spring")).to_be_focused()
    page.keyboard.press("Enter")
    expect(panel.locator("li")).to_have_count(0)
    expect(panel.get_by_role("heading", name="Jobs")).to_be_focused()
    page.reload()
    page.locator("#bell").click()
    expect(panel).to_contain_text("that you begin are listed here")


@pytest.mark.slow
def test_a_failure_is_told_with_its_reason_and_only_to_who_began_it(
    visit: Opener, services: Services, work: Work
) -> None:
    page, other = visit("/lists"), visit("/lists")
    expect(page.locator("#bell")).to_be_visible()
    begin(services, visitor_on(page), work)
    expect(page.locator("#bell .bell-count")).to_have_text("1")
    work.error = "The set has no prompts left; upload it again."
    work.go.set()
    expect(page.locator("#bell-said")).to_have_text("Tuning “Strengths, spring” failed.")
    expect(page).to_have_title(re.compile("^Failed: Strengths, spring · "))
    page.locator("#bell").click()
    expect(page.locator("#bell-list li")).to_contain_text("The set has no prompts left; upload it again.")
    expect(page.locator("#bell-list a")).to_have_attribute("href", re.compile(r"\./tune\?run=\d+"))
    expect(other.locator("#bell .bell-count")).to_be_hidden()
    expect(other.locator("#bell-said")).to_have_text("")


STUB = """() => {
  window.shown = [];
  window.allowed = 'default';
  window.asked = 0;
  window.Notification = class extends EventTarget {
    static get permission() { return window.allowed; }
    static async requestPermission() { window.asked += 1; window.allowed = 'granted'; return 'granted'; }
    constructor(title, { tag }) { super(); window.shown.push(title); }
  };
  document.hasFocus = () => false;
}"""


@pytest.mark.slow
def test_notifications_are_asked_for_only_by_a_click_in_the_list_and_tell_of_an_end(
    visit: Opener, services: Services, work: Work
) -> None:
    page = visit("/lists")
    page.evaluate(STUB)
    begin(services, visitor_on(page), work)
    expect(page.locator("#bell .bell-count")).to_have_text("1")
    page.locator("#bell").click()
    assert page.evaluate("window.asked") == 0
    page.get_by_role("button", name="Notify me when a job ends").click()
    expect(page.locator("#bell-list")).to_contain_text("tells you of an end")
    work.go.set()
    expect(page.locator("#bell-said")).to_contain_text("is finished")
    assert page.evaluate("[window.asked, window.shown]") == [1, ["Tuning “Strengths, spring” is finished."]]
