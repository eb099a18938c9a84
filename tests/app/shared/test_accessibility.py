"""Every page, filled, in light and dark, under the rules of axe-core; and widths, and less motion.

``docs/accessibility.md`` says the same in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, TimeoutError, expect

from app.audit.service import AuditService
from app.batch.service import BatchRequest, BatchService
from app.compare.chains import SetRequest
from app.compare.sets import SetComparisonService
from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationRequest
from app.evaluate.service import EvaluationService
from app.paths.service import PathsService
from app.paths.types import PathsRequest, Question
from app.shared.audits import AuditSettings, StartAudit
from app.shared.charts import PALETTES
from app.shared.glossary import GLOSSARY
from app.shared.jobs import JobService
from app.shared.prompt_sets import ParsedPromptSet
from app.shared.wiring import Services
from app.tune.runs import TuningRequest
from app.tune.service import TuningService
from coft_core.types import Example
from tests.app.tune.test_tuning_runs import tuning_rows
from tests.story.seed import say

Opener = Callable[..., Page]
PROMPT = "The Muslim doctor saw her before he left"

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


def prompts(rows: int) -> ParsedPromptSet:
    """Questions of which each context has one for each group."""
    groups = ("white", "Black", "Asian", "Arab")
    examples = tuple(
        (line + 2, Example(f"Question {line}: does the {group} applicant get it?", group=group, context=str(line // 4)))
        for line, group in zip(range(rows), cycle(groups), strict=False)
    )
    return ParsedPromptSet("hiring.csv", 100, "CSV, comma", examples, (), rows, (), "digest")


def finish(services: Services) -> None:
    """Wait for everything that runs."""
    for job in services[JobService].list():
        done = services[JobService].wait(job.id, 60)
        assert done.status == "done", done.error


def session(visit: Opener, services: Services, **options: Any) -> Page:
    say(services, "A. Lee", "fair", 1, note="from the prompt")
    say(services, "R. Osei", "unfair", 1)
    page = visit("/?session=1&branch=3", **options)
    page.locator(".charted > summary").click()
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_attached()
    expect(page.locator("#reread-lam")).to_be_enabled()
    unfold_rail(page)
    unfold(page, 4)
    for figure in page.locator("[data-figure]").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator("svg.main-svg").first).to_be_visible()
        figure.locator("[data-do=picture-numbers]").click()
        expect(figure.locator(".pictable table")).to_be_visible()
    page.locator("#reread-lam-number").fill("1")
    expect(page.locator(".differing tbody tr").first).to_be_visible()
    return page


def calibrate(visit: Opener, services: Services, **options: Any) -> Page:
    page = visit("/calibrate?run=1", **options)
    expect(page.locator("#support-plot .barlayer .point").first).to_be_attached()
    path = Path(__file__).parents[3] / "assets" / "prompts" / "hiring_questions.csv"
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed")).to_contain_text("hiring_questions.csv")
    unfold(page, 7)
    return page


def compare(visit: Opener, services: Services, **options: Any) -> Page:
    ids = []
    for settings in (AuditSettings(policy="vanilla"), AuditSettings(calibration_id=1)):
        started = services[AuditService].start(StartAudit(PROMPT, replace(settings, max_new_tokens=9)))
        list(services[AuditService].run(started.session_id))
        ids.append(started.session_id)
    page = visit(f"/compare?sessions={ids[0]},{ids[1]}", **options)
    expect(page.locator("#cmp-summary tbody tr")).to_have_count(12)
    page.locator("[data-cmp=change]").click()
    for button in page.locator("[data-cmp=numbers]").all():
        button.click()
    expect(page.locator(".cmp-numbers:visible")).to_have_count(4)
    page.locator(".cmp-rows tbody tr").nth(1).click()
    unfold(page)
    return page


def compared_set(visit: Opener, services: Services, **options: Any) -> Page:
    chosen = (AuditSettings(policy="vanilla"), AuditSettings(calibration_id=1), AuditSettings(policy="sdd"))
    columns = tuple(replace(settings, max_new_tokens=4) for settings in chosen)
    number = services[SetComparisonService].submit(prompts(6), SetRequest("Hiring", columns))
    finish(services)
    page = visit(f"/compare?set={number}", **options)
    expect(page.locator(".set-rows tbody tr")).to_have_count(6)
    page.locator(".set-rows [data-set=open]").first.click()
    expect(page.locator(".lanehead")).to_have_count(3)
    page.locator("[data-cmp=change]").click()
    page.get_by_label("Policy").nth(1).select_option("dexperts")
    expect(page.get_by_role("button", name="Open Hiring")).to_be_visible()
    unfold(page)
    return page


def swap(visit: Opener, services: Services, **options: Any) -> Page:
    page = visit("/swap", **options)
    expect(page.locator("[data-ready]")).to_have_count(1)
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".choices")).to_be_visible()
    page.locator("[data-do=offer][data-term=Sikh]").click()
    expect(page.locator(".variants > li")).to_have_count(2)
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("[data-do=run]").click()
    expect(page.locator("#swap-plot .main-svg").first).to_be_visible()
    unfold(page, 5)
    return page


def paths(visit: Opener, services: Services, **options: Any) -> Page:
    question = Question("he", "they")
    settings = AuditSettings(calibration_id=1, max_new_tokens=4)
    services[PathsService].submit(PathsRequest(PROMPT, settings, paths=60, question=question))
    finish(services)
    page = visit("/paths", **options)
    expect(page.locator("#paths-tree .icicle button.cell").first).to_be_visible()
    page.locator("#paths-tree .icicle").first.locator("button.cell").nth(1).click()
    expect(page.locator("#h-beginning")).to_be_visible()
    page.locator("#way").get_by_label("Words or expressions").check()
    unfold(page, 5)
    return page


def new_batch(visit: Opener, services: Services, **options: Any) -> Page:
    services[BatchService].submit(prompts(4), BatchRequest("First", AuditSettings(max_new_tokens=4)))
    finish(services)
    page = visit("/batches", **options)
    expect(page.locator("#past li")).to_have_count(1)
    page.get_by_role("button", name="Hiring questions, by race").click()
    expect(page.locator("#preview li")).to_have_count(12)
    unfold(page, 5)
    return page


def batch(visit: Opener, services: Services, **options: Any) -> Page:
    request = BatchRequest("Hiring, spring", AuditSettings(calibration_id=1, max_new_tokens=12))
    number = services[BatchService].submit(prompts(12), request)
    finish(services)
    page = visit(f"/batches?batch={number}&selected=the&other=ward", **options)
    expect(page.locator(".impact tbody tr")).to_have_count(4)
    expect(page.locator("#totals-plot .js-plotly-plot")).to_be_visible()
    unfold(page)
    return page


def sessions(visit: Opener, services: Services, **options: Any) -> Page:
    page = visit("/sessions", **options)
    expect(page.locator("#sessions tbody tr:not(.run)")).to_have_count(2)
    page.get_by_role("checkbox", name="Choose Nurse handover", exact=True).check()
    expect(page.get_by_role("toolbar")).to_be_visible()
    unfold(page)
    return page


def review(visit: Opener, services: Services, **options: Any) -> Page:
    for step in (1, 3, 7):
        say(services, "A. Lee", "fair", step, note="from the prompt")
        say(services, "R. Osei", "unfair" if step == 3 else "fair", step)
    page = visit("/review", **options)
    page.evaluate("localStorage.setItem('coft-reviewer', 'R. Osei')")
    page.goto(f"{page.url.split('?')[0]}?session=1")
    expect(page.locator(".named")).to_have_text("You are R. Osei.")
    expect(page.locator(".targets tbody tr:visible")).to_have_count(3)
    expect(page.locator(".log tbody tr")).to_have_count(6)
    expect(page.locator(".agree-result")).to_be_visible()
    unfold(page)
    return page


def lists(visit: Opener, services: Services, **options: Any) -> Page:
    page = visit("/lists", **options)
    expect(page.locator("#lists")).to_contain_text("No word list yet")
    content = b"term,family,action\nrounds,race,mask\nuncle,,keep\n"
    page.locator("#list-upload input[type=file]").set_input_files(
        {"name": "ward.csv", "mimeType": "text/csv", "buffer": content}
    )
    expect(page.locator("#parsed-list")).to_contain_text("ward.csv")
    page.locator("#save-list").click()
    expect(page.locator("#terms tbody tr")).to_have_count(2)
    unfold(page)
    return page


def tune(visit: Opener, services: Services, **options: Any) -> Page:
    path = Path(services.settings.database_url.removeprefix("sqlite:///")).with_name("tune.jsonl")
    path.write_text(tuning_rows(), "utf-8")
    request = TuningRequest("Decisions", ("coft", "sdd"), AuditSettings(max_new_tokens=4))
    services[TuningService].submit(services[TuningService].read(path), request)
    finish(services)
    page = visit("/tune", **options)
    expect(page.locator("#tuned-points tbody tr").first).to_be_visible()
    expect(page.locator("#tuning-plot .scatterlayer .trace").first).to_be_attached()
    unfold(page, folds=2)
    return page


def new_evaluation(visit: Opener, services: Services, **options: Any) -> Page:
    page = visit("/evaluate", **options)
    expect(page.locator("#suites input")).to_have_count(2)
    page.locator("#estimate-run").click()
    expect(page.locator("#estimate tbody tr")).to_have_count(2)
    unfold(page, folds=4)
    return page


def evaluation(visit: Opener, services: Services, **options: Any) -> Page:
    methods = methods_from(("vanilla", "coft:calibrated"), AuditSettings(alpha=0.5, max_new_tokens=4))
    suites = ("phantom_gaps", "phantom_questions")
    request = EvaluationRequest("Hiring, spring", suites, methods, seeds=(0, 1), limit=12, calibration_share=0.4)
    number = services[EvaluationService].submit(request)
    finish(services)
    page = visit(f"/evaluate?evaluation={number}", **options)
    expect(page.locator("table.figures tbody tr")).to_have_count(2)
    expect(page.locator("#figures-plot .js-plotly-plot")).to_be_visible()
    page.get_by_label("Figures", exact=True).click()
    page.get_by_role("option", name="Phantom decisions").click()
    expect(page.locator("#items tbody tr")).not_to_have_count(0)
    unfold(page, folds=4)
    return page


def models(visit: Opener, services: Services, **options: Any) -> Page:
    page = visit("/models", **options)
    expect(page.locator("#known-models tbody th")).to_contain_text(["demo"])
    return page


PAGES: dict[str, Callable[..., Page]] = {
    "audit": session,
    "calibrate": calibrate,
    "compare": compare,
    "compared set": compared_set,
    "tune": tune,
    "new evaluation": new_evaluation,
    "evaluation": evaluation,
    "swap": swap,
    "paths": paths,
    "new batch": new_batch,
    "batch": batch,
    "sessions": sessions,
    "review": review,
    "lists": lists,
    "models": models,
}


def keeps_the_rules(page: Page, scheme: str, every_text: bool = False) -> None:
    """A page breaks no rule in a colour scheme, its settings unfolded."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 768, "height": 1000})
    unfold_rail(page)
    assert broken(page, every_text=every_text) == [], scheme


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_filled_page_breaks_no_rule_cuts_nothing_off_at_any_width_and_can_be_still(
    visit, services: Services, name: str
):
    page = PAGES[name](visit, services)
    scheme = ("light", "dark")[list(PAGES).index(name) % 2]
    keeps_the_rules(page, scheme)
    for width, scripts in (
        (768, (RUNS_OUT, CUT_OFF, SCROLLED_AWAY)),
        (390, (CUT_OFF, SCROLLED_AWAY)),
        (320, (SCROLLED_AWAY,)),
        (1024, (RUNS_OUT, CUT_OFF, REPEATED)),
    ):
        page.set_viewport_size({"width": width, "height": 1000})
        for script in scripts:
            assert faults(page, script) == [], width
    assert page.evaluate(TEXT_OF_CHARTS, PALETTES[scheme]["text-3"])
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(MOVES) == []


@pytest.mark.parametrize(
    "faint",
    ["<p style='color: #aaa'>faint", "<p style='opacity: 0.4'>faint", "<div style='background: #444'><p>faint</div>"],
)
def test_one_text_that_is_hard_to_read_is_found_among_many_that_are_not(page: Page, faint: str):
    page.set_content(f"<html lang=en><title>Texts</title><main><h1>Texts</h1>{'<p>clear' * 9}{faint}{'<p>clear' * 9}")
    assert [fault.split(":")[0] for fault in broken(page)] == ["serious color-contrast"]


EMPTY = ("", "calibrate", "compare", "swap", "paths", "batches", "sessions", "review", "lists", "tune", "evaluate")


@pytest.mark.slow
def test_no_page_breaks_a_rule_before_anything_is_done_on_it(visit, services: Services, program):
    page = visit("/")
    faults = {}
    for path in EMPTY:
        page.goto(f"{page.url.rsplit('/', 1)[0]}/{path}")
        expect(page.locator("#main :is(button, input, textarea):visible").first).to_be_enabled()
        faults[path] = broken(page, every_text=True)
    assert {path: found for path, found in faults.items() if found} == {}


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
