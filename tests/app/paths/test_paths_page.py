"""The page of paths clicked through."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.paths.service import PathsService
from app.paths.types import PathsRequest, PathsView, Question
from app.shared.audits import AuditSettings, StartAudit
from app.shared.jobs import JobService
from app.shared.wiring import Services
from coft_core.text.thinking import ThinkingMarks
from tests.app.shared.test_accessibility import faulty
from tests.story.model import PROMPT

SETTINGS = AuditSettings(max_new_tokens=3, top_p=1.0)
REQUEST = PathsRequest(PROMPT, SETTINGS, paths=48, pronouns=("she",), question=Question("he", "they"))


@pytest.fixture
def sampled(services: Services) -> PathsView:
    """A run that is done before the page is opened."""
    job = services[JobService].wait(services[PathsService].submit(REQUEST))
    assert job.status == "done", job.error
    return services[PathsService].view(job.id)


@pytest.fixture
def paths(visit):
    """Open the page and wait until it listens."""

    def opener(query: str = "") -> Page:
        page = visit(f"/paths{query}")
        expect(page.locator("body[data-ready]")).to_have_count(1)
        return page

    return opener


@pytest.mark.slow
def test_thinking_is_told_from_the_answer_and_asked_nothing(paths, services: Services, monkeypatch) -> None:
    monkeypatch.setattr("app.paths.service.thinking_marks", lambda *_: ThinkingMarks(" and", " filed"))
    asked = replace(REQUEST, question=Question("he"), masked=False, pronouns=())
    (world,) = services[PathsService].view(services[JobService].wait(services[PathsService].submit(asked)).id).worlds
    thinking = [path.divided for path in world.paths]
    # What is said while thinking is no answer, and a path without an answer has no outcome.
    ended = {at for at, one in enumerate(thinking) if one and one.ended and "he" in one.thinking.split()}
    assert {world.outcomes[at] for at in ended} == {False}
    assert {world.outcomes[at] for at, one in enumerate(thinking) if one and not one.ended} == {None}
    page = paths()
    notes = page.locator("#paths-said")
    expect(notes).to_contain_text("only asked of the answers")
    expect(notes).to_contain_text(f"The thinking of {world.unended} of {len(world.paths)} paths")
    cell = page.locator(".icicle").first.locator("button.cell.thought").first
    expect(cell).to_have_accessible_name(re.compile("^Thinking, "))
    cell.click()
    expect(page.locator(".pathlist i.thought").first).to_be_visible()


@pytest.mark.slow
def test_a_sessions_prompt_is_sampled_in_its_worlds_once_its_question_can_be_asked(paths, services: Services) -> None:
    settings = replace(SETTINGS, temperature=1.3)
    session = services[AuditService].start(StartAudit("Somebody else", settings)).session_id
    page = paths(f"?session={session}")
    expect(page.locator("#prompt")).to_have_value("Somebody else")
    page.locator("#prompt").fill(PROMPT)
    page.locator("#way").get_by_label("Words or expressions").check()
    page.locator("#run").click()
    expect(page.get_by_text("No word is given for a yes")).to_be_visible()
    assert services[JobService].list("paths") == ()
    page.locator("#pronouns").get_by_label("she", exact=True).check()
    page.locator("#yes textarea, #yes input").fill("he")
    page.locator("#no textarea, #no input").fill("they")
    page.locator("#paths input[type=number]").fill("16")
    page.locator("#paths input[type=number]").press("Tab")
    page.locator("#run").click()
    lead = page.locator("#paths-said .lead").first
    expect(lead).not_to_be_empty()
    expect(page.locator("#paths-said .worlds tbody tr")).to_have_count(3)
    expect(page.locator("#paths-tree .icicle").first.locator("button.cell").first).to_be_visible()
    (run,) = services[PathsService].list()
    assert (run.request.prompt, run.request.pronouns, run.request.paths) == (PROMPT, ("she",), 16)
    assert run.request.settings.temperature == 1.3
    assert run.request.question == Question("he", "they")


def test_a_run_is_found_again_read_by_keyboard_down_to_an_audit_and_downloaded(
    paths, sampled: PathsView, services: Services, tmp_path: Path
) -> None:
    page = paths()
    expect(page.locator("#runs li[aria-current]")).to_have_count(1)
    expect(page.locator("#paths-said .lead")).to_have_count(2)
    cell = page.locator("#paths-tree .icicle").first.locator("button.cell").nth(1)
    expect(cell).to_have_accessible_name(cell.get_attribute("title") or "")
    cell.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#h-beginning")).to_contain_text("Paths that begin with")
    expect(page.locator("#paths-tree .icicle").first.locator("[aria-current]")).to_have_count(1)
    expect(cell).to_be_focused()
    page.locator("#paths-beginning [data-do=audit]").first.click()
    notice = page.locator("#paths-opened .notice")
    expect(notice).to_contain_text("are the same")
    number = int((notice.locator("a").get_attribute("href") or "").rpartition("=")[2])
    audit = services[AuditService].view(number)
    drawn = {path.token_ids for item in sampled.worlds for path in item.paths}
    assert tuple(step.token_id for step in audit.steps) in drawn

    pictured = page.locator("#paths-tree .icicle").first.locator("button.cell")
    expect(pictured.first).to_be_visible()
    expect(page.locator("#paths-numbers table tbody").first.locator("tr")).to_have_count(pictured.count() - 1)
    with page.expect_download() as downloading:
        page.locator("#paths-tables").get_by_role("button", name="Paths (CSV)").click()
    downloading.value.save_as(tmp_path / "paths.csv")
    rows = list(csv.DictReader((tmp_path / "paths.csv").open(encoding="utf-8", newline="")))
    assert len(rows) == 3 * sampled.drawn
    assert faulty(page) == []
