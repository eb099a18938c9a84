"""The prompt's spans: found, added, removed, re-labelled and kept."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.wiring import Services
from tests.story.model import PROMPT
from tests.story.seed import newest


@pytest.fixture
def page(audit) -> Page:
    opened = audit()
    opened.locator("#prompt").fill(PROMPT)
    expect(rows(opened)).to_have_count(2)
    expect(opened.locator(".masked b")).to_have_count(2)
    return opened


def rows(page: Page):
    return page.locator(".spanlist tbody tr")


def select(page: Page, word: str) -> None:
    start = PROMPT.index(word)
    page.locator("#prompt").focus()
    page.evaluate("([a, b]) => document.querySelector('#prompt').setSelectionRange(a, b)", [start, start + len(word)])
    expect(page.locator(".picked-text")).to_have_text(word)


def test_detected_spans_show_their_family_mark_and_label(page: Page):
    expect(page.locator(".backdrop .f-gender").first).to_contain_text("uncle")
    expect(page.locator(".backdrop .f-gender .fam").first).to_have_text("gender")
    expect(rows(page).nth(1)).to_contain_text("lexicon, pronouns")
    expect(rows(page).nth(1)).to_contain_text("35–37")


def test_a_span_is_added_by_dragging_over_text(page: Page):
    box = page.locator("#prompt").bounding_box()
    ruler = """(word) => {
        const nodes = [...document.querySelector('.backdrop').childNodes];
        const text = nodes.find((n) => n.nodeType === 3 && n.data.includes(word));
        const range = document.createRange();
        range.setStart(text, text.data.indexOf(word));
        range.setEnd(text, text.data.indexOf(word) + word.length);
        const r = range.getBoundingClientRect();
        return [r.left, r.right, (r.top + r.bottom) / 2];
    }"""
    left, right, middle = page.evaluate(ruler, "rounds")
    assert box is not None
    page.mouse.move(left + 1, middle)
    page.mouse.down()
    page.mouse.move(right, middle, steps=4)
    page.mouse.up()
    expect(page.locator(".picked-text")).to_have_text("rounds")
    page.locator("#mark-family").select_option("age")
    page.locator("[data-do=mark]").click()
    expect(rows(page)).to_have_count(3)
    expect(rows(page).nth(1)).to_contain_text("yours")
    expect(page.locator(".backdrop .f-age")).to_contain_text("rounds")
    expect(page.locator(".masked b")).to_have_count(3)


def test_a_span_is_added_with_the_keyboard_alone(page: Page):
    field = page.locator("#prompt")
    field.focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator(".picked-text")).to_have_text("The")
    page.keyboard.press("Alt+m")
    expect(rows(page)).to_have_count(3)
    expect(rows(page).first).to_contain_text("The")
    expect(field).to_be_focused()


def test_a_span_is_removed_and_stays_removed_when_the_text_grows(page: Page):
    page.get_by_role("button", name="Remove: uncle").click()
    expect(rows(page)).to_have_count(1)
    field = page.locator("#prompt")
    field.press("Control+End")
    field.press_sequentially(" and she")
    expect(rows(page)).to_have_count(2)
    expect(page.locator(".spanlist")).not_to_contain_text("uncle")
    page.locator(".bar [data-do=detect]").click()
    expect(rows(page)).to_have_count(3)


def test_a_span_is_relabelled(page: Page):
    page.get_by_label("Family of uncle").focus()
    page.get_by_label("Family of uncle").select_option("socioeconomic")
    expect(page.locator(".backdrop .f-socioeconomic .fam")).to_have_text("socioeconomic status")
    expect(rows(page).first).to_contain_text("yours")


def test_a_kept_span_stays_readable_in_the_masked_branch(page: Page, services: Services):
    page.get_by_role("button", name="Keep visible: uncle").click()
    expect(page.locator(".masked b")).to_have_count(1)
    expect(page.locator(".masked")).to_contain_text("uncle")
    expect(page.locator(".backdrop .white .fam")).to_have_text("gender, kept")
    page.locator("[data-do=step]").click()
    expect(page.locator(".count")).to_contain_text("1 of 64")
    sent = services[AuditService].view(newest(services)).spans
    assert [(span.start, span.end, span.kept) for span in sent] == [(4, 9, True), (35, 37, False)]
    page.get_by_role("button", name="Mask: uncle").click()
    expect(page.locator(".masked b")).to_have_count(2)


def test_undo_takes_back_one_decision_at_a_time(page: Page):
    page.get_by_role("button", name="Remove: uncle").click()
    page.get_by_role("button", name="Keep visible: he").click()
    expect(rows(page)).to_have_count(1)
    page.locator("#editor [data-do=undo]").click()
    expect(page.locator(".backdrop .white")).to_have_count(0)
    page.locator("#editor [data-do=undo]").click()
    expect(rows(page)).to_have_count(2)


def test_spans_follow_the_text_when_it_is_edited_before_them(page: Page):
    select(page, "rounds")
    page.locator("#mark-family").select_option("religion")
    page.locator("[data-do=mark]").click()
    expect(rows(page)).to_have_count(3)
    field = page.locator("#prompt")
    field.press("Control+Home")
    field.press_sequentially("Today ")
    expect(page.locator(".backdrop .f-religion")).to_contain_text("rounds")
    expect(page.locator(".spanlist")).to_contain_text("25–31")


def test_offsets_count_characters_even_after_an_emoji(audit, services: Services):
    page = audit()
    page.locator("#prompt").fill("👩‍⚕️ said that he left")
    expect(rows(page)).to_have_count(1)
    page.locator("[data-do=step]").click()
    expect(page.locator(".count")).to_contain_text("1 of 64")
    request = services[AuditService].view(newest(services))
    span = request.spans[0]
    assert request.prompt[span.start : span.end] == "he"
    expect(page.locator(".backdrop .f-gender")).to_contain_text("he")


def test_a_prompt_without_spans_says_that_both_branches_are_equal(audit):
    page = audit()
    page.locator("#prompt").fill("It rained all day")
    expect(page.locator("#editor .cautions")).to_contain_text("the factual and the masked branch are equal")


def test_an_example_fills_the_prompt(audit):
    page = audit()
    options = page.locator("#examples option")
    if options.count() < 2:
        pytest.skip("no examples are installed")
    page.locator("#examples").select_option(index=1)
    expect(page.locator("#prompt")).not_to_have_value("")
    expect(page.locator(".reading .counts")).to_contain_text("same length")


def test_a_prompt_becomes_a_conversation_and_a_prompt_again_and_keeps_its_spans(audit):
    page = audit()
    page.locator("#prompt").fill("She ran")
    expect(page.locator(".spanlist tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Add a system prompt").click()
    page.keyboard.type("For women")
    expect(page.locator("#prompt")).to_have_value("⟦system⟧\nFor women\n⟦user⟧\nShe ran")
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    expect(page.get_by_role("button", name="Add a system prompt")).to_be_hidden()
    page.get_by_role("button", name="Add an assistant turn").click()
    page.keyboard.type("Yes")
    expect(page.get_by_text("The model goes on with the last turn")).to_be_visible()
    expect(page.locator(".backdrop .turn")).to_have_text(["⟦system⟧", "⟦user⟧", "⟦assistant⟧"])
    page.get_by_role("button", name="Remove the turn at the cursor").click()
    expect(page.locator("#prompt")).to_have_value("⟦system⟧\nFor women\n⟦user⟧\nShe ran")
    page.locator("#prompt").press("Control+Home")
    page.get_by_role("button", name="Remove the turn at the cursor").click()
    expect(page.locator("#prompt")).to_have_value("⟦user⟧\nShe ran")
    page.get_by_role("button", name="Remove the turn at the cursor").click()
    expect(page.locator("#prompt")).to_have_value("She ran")
    expect(page.locator(".spanlist tbody tr")).to_have_count(1)
