"""Journeys over the prompt's editor: spans, suggestions, repeated words, long and foreign text, turns and examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.wiring import Services
from tests.story.model import PROMPT
from tests.story.seed import newest

SCENARIOS = Path(__file__).parents[3] / "assets" / "prompts" / "phantom_examples.json"
PLACE_OF = """(word) => {
  const nodes = [...document.querySelector('.backdrop').childNodes];
  const text = nodes.find((n) => n.nodeType === 3 && n.data.includes(word));
  const range = document.createRange();
  range.setStart(text, text.data.indexOf(word));
  range.setEnd(text, text.data.indexOf(word) + word.length);
  const r = range.getBoundingClientRect();
  return [r.left, r.right, (r.top + r.bottom) / 2];
}"""


def rows(page: Page):
    return page.locator(".spanlist tbody tr")


def typed(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.wait_for_function("(text) => coft.editor.kept().prompt === text && coft.editor.kept().settled", arg=text)


def spans(page: Page, key: str) -> list[object]:
    return page.evaluate("(key) => coft.editor.kept().spans.map((span) => span[key])", key)


def sent(page: Page, services: Services):
    """What a started session has of the prompt."""
    page.locator("[data-do=step]").click()
    expect(page.locator(".count")).to_contain_text("1 of 64")
    return services[AuditService].view(newest(services))


def test_spans_are_dragged_typed_relabelled_kept_removed_and_undone_and_follow_the_text(audit, services: Services):
    page = audit()
    typed(page, PROMPT)
    field = page.locator("#prompt")
    undo, redo = (page.locator(f"#editor [data-do={name}]") for name in ("undo", "redo"))
    expect(page.locator(".backdrop .f-gender .fam")).to_have_text(["gender", "gender"])
    expect(page.locator(".masked b")).to_have_count(2)
    left, right, middle = page.evaluate(PLACE_OF, "rounds")
    page.mouse.move(left + 1, middle)
    page.mouse.down()
    page.mouse.move(right, middle, steps=4)
    page.mouse.up()
    expect(page.locator(".picked-text")).to_have_text("rounds")
    page.locator("#mark-family").select_option("age")
    page.locator("[data-do=mark]").click()
    expect(page.locator(".backdrop .f-age")).to_contain_text("rounds")
    field.focus()
    page.keyboard.press("Control+Home")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Alt+m")
    expect(rows(page)).to_have_count(4)
    expect(field).to_be_focused()
    expect(page.locator(".masked b")).to_have_count(4)
    page.get_by_label("Family of uncle").focus()
    page.get_by_label("Family of uncle").select_option("socioeconomic")
    expect(page.locator(".backdrop .f-socioeconomic .fam")).to_have_text("socioeconomic status")
    page.get_by_role("button", name="Remove: The").click()
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name="Keep visible: uncle").click()
    expect(page.locator(".masked b")).to_have_count(2)
    expect(page.locator(".masked")).to_contain_text("uncle")
    undo.click()
    expect(page.locator(".masked b")).to_have_count(3)
    field.focus()
    page.keyboard.press("Control+z")
    expect(rows(page)).to_have_count(4)
    page.keyboard.press("Control+y")
    expect(rows(page)).to_have_count(3)
    redo.click()
    expect(page.locator(".masked b")).to_have_count(2)
    field.press("Control+Home")
    field.press_sequentially("Now ")
    expect(page.locator(".spanlist")).to_contain_text("23–29")
    field.press("Control+End")
    field.press_sequentially(" and she")
    expect(rows(page)).to_have_count(4)
    kept = {(span.start, span.end): (span.category, span.kept) for span in sent(page, services).spans}
    assert kept == {
        (8, 13): ("socioeconomic", True), (23, 29): ("age", False), (39, 41): ("gender", False),
        (67, 70): ("gender", False),
    }  # fmt: skip


@pytest.mark.slow
def test_a_prompt_becomes_a_conversation_and_a_prompt_again_and_examples_fill_it(audit):
    page = audit()
    typed(page, "She ran")
    page.get_by_role("button", name="Add a system prompt").click()
    page.keyboard.type("For women")
    expect(page.locator("#prompt")).to_have_value("⟦system⟧\nFor women\n⟦user⟧\nShe ran")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Add an assistant turn").click()
    page.keyboard.type("Yes")
    expect(page.locator(".backdrop .turn")).to_have_text(["⟦system⟧", "⟦user⟧", "⟦assistant⟧"])
    page.get_by_role("button", name="Remove the turn at the cursor").click()
    page.locator("#prompt").press("Control+Home")
    for left in ("⟦user⟧\nShe ran", "She ran"):
        page.get_by_role("button", name="Remove the turn at the cursor").click()
        expect(page.locator("#prompt")).to_have_value(left)
    groups = json.loads(SCENARIOS.read_text("utf-8"))
    names = [
        f"{group['title']}, {each['title'][0].lower()}{each['title'][1:]}"
        for group in groups
        for each in group["examples"]
    ]
    shown = page.locator("#scenarios option").evaluate_all("options => options.map((option) => option.value)")
    assert shown == names
    assert len(set(shown)) == len(shown)
    first, planted = groups[0]["examples"][0], page.locator("#editor .planted")
    expect(planted).to_be_hidden()
    page.locator("#phantoms").fill(names[0])
    expect(page.locator("#prompt")).to_have_value(first["prompt"])
    expect(planted).to_contain_text(first["planted"])
    page.locator("#prompt").fill(f"{first['prompt']} now")
    expect(planted).to_be_hidden()
    page.locator("#examples").select_option(index=1)
    expect(page.locator("#prompt")).not_to_have_value(f"{first['prompt']} now")
    expect(page.get_by_label("Seed")).to_have_value("3")
    typed(page, "It rained all day")
    expect(page.locator("#editor .cautions")).not_to_be_empty()
