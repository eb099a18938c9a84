"""Two tabs, and someone who clicks, types, reloads and goes back at random: nothing breaks, and no verdict is lost.

``COFT_TEST_TOURS=100`` walks so many tours, each with decisions of its own.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page
from playwright.sync_api import Error as BrowserError

from app.review.service import VerdictService
from app.shared.wiring import Services
from tests.browser import PATIENCE_MS, open_page

TOURS = int(os.environ.get("COFT_TEST_TOURS", "1"))
ACTIONS = 24
REVIEWER = "M. Key"
PLACES = ("", "?session=1", "?session=1", "?session=1&step=5", "?session=2", "sessions", "review?session=1", "batches")
KEYS = (*"cuxcux", "ArrowLeft", "ArrowRight", "ArrowRight", " ", "1", "2", "?", "[", "g", "F1", "Escape", "Escape")

JUDGED = """window.addEventListener('keydown', (event) => {
  const verdict = { c: 'fair', u: 'unfair', x: 'unclear' }[event.key], state = window.coft?.session?.state();
  const typing = event.target.closest?.(
    'input, textarea, select, [role=listbox], [role=slider], [role=tree], [role=menu], [popover], dialog[open]');
  if (verdict && state && state.session !== null && !typing && !document.querySelector('dialog[open]')
    && document.querySelector('[role=radio][data-verdict]')) window.judged(state.session, state.selected, verdict);
}, true);"""
"""Tells of each verdict key what was selected when it went down, before the page itself sees the key."""

IN_SIGHT = """() => [...document.querySelectorAll('main :is(button, summary, a[href], .tok), .topbar :is(a, button)')]
  .filter((node) => !node.disabled && !node.closest('.danger'))
  .filter((node) => !/delete|remove|forget|prune|download/i.test(node.innerText))
  .map((node) => node.getBoundingClientRect())
  .filter((box) => box.width && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth)
  .map((box) => [box.left + box.width / 2, box.top + box.height / 2])"""
"""The middles of everything that can be pressed and that neither deletes nor writes a file."""

ALL_SENT = """(session) => window.coft?.session?.state().session === session
  && !(JSON.parse(sessionStorage.getItem('coft-verdicts-unsent'))?.unsent || [])
    .some(({ target }) => target.session === session)"""


LEFT = ("AbortError: signal is aborted without reason", "Unexpected error Connection errored out")
"""What Gradio's client says of its own requests when a page is left before they are answered."""


@dataclass
class Tour:
    """What happened so far: what was judged (session, step, verdict), and what went wrong."""

    judged: list[tuple[int, int, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def hear(self, message: ConsoleMessage) -> None:
        """Keep an error of the console."""
        if message.type == "error" and not message.text.startswith(LEFT):
            self.faults.append(f"{message.page and message.page.url}: {message.text}")


@pytest.fixture
def tour(browser: Browser) -> Iterator[tuple[Tour, BrowserContext]]:
    """A browser of its own, whose pages tell of verdict keys and errors."""
    context, kept = browser.new_context(viewport={"width": 1440, "height": 1000}), Tour()
    context.set_default_timeout(PATIENCE_MS)
    context.expose_function("judged", lambda *what: kept.judged.append(what))
    # An empty tab has no storage.
    named = f"if (location.protocol === 'http:') localStorage.setItem('coft-reviewer', '{REVIEWER}');"
    context.add_init_script(f"{named} {JUDGED}")
    context.on("console", kept.hear)
    context.on("weberror", lambda error: kept.faults.append(str(error.error)))
    yield kept, context
    context.close()


def answer(page: Page, script: str) -> Any:
    """What a page says, which may be on its way to another page."""
    for _ in range(20):
        try:
            page.wait_for_function("Boolean(window.coft && document.querySelector('.topbar .brand'))")
            return page.evaluate(script)
        except BrowserError as error:
            if "context was destroyed" not in str(error):
                raise
    raise AssertionError("the page goes from address to address")


def judge(page: Page, draw: random.Random) -> None:
    """Open a session if none is, choose a token, and judge it at once."""
    if not answer(page, "Boolean(coft.session && coft.session.state().cards.length)"):
        page.goto(f"{page.url.split('?')[0].rsplit('/', 1)[0]}/?session=1")
    tokens = page.locator(".strip .tok[data-i]")
    tokens.first.wait_for()
    page.keyboard.press("Escape")
    # A session that was begun on the way may have fewer.
    tokens.nth(draw.randrange(8) % tokens.count()).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press(draw.choice("cux"))


def press(page: Page, draw: random.Random) -> None:
    page.keyboard.press(draw.choice(KEYS))


def click(page: Page, draw: random.Random) -> None:
    if places := answer(page, IN_SIGHT):
        page.mouse.click(*draw.choice(places))


def write(page: Page, draw: random.Random) -> None:
    if page.locator("#prompt").is_visible() and not answer(page, "Boolean(document.querySelector('dialog[open]'))"):
        page.locator("#prompt").press_sequentially(draw.choice((" she", " and the nurse", "\n", " 🙂 he")))


def reload(page: Page, draw: random.Random) -> None:
    page.reload()


def back(page: Page, draw: random.Random) -> None:
    # Before the first page there is only the empty tab.
    if answer(page, "navigation.currentEntry.index > 0"):
        page.go_back(wait_until="commit")


def go(page: Page, draw: random.Random) -> None:
    address = page.url.split("?")[0].rsplit("/", 1)[0]
    page.goto(f"{address}/{draw.choice(PLACES)}")


DEEDS: tuple[tuple[Callable[[Page, random.Random], None], int], ...] = (
    (press, 10), (judge, 4), (click, 12), (write, 2), (reload, 3), (back, 2), (go, 3),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(TOURS))
def test_a_random_tour_in_two_tabs_meets_no_error_and_loses_no_verdict(
    seed: int, tour: tuple[Tour, BrowserContext], address: str, services: Services
) -> None:
    kept, context = tour
    draw = random.Random(seed)
    tabs = [open_page(context) for _ in range(2)]
    for tab, path in zip(tabs, ("/?session=1", "/sessions"), strict=True):
        tab.on("dialog", lambda dialog: dialog.accept())
        tab.goto(address + path)
    for done in range(ACTIONS):
        tab = draw.choice(tabs)
        (deed,) = [judge] if not done else draw.choices([deed for deed, _ in DEEDS], [weight for _, weight in DEEDS])
        tab.bring_to_front()
        answer(tab, "1")
        deed(tab, draw)
    for tab in tabs:
        for session in sorted({session for session, _, _ in kept.judged}):
            tab.goto(f"{address}/?session={session}")
            tab.wait_for_function(ALL_SENT, arg=session)
    assert not kept.faults, "\n".join(kept.faults)
    for session, step, verdict in kept.judged:
        log = services[VerdictService].history(session, REVIEWER)
        assert any(
            entry.verdict == verdict and (entry.step_index is None or entry.step_index <= step <= entry.last_step_index)
            for entry in log
            if entry.judges
        ), (session, step, verdict)
