"""A long prompt with many spans, and prompts in other languages and directions."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.shared.prompt_words import spans_from, spans_message
from coft_core.types import Span

MORE = "He said that he knew what he wanted when he came, and the uncle agreed"
REPEATED = "He said that he knew what he wanted, and the uncle agreed"
LONG = " ".join(f"word{number} he wrote to the uncle." for number in range(60))
ARABIC = "ذهبت الممرضة إلى المستشفى في الصباح"


@pytest.fixture
def page(audit) -> Page:
    return audit()


def rows(page: Page):
    return page.locator(".spanlist tbody tr")


def typed(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.wait_for_function("(text) => coft.editor.kept().prompt === text && coft.editor.kept().settled", arg=text)


def spans(page: Page, key: str) -> list[object]:
    return page.evaluate("(key) => coft.editor.kept().spans.map((span) => span[key])", key)


def test_a_word_in_several_places_is_one_row_whose_actions_reach_them_all(page: Page):
    typed(page, REPEATED)
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("3 times")
    page.get_by_role("button", name="Keep all visible: He, 3 times").click()
    assert spans(page, "kept") == [True, True, True, False]
    page.get_by_role("button", name="Mask all: He, 3 times").click()
    assert spans(page, "kept") == [False] * 4
    page.get_by_role("button", name="Remove all: He, 3 times").click()
    expect(rows(page)).to_have_count(1)
    page.locator("#editor [data-do=undo]").click()
    expect(rows(page)).to_have_count(2)
    assert len(spans(page, "kept")) == 4


def test_the_places_of_a_word_open_and_each_is_decided_alone_for_good(page: Page):
    typed(page, MORE)
    opener = page.get_by_role("button", name="Places of He")
    opener.click()
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(rows(page)).to_have_count(6)
    rows(page).nth(2).get_by_role("button", name="Keep visible: he").click()
    rows(page).nth(3).get_by_role("button", name="Remove: he").click()
    assert spans(page, "kept") == [False, True, False, False]
    expect(rows(page).first).to_contain_text("2 masked, 1 kept")
    typed(page, f"{MORE} at last")
    assert spans(page, "kept") == [False, True, False, False]


def test_a_menu_of_families_has_its_entries_only_while_it_has_the_focus(page: Page):
    typed(page, REPEATED)
    menus = page.locator(".spanlist select")
    expect(menus.locator("option")).to_have_count(2)
    menus.first.focus()
    expect(menus.first.locator("option")).to_have_count(12)
    expect(menus.first).to_have_value("gender")
    expect(menus.nth(1).locator("option")).to_have_count(1)
    menus.first.select_option("age")
    assert spans(page, "category")[:3] == ["age"] * 3
    page.locator("#prompt").focus()
    expect(menus.locator("option")).to_have_count(2)


def test_a_letter_in_a_long_text_changes_one_piece_of_the_overlay_and_keeps_all_spans(page: Page):
    page.locator("#prompt").fill(LONG)
    page.wait_for_function("() => coft.editor.kept().spans.length === 120")
    before = spans(page, "start")
    page.evaluate("document.querySelector('#prompt').setSelectionRange(3, 3)")
    page.locator("#prompt").focus()
    page.evaluate("""() => {
      window.changed = [];
      new MutationObserver((records) => window.changed.push(...records.map(({ type }) => type)))
        .observe(document.querySelector(".backdrop"), { childList: true, characterData: true, subtree: true });
    }""")
    page.keyboard.press("x")
    page.wait_for_function("window.changed.length > 0")
    assert page.evaluate("window.changed") == ["characterData"]
    assert spans(page, "start") == [start + 1 for start in before]
    assert page.locator(".backdrop").text_content().startswith("worxd0 ")


def test_marks_follow_the_place_to_which_a_long_text_is_scrolled(page: Page):
    long = " ".join(f"word{number} he wrote to the uncle." for number in range(300))
    page.locator("#prompt").fill(long)
    page.wait_for_function("() => coft.editor.kept().spans.length === 600")
    page.locator("#prompt").click(position={"x": 20, "y": 20})
    page.evaluate("document.querySelector('.editor .scroll').scrollTop = 1e6")
    in_sight = """() => {
      const box = document.querySelector(".editor .scroll").getBoundingClientRect();
      return [...document.querySelectorAll(".backdrop .span")].some((node) => {
        const { top, bottom } = node.getBoundingClientRect();
        return top > box.top && bottom < box.bottom;
      });
    }"""
    page.wait_for_function(in_sight)


def test_the_count_of_tokens_is_an_estimate_until_the_model_has_counted(page: Page):
    typed(page, REPEATED)
    line = page.locator(".limit")
    expect(line).to_contain_text(" of ")
    expect(line).not_to_contain_text("estimated")
    page.evaluate(
        "window.told = []; new MutationObserver(() => window.told.push(document.querySelector('.limit').textContent))"
        ".observe(document.querySelector('.limit'), { childList: true, characterData: true, subtree: true })"
    )
    page.locator("#prompt").press("End")
    page.keyboard.press("x")
    page.wait_for_function("window.told.some((text) => text.startsWith('about ') && text.endsWith(', estimated'))")
    expect(line).not_to_contain_text("estimated")


def test_a_prompt_beyond_the_models_context_is_told_of_beside_it(page: Page):
    page.locator("#prompt").fill("rounds " * 3000)
    expect(page.locator(".limit.over")).to_contain_text("shorten it")


def test_another_language_is_told_of_with_the_detectors_answer_and_no_longer_when_it_is_gone(page: Page):
    notice = page.locator(".foreign")
    page.locator("#prompt").fill("Die Krankenschwester ging nach der Arbeit mit ihrem Bruder nach Hause")
    expect(notice).to_contain_text("in German")
    expect(notice).to_contain_text("mark them yourself")
    expect(page.locator("#editor .cautions")).not_to_contain_text("in German")
    page.locator("#prompt").fill("The nurse went home")
    expect(notice).to_be_hidden()


def test_text_from_right_to_left_is_set_so_in_the_field_its_copy_and_its_reading(page: Page):
    page.locator("#prompt").fill(ARABIC)
    expect(page.locator(".foreign")).to_contain_text("Arabic script")
    for place in ("#prompt", ".backdrop"):
        assert page.locator(place).evaluate("(node) => getComputedStyle(node).direction") == "rtl"
    page.locator("#prompt").fill(REPEATED)
    assert page.locator("#prompt").evaluate("(node) => getComputedStyle(node).direction") == "ltr"


def test_the_strip_lies_in_the_direction_of_its_tokens_whatever_is_said_of_them(audit):
    page = audit("?session=1")
    strip = page.locator(".strip")
    assert strip.evaluate("(node) => getComputedStyle(node).direction") == "ltr"
    page.evaluate("document.querySelectorAll('.strip .tok .w').forEach((node) => { node.textContent = 'مرحبا'; })")
    assert strip.evaluate("(node) => getComputedStyle(node).direction") == "rtl"


def test_detected_spans_come_with_what_is_said_of_the_language_and_go_back_as_text():
    span = Span(0, 3, "gender")
    assert spans_message([span], "She was at home")["language"] == ""
    assert "Arabic" in spans_message([], ARABIC)["language"]
    assert spans_from('[{"start": 0, "end": 3, "category": "gender", "source": "lexicon"}]') == spans_from(
        [{"start": 0, "end": 3, "category": "gender", "source": "lexicon"}]
    )
