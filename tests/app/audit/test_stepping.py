"""Running to a condition, finding steps, keys, addresses, and what survives a reload."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.audits import AuditSettings, RunUntil, StartAudit
from app.shared.wiring import Services
from coft_core.types import Span
from tests.story.model import PROMPT

SHIFTS = """() => {
  window.moved = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => { window.moved += entry.value; }))
    .observe({ type: "layout-shift", buffered: false });
}"""


STRONGEST = 4
"""Step of the token that the masked words move most in the chains of these tests."""

IN_REEL = """(index) => {
  const token = document.querySelector(`.tok[data-i='${index}']`).getBoundingClientRect();
  const reel = document.querySelector(".reel").getBoundingClientRect();
  return token.top >= reel.top - 1 && token.bottom <= reel.bottom + 1;
}"""


def tokens(page: Page):
    return page.locator(".strip .tok[data-i]")


def selected(page: Page, step: int) -> None:
    expect(page.locator(".tok.sel")).to_have_attribute("data-i", str(step - 1))
    expect(page.locator("#inspector .where")).to_contain_text(f"step {step} of")


def transcript_focus(page: Page) -> None:
    page.locator("h2#h-chain").click()


@pytest.fixture
def open_fresh(visit, services: Services) -> Callable[..., Page]:
    """Open a session that has no step yet."""

    def opener(steps: int = 64, calibration: int | None = 1, **options: object) -> Page:
        settings = AuditSettings(calibration_id=calibration, max_new_tokens=steps, greedy=True)
        made = services[AuditService].start(StartAudit(PROMPT, settings, (Span(35, 37, "gender"),)))
        page = visit(f"/?session={made.session_id}", **options)
        expect(page.locator(".count")).to_have_text(f"0 of {steps} steps")
        expect(page.locator("[data-do=until]")).to_be_enabled()
        return page

    return opener


def run_until(page: Page, kind: str, value: str | None = None) -> None:
    page.locator("[data-do=until]").click()
    expect(page.locator(".untilbox")).to_be_visible()
    if value is not None:
        page.locator(f"[data-until={kind}] ~ label input").fill(value)
    page.locator(f"[data-until={kind}]").click()
    expect(page.locator(".untilbox")).to_be_hidden()


@pytest.mark.parametrize(
    ("kind", "value", "steps", "sentence"),
    [
        ("fallback", None, 13, "Stopped at step 13: no token reached the threshold."),
        ("sensitive", "1", 4, "Stopped at step 4: the sensitivity of “his” is +1.12, 1 was asked for."),
        ("overruled", None, 13, "Stopped at step 13:"),
        ("steps", "7", 7, "Stopped at step 7: 7 tokens were written."),
        ("sensitive", "5", 64, "The chain ended at step 64: no token that was written reached a sensitivity of 5."),
    ],
)
def test_a_run_stops_at_its_condition_and_says_so(open_fresh, kind, value, steps, sentence):
    page = open_fresh()
    run_until(page, kind, value)
    expect(page.locator(".stopped")).to_contain_text(sentence)
    expect(tokens(page)).to_have_count(steps)
    selected(page, STRONGEST if steps == 64 else steps)
    expect(page.locator("[data-do=pause]")).to_be_disabled()


def test_a_condition_that_the_session_cannot_meet_is_refused_in_one_sentence(open_fresh):
    page = open_fresh(calibration=None)
    run_until(page, "fallback")
    expect(page.locator(".toast-body")).to_contain_text("This session has no threshold")
    expect(page.locator(".toast-body")).not_to_contain_text("Traceback")
    expect(page.locator("[data-do=go]")).to_be_enabled()
    expect(tokens(page)).to_have_count(0)


def test_the_panel_of_conditions_opens_by_key_runs_by_enter_and_closes_by_escape(open_fresh):
    page = open_fresh()
    transcript_focus(page)
    page.keyboard.press("r")
    expect(page.locator("[data-until=fallback]")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".untilbox")).to_be_hidden()
    transcript_focus(page)
    page.keyboard.press("r")
    page.locator(".untilbox [name=steps]").fill("3")
    page.keyboard.press("Enter")
    expect(tokens(page)).to_have_count(3)


def test_every_listed_key_does_what_the_sheet_says(audit):
    page = audit("?session=1")
    transcript_focus(page)
    selected(page, 2)
    for key, step in (("End", 38), ("Home", 1), ("ArrowRight", 2), ("n", 4), ("Shift+N", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        selected(page, step)
    page.keyboard.press("g")
    expect(page.locator("#jump")).to_be_focused()
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    selected(page, 12)
    expect(page.locator(".tok[data-i='11']")).to_be_focused()
    page.keyboard.press("b")
    expect(page.locator("#typed")).to_be_focused()
    page.keyboard.type("n1")
    expect(page.locator("#typed")).to_have_value("n1")
    page.keyboard.press("Escape")
    expect(page.locator(".tok[data-i='11']")).to_be_focused()
    page.keyboard.press("[")
    expect(page.locator(".audit")).to_have_class(re.compile("rail-folded"))
    page.keyboard.press(" ")
    expect(tokens(page)).to_have_count(64)


def test_the_help_sheet_lists_every_key_by_topic_and_gives_the_focus_back(audit):
    page = audit("?session=1")
    page.locator(".tok[data-i='4']").click()
    page.keyboard.press("?")
    sheet = page.locator("dialog#help")
    expect(sheet).to_be_visible()
    known = page.evaluate("coft.keys.list().map((entry) => [entry.topic, entry.description])")
    assert len(known) >= 15
    for topic, description in known:
        group = sheet.locator("section").filter(has=page.get_by_role("heading", name=topic, exact=True))
        expect(group.locator("dd").filter(has_text=description).first).to_be_visible()
    expect(sheet.locator("dd")).to_have_count(len(known))
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(page.locator(".tok[data-i='4']")).to_be_focused()


def test_the_help_sheet_of_another_page_lists_only_its_own_keys(visit):
    page = visit("/lists")
    page.locator("[data-do=help]").click()
    expect(page.locator("dialog#help")).to_be_visible()
    expect(page.locator("dialog#help dd")).to_have_text(
        ["explain the field that has the focus, or all words", "this sheet"]
    )


def test_other_scripts_add_keys_and_typing_keeps_them_away(audit):
    page = audit("?session=1")
    page.evaluate("coft.keys.add('Q', () => { window.asked = (window.asked || 0) + 1; }, 'a key of a test')")
    transcript_focus(page)
    page.keyboard.press("q")
    page.locator("#prompt").click()
    page.keyboard.press("q")
    assert page.evaluate("window.asked") == 1


def test_shift_and_arrows_leave_the_selection_to_others(audit):
    page = audit("?session=1")
    page.locator(".tok[data-i='4']").click()
    selected(page, 5)
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowRight")
    selected(page, 6)


def test_an_address_opens_its_step_and_follows_the_selection(audit, visit, services: Services):
    page = visit("/?session=1&branch=3&step=15")
    selected(page, 15)
    page.locator(".tok[data-i='3']").click()
    expect(page).to_have_url(re.compile(r"session=1&branch=3&step=4$"))
    page.reload()
    selected(page, 4)


def test_an_address_of_a_step_that_is_not_there_says_so(visit, services: Services):
    made = services[AuditService].start(StartAudit(PROMPT, AuditSettings(calibration_id=1)))
    list(services[AuditService].run(made.session_id, until=RunUntil("steps", steps=3)))
    page = visit(f"/?session={made.session_id}&step=99")
    selected(page, 3)
    expect(page.locator(".notice")).to_contain_text("The address names step 99; this chain has 3 so far")


def test_the_overview_and_the_search_lead_to_steps(audit):
    page = audit("?session=1")
    box = page.locator(".overview").bounding_box()
    page.locator(".overview").click(position={"x": box["width"] * 12.5 / 64, "y": 20})
    selected(page, 13)
    page.locator("#seek-kind").select_option("fallback")
    expect(page.locator("#seek-kind option:checked")).to_have_text("Fallback (1)")
    page.locator("[data-do=find-next]").click()
    selected(page, 13)
    page.locator("#seek-kind").select_option("sensitive")
    page.locator("[data-do=find-next]").click()
    selected(page, 15)
    page.locator("[data-do=find-back]").click()
    selected(page, 9)


def test_a_long_chain_scrolls_in_its_own_region_to_what_is_selected(open_fresh):
    page = open_fresh(steps=200)
    before = page.locator(".reel").bounding_box()
    page.locator("[data-do=go]").click()
    expect(tokens(page)).to_have_count(200)
    selected(page, STRONGEST)
    page.wait_for_function(IN_REEL, arg=STRONGEST - 1)
    assert not page.evaluate(IN_REEL, 199)
    assert page.locator(".reel").bounding_box()["height"] == before["height"]
    page.locator("#jump").fill("200")
    page.keyboard.press("Enter")
    page.wait_for_function(IN_REEL, arg=199)
    assert not page.evaluate(IN_REEL, STRONGEST - 1)


def test_nothing_on_the_page_moves_while_a_chain_is_written(open_fresh):
    page = open_fresh()
    page.locator("[data-do=step]").click()
    selected(page, 1)
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_visible()
    expect(page.locator("#steps-plot .main-svg").first).to_be_visible()
    page.evaluate(SHIFTS)
    page.evaluate("coft.session.run()")
    expect(tokens(page)).to_have_count(64)
    selected(page, STRONGEST)
    assert page.evaluate("window.moved") < 0.02


def test_the_candidates_stay_in_their_place_while_tokens_are_written_and_looked_through(open_fresh):
    page = open_fresh()
    page.locator("[data-do=step]").click()
    expect(page.locator("#inspector .cand tbody tr").first).to_be_visible()
    page.evaluate("""() => {
      const table = document.querySelector("#inspector .cand"), said = document.querySelector("#inspector .announce");
      window.places = new Set([table.getBoundingClientRect().top]);
      new MutationObserver(() => window.places.add(table.getBoundingClientRect().top))
        .observe(said, { childList: true, subtree: true, characterData: true });
    }""")
    page.evaluate("coft.session.run()")
    expect(tokens(page)).to_have_count(64)
    selected(page, STRONGEST)
    transcript_focus(page)
    page.keyboard.press("Home")
    for step in range(2, 40):
        page.keyboard.press("ArrowRight")
        selected(page, step)
    assert len(page.evaluate("[...window.places]")) == 1


def test_frames_that_the_browser_never_saw_are_asked_for(open_fresh):
    page = open_fresh()
    page.evaluate("""() => {
      const real = JSON.parse;
      let frames = 0;
      JSON.parse = (text) => {
        const message = real(text);
        if (message && message.kind === "steps" && !message.filled && !message.done && (frames += 1) === 1) {
          return { ...message, steps: [], from: -1 };
        }
        return message;
      };
    }""")
    page.locator("[data-do=go]").click()
    expect(tokens(page)).to_have_count(64)
    assert page.evaluate("coft.session.state().cards.every((card, at) => card.i === at)")
    expect(page.locator("[data-do=pause]")).to_be_disabled()


def test_what_is_not_started_survives_a_reload_and_can_be_discarded(audit):
    page = audit()
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    page.locator(".spanlist [data-do=keep]").first.click()
    expect(page.locator(".spanlist tbody tr").first).to_contain_text("kept")
    page.get_by_label("number input for Lambda").fill("0.3")
    page.keyboard.press("Tab")
    expect(page.locator(".rail .block.note").nth(1)).to_contain_text("belongs to another policy")
    page.reload()
    expect(page.locator(".notice")).to_contain_text("is here again")
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    expect(page.locator(".spanlist tbody tr").first).to_contain_text("kept")
    expect(page.get_by_label("number input for Lambda")).to_have_value("0.3")
    page.locator(".notice button").click()
    expect(page.locator("#prompt")).to_have_value("")
    expect(page.locator(".notice")).to_be_hidden()
    expect(page.get_by_label("number input for Lambda")).to_have_value("0.6")
    page.reload()
    expect(page.locator("[data-do=go]")).to_be_enabled()
    expect(page.locator("#prompt")).to_have_value("")


def test_what_was_started_is_no_longer_kept_as_unsaved(audit):
    page = audit()
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    page.locator("[data-do=step]").click()
    expect(page.locator(".count")).to_contain_text("1 of 64 steps")
    page.goto(page.url.split("?")[0])
    expect(page.locator("[data-do=go]")).to_be_enabled()
    expect(page.locator("#prompt")).to_have_value("")


def test_changes_to_a_session_survive_a_reload_and_give_way_to_it(audit):
    page = audit("?session=1")
    page.locator("#prompt").fill("The German uncle said that she")
    expect(page.locator(".notice")).to_contain_text("Start begins a new audit")
    expect(page.locator(".spanlist tbody tr")).to_have_count(3)
    page.reload()
    expect(page.locator(".notice")).to_contain_text("is here again")
    expect(page.locator("#prompt")).to_have_value("The German uncle said that she")
    expect(page.locator("[data-do=go] .word")).to_have_text("Start")
    page.locator("[data-do=revert]").click()
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    expect(page.locator("[data-do=go] .word")).to_have_text("Run")


def test_span_edits_are_undone_and_redone_and_follow_text_that_was_typed_since(audit):
    page = audit()
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    rows = page.locator(".spanlist tbody tr")
    page.locator(".spanlist [data-do=remove]").first.click()
    expect(rows).to_have_count(1)
    page.locator("#editor [data-do=undo]").click()
    expect(rows).to_have_count(2)
    page.locator("#editor [data-do=redo]").click()
    expect(rows).to_have_count(1)
    page.locator("#prompt").focus()
    page.keyboard.press("Control+z")
    expect(rows).to_have_count(2)
    page.keyboard.press("Control+y")
    expect(rows).to_have_count(1)
    page.keyboard.press("Home")
    page.keyboard.type("Now ")
    expect(rows.first).to_contain_text("39–41")
    page.locator("#editor [data-do=undo]").click()
    expect(rows).to_have_count(2)
    expect(rows.first.locator(".word")).to_have_text("uncle")
    expect(rows.first).to_contain_text("8–13")


def test_a_lost_connection_is_said_in_one_sentence_and_retried(audit):
    page = audit("?session=1")
    expect(page.locator("[data-do=go]")).to_be_enabled()
    page.context.set_offline(True)
    page.locator(".tok[data-i='37']").click()
    page.keyboard.press("ArrowRight")
    notice = page.locator(".lost")
    expect(notice).to_contain_text("The program cannot be reached")
    expect(page.locator("body")).not_to_contain_text("Traceback")
    for _ in range(2):
        # What is asked after it was said ends too.
        expect(page.locator("[data-do=go]")).to_be_enabled()
        page.locator("[data-do=step]").click()
    notice.get_by_role("button").click()
    expect(notice).to_contain_text("Still not there")
    page.context.set_offline(False)
    notice.get_by_role("button").click()
    selected(page, 38)
    expect(notice).to_have_count(0)
