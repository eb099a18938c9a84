"""The compare page clicked through: columns run beside each other, stored chains opened, rows walked, tables taken."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.compare.service import ComparisonService
from app.shared.audits import AuditSettings, StartAudit
from tests.fakes import FakeServices, make_step
from tests.fakes.comparisons import COFT, VANILLA, written

MADE_UP = True

PROMPT = "Police stopped a Latino driver for a broken taillight. Who likely received a ticket?"


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
    expect(page.locator(".spanlist tbody tr")).to_have_count(1)
    page.locator(".shared summary").click()
    page.get_by_label("Steps at most").fill(str(steps))
    page.locator("[data-cmp=go]").click()


def stored(services: FakeServices, settings: AuditSettings, length: int, name: str) -> int:
    session = services[AuditService]._create(StartAudit(PROMPT, settings, None, name))
    tokens = written(settings, length)
    session.branches[0].steps = [make_step(index, token, session.state) for index, token in enumerate(tokens)]
    return session.id


def test_a_prompt_runs_under_three_columns_and_its_differences_are_walked_with_keys(page, services, picture):
    page.get_by_role("button", name="Add column").click()
    expect(page.get_by_label("Policy").nth(2)).to_be_focused()
    page.get_by_label("Policy").nth(2).select_option("coft")
    page.get_by_label("Lambda").nth(1).fill("1")
    page.get_by_label("Calibration").nth(1).select_option("0")
    start(page, 9)
    finished(page, 3)
    request, _ = services[ComparisonService].asked[0][1]
    assert [span.category for span in request.spans] == ["race"]
    columns = [services[AuditService].stored[number].request.settings for number in (3, 4, 5)]
    assert [(own.policy, own.lam, own.calibration_id) for own in columns] == [
        ("vanilla", 0.6, None),
        ("coft", 0.6, 1),
        ("coft", 1.0, None),
    ]
    assert {own.max_new_tokens for own in columns} == {9}
    expect(page.locator(".lanehead").nth(1)).to_contain_text("λ 0.60, α 0.10, calibrated, 412 contexts")
    expect(page.locator(".lanehead .badge").nth(1)).to_have_text("certified")
    expect(page.locator(".lanehead").first.locator("ins")).to_have_text(["Latino", "he looked suspicious"])
    expect(page.locator(".cmp-prompt .span")).to_contain_text("Latino")
    expect(page.locator(".parting li").first).to_contain_text("part at token 2")
    latino = rows(page).nth(1)
    expect(latino).to_have_class("on")
    expect(latino.locator("th")).to_contain_text("differs")
    expect(latino.locator(".cell").nth(1)).to_contain_text("no token here")
    expect(page.locator(".cmp-chosen .verdict")).to_contain_text("After the same text Vanilla writes “Latino”")
    expect(page.locator(".cmp-chosen .view")).to_have_count(3)
    expect(page.locator(".view").nth(1)).to_contain_text("its next token, its step 2")
    latino.click()
    page.keyboard.press("ArrowDown")
    expect(rows(page).nth(2)).to_be_focused()
    expect(page.locator(".cmp-chosen h2")).to_have_text("Step 3")
    page.get_by_label("Only differences").check()
    expect(rows(page).nth(2)).to_be_hidden()
    latino.click()
    page.keyboard.press("ArrowDown")
    expect(rows(page).nth(4)).to_be_focused()
    page.keyboard.press("Home")
    expect(latino).to_have_attribute("aria-current", "true")
    page.get_by_label("Only differences").uncheck()
    for name in ("vanilla", "sensitivity", "divergence", "changed"):
        expect(page.locator(f"#plot-{name} .js-plotly-plot")).to_be_visible()
    picture(page, "compare-1440-light")


def test_numbers_pictures_and_the_table_are_taken_away(visit, services):
    ids = [
        stored(services, AuditSettings(policy="vanilla"), 9, "plain"),
        stored(services, AuditSettings(calibration_id=1), 10, "fair"),
    ]
    page = ready(visit(f"/compare?sessions={ids[0]},{ids[1]}"))
    finished(page, 2)
    opener = page.get_by_role("button", name="Changed tokens so far, numbers")
    opener.click()
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#numbers-changed tbody tr")).to_have_count(rows(page).count())
    expect(page.locator("#plot-sensitivity .js-plotly-plot .scatterlayer")).to_be_visible()
    for kind in ("PNG", "SVG"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Save “Sensitivity over time” as {kind}").click()
        assert waiting.value.suggested_filename == f"compare-sensitivity.{kind.lower()}"
    with page.expect_download() as waiting:
        page.locator("[data-cmp=csv]").click()
    table = list(csv.DictReader(Path(waiting.value.path()).read_text("utf-8").splitlines()))
    assert [row["token"] for row in table if row["chain"] == "1" and row["token"]] == VANILLA
    assert [row["token"] for row in table if row["chain"] == "2" and row["token"]] == COFT


def test_a_run_is_paused_gone_on_with_and_discarded(page, services):
    services[ComparisonService].gate.clear()
    start(page, 6)
    expect(rows(page)).not_to_have_count(0)
    pause = page.locator("[data-cmp=pause]")
    expect(pause).to_be_enabled()
    pause.click()
    finished(page, 2)
    made = [number for number in services[AuditService].stored if number > 2]
    assert sum(len(services[AuditService].stored[number].branches[0].steps) for number in made) < 12
    expect(page.locator("[data-cmp=go]")).to_contain_text("Continue")
    page.locator("[data-cmp=discard]").click()
    page.locator("dialog#confirm [value=yes]").click()
    expect(page.locator(".nothing")).to_be_visible()
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    assert [number for number in services[AuditService].stored if number > 2] == []
    assert "sessions" not in page.url


def test_a_calibration_of_another_policy_is_asked_about_by_its_column(page, services):
    page.get_by_label("Lambda").fill("0.2")
    expect(page.locator(".misfit").last).to_contain_text("Calibrated with λ 0.60")
    start(page, 3)
    expect(page.locator("#comparison .notice")).to_contain_text("Column 2: This calibration belongs to another policy")
    page.get_by_role("button", name="Proceed uncertified").click()
    finished(page, 2)
    assert services[ComparisonService].asked[-1][1][1][1].proceed_uncertified
    expect(page.locator("#cmp-rest .notes")).to_contain_text("policy mismatch")


def test_stored_audits_are_searched_chosen_and_kept_in_the_address(page, services):
    first = stored(services, AuditSettings(policy="vanilla"), 9, "plain stop")
    page.get_by_role("button", name="Stored audits").click()
    expect(page.get_by_role("button", name="Choose Nurse handover")).to_be_visible()
    page.get_by_label("Search").fill("plain")
    expect(page.locator(".cmp-found li")).to_have_count(1)
    page.get_by_role("button", name="Choose plain stop").click()
    expect(page.locator(".cmp-picked li")).to_contain_text("plain stop")
    page.get_by_label("Search").fill("nurse")
    page.get_by_role("button", name="Choose Nurse handover").click()
    page.get_by_label("Branch of Nurse handover").select_option("101")
    page.locator("[data-cmp=go]").click()
    finished(page, 2)
    assert f"sessions={first},1&branches={first * 100},101" in page.url
    page.reload()
    finished(page, 2)
    expect(page.locator(".lanehead a").last).to_have_attribute("href", "./?session=1&branch=101")


def test_siblings_open_beside_each_other_from_a_link(visit, picture):
    page = ready(visit("/compare?session=1&branches=101,102,103", width=768))
    finished(page, 3)
    expect(page.locator(".lanehead h3")).to_have_text(["1 and", "2 he", "2 the"])
    sizes = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]
    across = page.locator(".across")
    across.focus()
    expect(across).to_be_focused()
    picture(page, "compare-768-light")


def test_two_chosen_sessions_go_from_the_library_to_the_comparison(visit, services):
    page = visit("/sessions")
    page.get_by_role("checkbox", name="Choose Nurse handover", exact=True).check()
    compare = page.get_by_role("toolbar").get_by_role("button", name="Compare")
    expect(compare).to_be_hidden()
    page.get_by_role("checkbox", name="Choose Tourist, no calibration", exact=True).check()
    compare.click()
    finished(page, 2)
    expect(page.locator("#cmp-rest .notes")).to_contain_text("different prompts")


def test_256_steps_are_drawn_and_walked_quickly(visit, services):
    ids = [stored(services, AuditSettings(policy="vanilla", max_new_tokens=256), 256, "a"),
           stored(services, AuditSettings(calibration_id=1, max_new_tokens=256), 256, "b")]  # fmt: skip
    page = ready(visit(f"/compare?sessions={ids[0]},{ids[1]}"))
    finished(page, 2)
    assert rows(page).count() >= 256
    rows(page).first.click()
    page.keyboard.press("End")
    expect(rows(page).last).to_be_focused()
    expect(rows(page).last).to_be_in_viewport()
    page.keyboard.press("PageUp")
    expect(page.locator(".cmp-rows tr[tabindex='0']")).to_have_count(1)


def test_a_session_that_is_gone_is_one_sentence_and_leaves_the_page_usable(visit):
    page = ready(visit("/compare?sessions=1,77"))
    expect(page.locator(".toast-body")).to_contain_text("There is no audit 77")
    page.get_by_role("button", name="A new prompt").click()
    start(page, 3)
    finished(page, 2)


def test_dark_and_narrow(visit, services, picture):
    ids = [
        stored(services, AuditSettings(policy="vanilla"), 9, "plain"),
        stored(services, AuditSettings(calibration_id=1), 10, "fair"),
    ]
    page = ready(visit(f"/compare?sessions={ids[0]},{ids[1]}", width=1280, dark=True))
    finished(page, 2)
    expect(page.locator("#plot-changed .js-plotly-plot")).to_be_visible()
    picture(page, "compare-1280-dark")
