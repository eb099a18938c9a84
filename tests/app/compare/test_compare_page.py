"""The compare page clicked through: columns run beside each other, stored chains opened, rows walked, tables taken."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.compare.service import ComparisonService
from app.compare.sets import SetComparisonService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty
from tests.browser import hand_over
from tests.story.model import PROMPT
from tests.story.seed import newest, slowed


@pytest.fixture
def page(visit) -> Page:
    return ready(visit("/compare"))


def ready(page: Page) -> Page:
    expect(page.locator(".colcard")).to_have_count(2)
    return page


def rows(page: Page):
    return page.locator(".cmp-rows tbody tr")


def finished(page: Page, heads: int) -> None:
    expect(page.locator(".lanehead")).to_have_count(heads)
    expect(page.locator("[data-cmp=csv]")).to_be_enabled()
    expect(page.locator("#cmp-summary tbody tr")).to_have_count(12)


def start(page: Page, steps: int) -> None:
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    page.locator(".shared summary").click()
    page.get_by_label("Steps at most").fill(str(steps))
    page.locator("[data-cmp=go]").click()


def run(services: Services, length: int) -> tuple[int, ...]:
    """The sessions of the story under vanilla decoding and under COFT, both at their ends."""
    vanilla = AuditSettings(policy="vanilla", max_new_tokens=length)
    coft = AuditSettings(calibration_id=1, max_new_tokens=length)
    made = services[ComparisonService].run_columns(StartAudit(PROMPT, vanilla, None, "plain"), (vanilla, coft))
    list(services[ComparisonService].advance(made))
    return made


def test_a_prompt_runs_under_three_columns_and_its_differences_are_walked_with_keys(page, services, picture):
    page.get_by_role("button", name="Add column").click()
    expect(page.get_by_label("Policy").nth(2)).to_be_focused()
    page.get_by_label("Policy").nth(2).select_option("coft")
    page.get_by_label("Lambda").nth(1).fill("1")
    page.get_by_label("Calibration").nth(1).select_option("0")
    start(page, 9)
    finished(page, 3)
    views = [services[AuditService].view(number) for number in (3, 4, 5)]
    assert [[span.category for span in view.spans] for view in views] == 3 * [["gender", "gender"]]
    columns = [view.settings for view in views]
    assert [(own.policy, own.lam, own.calibration_id) for own in columns] == [
        ("vanilla", 0.6, None),
        ("coft", 0.6, 1),
        ("coft", 1.0, None),
    ]
    assert {own.max_new_tokens for own in columns} == {9}
    expect(page.locator(".lanehead").first.locator("ins")).to_have_text(["he", "then"])
    expect(page.locator(".cmp-prompt .span").first).to_contain_text("uncle")
    second = rows(page).nth(1)
    expect(second).to_have_class("on")
    expect(second.locator("th")).to_contain_text("differs")
    expect(rows(page).nth(3).locator(".cell").nth(2)).to_contain_text("no token here")
    expect(page.locator(".cmp-chosen .view")).to_have_count(3)
    second.click()
    page.keyboard.press("ArrowDown")
    expect(rows(page).nth(2)).to_be_focused()
    expect(page.locator(".cmp-chosen h2")).to_have_text("Step 3")
    page.get_by_label("Only differences").check()
    expect(rows(page).nth(2)).to_be_hidden()
    second.click()
    page.keyboard.press("ArrowDown")
    expect(rows(page).nth(3)).to_be_focused()
    expect(page.locator(".view").nth(2)).to_contain_text("No token here.")
    page.keyboard.press("Home")
    expect(second).to_have_attribute("aria-current", "true")
    page.get_by_label("Only differences").uncheck()
    for name in ("vanilla", "sensitivity", "divergence", "changed"):
        expect(page.locator(f"#plot-{name} .js-plotly-plot")).to_be_visible()
    assert faulty(page) == []
    picture(page, "compare-1440-light")


@pytest.mark.slow
def test_a_mismatch_is_asked_about_by_its_column_and_a_run_is_paused_and_discarded(page, services, monkeypatch):
    slowed(monkeypatch, services, 0.25)
    start(page, 12)
    expect(rows(page)).not_to_have_count(0)
    pause = page.locator("[data-cmp=pause]")
    expect(pause).to_be_enabled()
    pause.click()
    finished(page, 2)
    assert sum(len(services[AuditService].view(number).steps) for number in (3, 4)) < 24
    expect(page.locator("[data-cmp=go]")).to_contain_text("Continue")
    page.locator("[data-cmp=discard]").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator(".nothing")).to_be_visible()
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    assert newest(services) == 2
    assert "sessions" not in page.url

    monkeypatch.undo()
    page.get_by_label("Lambda").fill("0.2")
    expect(page.locator(".misfit").last).to_contain_text("0.60")
    page.locator("[data-cmp=go]").click()
    expect(page.locator("#comparison .notice")).to_contain_text("Column 2:")
    page.get_by_role("button", name="Proceed uncertified").click()
    finished(page, 2)
    assert services[AuditService].view(newest(services)).settings.proceed_uncertified
    expect(page.locator("#cmp-rest .notes")).to_contain_text("policy mismatch")


@pytest.mark.slow
def test_stored_audits_are_searched_chosen_or_taken_from_the_library_and_kept_in_the_address(page, visit, services):
    vanilla = AuditSettings(policy="vanilla", max_new_tokens=9)
    made = services[AuditService].start(StartAudit(PROMPT, vanilla, None, "plain stop"))
    list(services[AuditService].run(made.session_id))
    page.get_by_role("button", name="Stored audits").click()
    expect(page.get_by_role("button", name="Choose Nurse handover")).to_be_visible()
    page.get_by_label("Search").fill("plain")
    expect(page.locator(".cmp-found li")).to_have_count(1)
    page.get_by_role("button", name="Choose plain stop").click()
    expect(page.locator(".cmp-picked li")).to_contain_text("plain stop")
    page.get_by_label("Search").fill("nurse")
    page.get_by_role("button", name="Choose Nurse handover").click()
    page.get_by_label("Branch of Nurse handover").select_option("2")
    page.locator("[data-cmp=go]").click()
    finished(page, 2)
    assert f"sessions={made.session_id},1&branches={made.branch_id},2" in page.url
    page.reload()
    finished(page, 2)
    expect(page.locator(".lanehead a").last).to_have_attribute("href", "./?session=1&branch=2")

    page.goto(page.url.partition("?")[0] + "?sessions=1,77")
    expect(page.locator(".toast-body")).to_contain_text("77")
    page.locator(".toast-close").click()
    page.get_by_role("button", name="A new prompt").click()
    start(page, 3)
    finished(page, 2)

    page = visit("/sessions")
    page.get_by_role("checkbox", name="Choose Nurse handover", exact=True).check()
    compare = page.get_by_role("toolbar").get_by_role("button", name="Compare")
    expect(compare).to_be_hidden()
    page.get_by_role("checkbox", name="Choose Tourist, no calibration", exact=True).check()
    compare.click()
    finished(page, 2)
    expect(page.locator("#cmp-rest .notes")).to_contain_text("different prompts")


def people(folder: Path, rows: int) -> Path:
    """Questions about the people of two groups, some of which lead further into the story than others."""
    lines = [
        f"Question {number}: the cook finished rounds and then he left{number % 3 * ' and he'},group {number % 2}"
        for number in range(rows)
    ]
    path = folder / "people.csv"
    path.write_text("\n".join(["prompt,group", *lines]), "utf-8")
    return path


@pytest.mark.slow
def test_an_upload_runs_under_columns_with_parameters_of_their_own_and_is_sorted_opened_downloaded_and_deleted(
    page, services, tmp_path, picture
):
    page.get_by_role("button", name="A prompt set").click()
    page.locator("#set-stored").select_option("1")
    expect(page.locator("#parsed")).to_contain_text("ward.jsonl")
    hand_over(page, "#prompt-set", people(tmp_path, 6))
    expect(page.locator("#parsed")).to_contain_text("people.csv")
    page.get_by_role("button", name="Add column").click()
    page.get_by_label("Policy").nth(2).select_option("dexperts")
    card = page.locator(".colcard").nth(2)
    expect(card.get_by_label("Lambda")).to_have_count(0)
    card.get_by_label("Weight", exact=True).fill("99")
    page.locator("[data-cmp=go]").click()
    expect(page.locator("#comparison .notice")).to_contain_text("Column 3: Weight is 99")
    assert not services[SetComparisonService].list()
    card.get_by_label("Weight", exact=True).fill("3")
    page.locator(".set-begin .input").fill("Hiring, three ways")
    page.locator(".shared summary").click()
    page.get_by_label("Steps at most").fill("4")
    page.locator("[data-cmp=go]").click()
    expect(page.locator(".set-open h2")).to_have_text("Hiring, three ways")
    columns = [column.settings for column in services[SetComparisonService].view(1).columns]
    assert [own.policy for own in columns] == ["vanilla", "coft", "dexperts"]
    assert columns[2].parameters == (("weight", 3.0),)
    expect(page.locator(".set-progress li").nth(2)).to_contain_text("6 of 6")
    expect(page.locator(".setmeans")).to_contain_text("n = 6")
    picture(page, "compare-set-1440-light")
    prompts = page.locator(".set-rows tbody tr")
    page.locator(".set-rows [data-order=mean_tv_factual][data-column='1']").click()
    expect(page.locator(".set-rows th[aria-sort=descending]")).to_contain_text("From vanilla")
    values = [float(text) for text in prompts.locator("td:nth-of-type(6)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 1
    prompts.nth(1).locator("[data-set=open]").click()
    expect(page.locator(".lanehead")).to_have_count(3)
    expect(page.locator("#plot-vanilla .js-plotly-plot")).to_be_visible()
    page.reload()
    expect(page.locator(".lanehead")).to_have_count(3)
    expect(prompts).to_have_count(6)
    for name, lines in (("Rows as CSV", 18), ("Means as CSV", 33)):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        assert len(list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))) >= lines
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator(".set-open")).to_be_hidden()
    assert not services[SetComparisonService].list()
