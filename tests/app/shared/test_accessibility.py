"""Pages under the rules of axe-core, at several widths, in light and dark, and with less motion.

``docs/accessibility.md`` says the same in words.
"""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, TimeoutError, expect

from app.shared.charts import PALETTES
from app.shared.glossary import GLOSSARY

AXE = Axe().axe_script
UNSURE = "aria-prohibited-attr"
"""Names that some screen readers leave out: axe-core asks people to look at them, and there should be none."""
RULES = {
    "rules": {"label-content-name-mismatch": {"enabled": True}},
    "resultTypes": ["violations", "incomplete"],
}
"""What is tried beyond axe-core's usual rules: who speaks to a page presses a button by the word that it shows."""
RUNS_OUT = """() => {
  const width = document.documentElement.clientWidth;
  const bar = document.querySelector('.topbar').getBoundingClientRect();
  const nav = document.querySelector('.topbar .nav'), folded = !nav.checkVisibility();
  const shown = [...document.querySelectorAll('.topbar a, .topbar button')]
    .filter((node) => !(folded ? nav.contains(node) : node.classList.contains('menu-of-pages')));
  const outside = shown.filter((node) => {
    const box = node.getBoundingClientRect();
    return !box.width || box.left < 0 || box.right > width || box.top < bar.top || box.bottom > bar.bottom
      || node.scrollWidth > node.clientWidth;
  }).map((node) => node.outerHTML.slice(0, 100));
  const links = shown.filter((node) => nav.contains(node)).map((node) => node.getBoundingClientRect());
  const over = links.some((box, at) => at && box.top === links[at - 1].top && box.left < links[at - 1].right);
  return [...outside, ...(over ? ['links on links'] : []),
    ...(document.documentElement.scrollWidth > width ? ['the page scrolls sideways'] : [])];
}"""
MOVES = """() => [...document.querySelectorAll('*')].flatMap((node) => [null, '::before', '::after'].filter((part) => {
  const style = getComputedStyle(node, part);
  return style.animationName !== 'none' || style.transitionDuration.split(', ').some((time) => parseFloat(time) > 0);
}).map((part) => `${node.tagName}.${node.getAttribute('class')}${part || ''}`)).concat(
  document.getAnimations().map((animation) => `${animation.constructor.name} that runs`))"""


REPEATED = """() => {
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id).filter((id) => id);
  return ids.filter((id, at) => ids.indexOf(id) !== at && !/^(clip|plotly)/.test(id));
}"""
TEXT_OF_CHARTS = """(colour) => [...document.querySelectorAll('.js-plotly-plot')].every(
  (plot) => plot.layout?.template?.layout.font.color === colour)"""

CUT_OFF = """() => {
  const width = document.documentElement.clientWidth;
  const reached = (node) => {
    for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
      const scrolls = /auto|scroll/.test(getComputedStyle(at).overflowX);
      if (scrolls && at.getBoundingClientRect().right <= width + 1) return true;
    }
    return false;
  };
  const read = 'table, button, a, input, select, textarea, p, h1, h2, h3, dt, dd, li, td, th, label, .js-plotly-plot';
  return [...document.querySelectorAll(read)]
    .filter((node) => node.checkVisibility({ visibilityProperty: true }))
    .filter((node) => !node.closest('.vh, .offscreen, :popover-open'))
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !reached(node))
    .map((node) => node.outerHTML.slice(0, 120))
    .concat(document.documentElement.scrollWidth > width ? ['the page scrolls sideways'] : []);
}"""
"""What lies beyond the right edge of the window and cannot be scrolled to: the page itself cuts it off."""

SCROLLED_AWAY = """async () => {
  const frame = async () => { for (let left = 4; left; left -= 1) await new Promise(requestAnimationFrame); };
  await frame();
  const faults = [];
  for (const place of document.querySelectorAll('.scrolls')) {
    const table = place.querySelector('table');
    if (!table?.checkVisibility()) continue;
    const told = () => getComputedStyle(place, '::after').visibility === 'visible'
      && getComputedStyle(place, '::after').content.includes('More columns');
    const name = place.getAttribute('aria-label') || table.caption?.textContent || place.outerHTML.slice(0, 80);
    const wide = place.scrollWidth > place.clientWidth + 1;
    if (told() !== wide) faults.push(`${name}: ${wide ? 'does not say' : 'says'} that there are more columns`);
    if (!wide) continue;
    place.scrollLeft = place.scrollWidth;
    await frame();
    if (told()) faults.push(`${name}: says at its end that there are more columns`);
    const left = place.getBoundingClientRect().left;
    for (const row of [table.tHead?.rows[0], table.tBodies[0].rows[0]]) {
      if (!row?.checkVisibility()) continue;
      const box = row.cells[0].getBoundingClientRect(), behind = getComputedStyle(row.cells[0]).backgroundColor;
      if (Math.abs(box.left - left) > 1.5) faults.push(`${name}: the first column is ${box.left - left} px off`);
      if (/rgba\\(.*, 0(\\.\\d+)?\\)/.test(behind)) faults.push(`${name}: the other columns show through the first`);
      if (box.width > place.clientWidth * 0.6) faults.push(`${name}: the first column leaves no room`);
    }
    place.scrollLeft = 0;
    await frame();
  }
  return faults;
}"""
"""Wide tables whose first column does not stay, or that do not say that there are more columns."""

ONE_OF_EACH_LOOK = """
{
  const looks = new Set(), known = new Map();
  const behind = (node) => {
    if (!node) return '';
    if (!known.has(node)) {
      const { position, opacity, backgroundColor, backgroundImage, filter } = getComputedStyle(node);
      const placed = /absolute|fixed|sticky/.test(position) ? `${position} ${node.getAttribute('class')}` : '';
      const own = [placed, opacity, backgroundColor, backgroundImage, filter].join();
      const nothing = own === ',1,rgba(0, 0, 0, 0),none,none';
      known.set(node, behind(node.parentElement) + (nothing ? '' : `|${own}`));
    }
    return known.get(node);
  };
  for (const node of document.querySelectorAll('body, body *')) {
    const written = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
    const shown = node.checkVisibility({ visibilityProperty: true });
    if (!shown || !(written || node.matches('input, select, textarea'))) continue;
    const { color, fill, fontSize, fontWeight, textShadow } = getComputedStyle(node);
    const off = Boolean(node.closest(':disabled, [aria-disabled=true]') || node.closest('label')?.control?.disabled);
    const look = [node.tagName, off, color, fill, fontSize, fontWeight, textShadow, behind(node)].join();
    node.toggleAttribute('data-look', !looks.has(look));
    looks.add(look);
  }
  axe.configure({ rules: [{ id: 'color-contrast', selector: '[data-look]' }] });
}"""
"""Of texts with the same colours on the same ground axe-core looks at one: most of its time goes to contrasts."""

AT_REST = """() => document.getAnimations().every((animation) => animation.playState !== 'running'
    || animation.effect.getComputedTiming().endTime === Infinity)"""


def faults(page: Page, script: str) -> list[str]:
    """What a script still finds when charts, and lines about columns, have had time to follow the window."""
    try:
        page.wait_for_function(f"async () => (await ({script})()).length === 0", polling=100, timeout=5_000)
    except TimeoutError:
        found: list[str] = page.evaluate(script)
        return found
    return []


def broken(page: Page, within: str | None = None, every_text: bool = False) -> list[str]:
    """Rules of axe-core that a page, or the part of it within a selector, does not keep: rule, place and markup."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    page.evaluate("axe.reset()" if within or every_text else ONE_OF_EACH_LOOK)
    # What fades in has not its own contrast yet.
    page.wait_for_function(AT_REST)
    found = page.evaluate("([within, rules]) => axe.run(within || document, rules)", [within, RULES])
    unsure = [item for item in found["incomplete"] if item["id"] == UNSURE]
    return [
        f"{item['impact']} {item['id']}: {node['target']} {node['html'][:160]}"
        for item in found["violations"] + unsure
        for node in item["nodes"]
    ]


def unfold_rail(page: Page) -> None:
    """Show the settings, which a narrow window folds into one line."""
    line = page.locator(".summaryline [data-do=rail]")
    if line.is_visible():
        line.click()


def faulty(page: Page) -> list[str]:
    """What is wrong on a page that its own journey has filled: rules of axe-core, what is cut off, and what moves."""
    size = page.viewport_size
    page.set_viewport_size({"width": 768, "height": 1000})
    unfold_rail(page)
    found = broken(page) + faults(page, RUNS_OUT) + page.evaluate(REPEATED)
    page.set_viewport_size({"width": 390, "height": 1000})
    found += faults(page, CUT_OFF) + faults(page, SCROLLED_AWAY)
    page.emulate_media(reduced_motion="reduce")
    found += page.evaluate(MOVES)
    page.emulate_media(reduced_motion="null")
    page.set_viewport_size(size)
    return found


def unfold(page: Page, folds: int = 0) -> None:
    """Open everything that can be unfolded; ``folds`` are Gradio's, which may come one inside another.

    Of the swap page's hundreds of groups only the first are shown, since all are made alike.
    """
    page.evaluate("document.querySelectorAll('details:not(.offered *)').forEach((node) => { node.open = true; })")
    opened = page.locator(".label-wrap.open:visible")
    closed = page.locator(".label-wrap:visible:not(.open)")
    for number in range(folds):
        closed.first.click()
        expect(opened).to_have_count(number + 1)
    expect(closed).to_have_count(0)


@pytest.mark.parametrize(
    "faint",
    ["<p style='color: #aaa'>faint", "<p style='opacity: 0.4'>faint", "<div style='background: #444'><p>faint</div>"],
)
def test_one_text_that_is_hard_to_read_is_found_among_many_that_are_not(page: Page, faint: str):
    page.set_content(f"<html lang=en><title>Texts</title><main><h1>Texts</h1>{'<p>clear' * 9}{faint}{'<p>clear' * 9}")
    assert [fault.split(":")[0] for fault in broken(page)] == ["serious color-contrast"]


EMPTY = (
    "",
    "calibrate",
    "compare",
    "swap",
    "paths",
    "batches",
    "decisions",
    "sessions",
    "review",
    "lists",
    "tune",
    "evaluate",
    "models",
)


@pytest.mark.slow
def test_no_page_breaks_a_rule_in_the_dark_or_runs_out_at_any_width_before_anything_is_done_on_it(visit):
    page = visit("/", dark=True)
    wrong = {}
    for path in EMPTY:
        page.goto(f"{page.url.rsplit('/', 1)[0]}/{path}")
        expect(
            page.locator("#main :is(button, input, textarea):enabled:visible, #main th:visible").first
        ).to_be_visible()
        wrong[path] = broken(page, every_text=True)
        for width in (1024, 320, 768):
            page.set_viewport_size({"width": width, "height": 1000})
            wrong[path] += faults(page, SCROLLED_AWAY) + (faults(page, RUNS_OUT) if width >= 768 else [])
        assert page.evaluate(TEXT_OF_CHARTS, PALETTES["dark"]["text-3"])
    assert {path: found for path, found in wrong.items() if found} == {}


def test_what_opens_above_a_page_breaks_no_rule_and_words_are_explained_and_give_the_focus_back(audit):
    page = audit("?session=1&branch=3")
    opener = page.locator(".cand thead").get_by_role("button", name="Fused")
    opener.focus()
    page.keyboard.press("Enter")
    explained = page.get_by_role("dialog", name="Fused")
    expect(explained).to_be_visible()
    assert broken(page, "#explains") == []
    page.keyboard.press("Escape")
    expect(explained).to_be_hidden()
    expect(opener).to_be_focused()
    page.locator("#alpha [data-testid=block-info]").click()
    expect(page.get_by_role("dialog", name="Alpha")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("number input for Lambda").focus()
    page.keyboard.press("F1")
    expect(page.get_by_role("dialog", name="Lambda")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("#prompt").focus()
    page.keyboard.press("F1")
    words = page.get_by_role("dialog", name="What the words mean")
    expect(words.locator("[data-entry]:visible")).to_have_count(len(GLOSSARY))
    assert broken(page, "#words") == []
    page.keyboard.type("four-fifths")
    expect(words.locator("[data-entry]:visible dt")).to_have_text(["Impact ratio"])
    page.keyboard.type("?")
    expect(words.locator(".none")).to_be_visible()
    # The first press empties the field.
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(words).to_be_hidden()
    page.locator("[data-do=until]").click()
    expect(page.locator(".untilbox")).to_be_visible()
    assert broken(page, ".untilbox") == []
    page.keyboard.press("Escape")
    page.locator(".branching > summary").click()
    page.locator("[data-more='4']").click()
    expect(page.locator("#menu-branch")).to_be_visible()
    assert broken(page, "#menu-branch") == []
    page.keyboard.press("Escape")
    page.get_by_label("Mask", exact=True).click()
    expect(page.get_by_test_id("dropdown-option").first).to_be_visible()
    assert broken(page, ".options:has(> .option-list)") == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keyboard help").click()
    expect(page.locator("dialog#help")).to_be_visible()
    assert broken(page, "dialog#help") == []
