"""A real Chromium against the real program on a seeded store.

``COFT_TEST_SLOWDOWN=6`` makes the browser's processor six times slower, to find what depends on its speed;
``COFT_TEST_RERUNS=0`` tries nothing again, to see each failure; ``COFT_TEST_PATIENCE=60`` waits so many seconds for
what a page should show; ``COFT_TEST_ARTEFACTS=folder`` keeps screenshots there.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import Error as BrowserError
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from app.bootstrap import services as open_services
from app.server import build_app, finish_agents, launch_options
from app.settings import Settings
from app.shared.wiring import Services
from tests.conftest import free_port
from tests.story.seed import Seeded, seeded

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--process-per-site",
]
ROOT = Path(__file__).resolve().parents[1]
SLOWDOWN = float(os.environ.get("COFT_TEST_SLOWDOWN", "1"))
PATIENCE_MS = 1000 * float(os.environ.get("COFT_TEST_PATIENCE", "20")) * max(1.0, SLOWDOWN / 2)
RERUNS = int(os.environ.get("COFT_TEST_RERUNS", "2"))
"""How often a failed browser test is tried again, at most.

A browser, its driver and a server share the cores of a test machine with whatever else runs there, and can be starved
for longer than any wait. What was tried again is listed in the summary, and is looked into; a test that fails every
time fails. No other tests are tried again.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the browser tests, so that they can be chosen or left out, and are tried again."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("ui")
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))


@functools.cache
def drives_pages(file: str) -> bool:
    """Whether a file's tests drive a browser."""
    return "playwright" in (ROOT / file).read_text("utf-8")


class PagesTogether(LoadFileScheduling):
    """A file's tests run in one process, and those of all pages in the same one: one browser, one program, one store.

    Two browsers on the cores of a test machine starve each other.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "pages" if drives_pages(file) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> PagesTogether:
    """What shares the tests out to processes."""
    return PagesTogether(config, log)


WORD_BY_WORD = """
if (location.pathname === "/" && !location.search.includes("tab=")) {
  const whole = new URL(location.href);
  whole.searchParams.set("tab", "words");
  history.replaceState(null, "", whole);
}
if (!location.search.includes("tab=finding"))
  document.addEventListener("DOMContentLoaded", () => new MutationObserver((_, observer) => {
  const audit = document.querySelector(".row.audit");
  if (!audit) return;
  observer.disconnect();
  audit.classList.add("rail-drawn");
  document.body.classList.add("editing");
}).observe(document.body, { childList: true, subtree: true }));
"""
"""Opens an audit word by word, with its settings and its prompt unfolded; ``?tab=finding`` opens it as it comes."""


def open_page(context: BrowserContext) -> Page:
    """A new page, as slow as the tests are asked to be."""
    page = context.new_page()
    page.add_init_script(WORD_BY_WORD)
    if SLOWDOWN > 1:
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
    return page


def hand_over(page: Page, place: str, file: Path) -> None:
    """Choose a file in an upload field, in place of the one that it holds."""
    held = page.locator(place).get_by_label("Clear")
    if held.is_visible():
        held.click()
    page.locator(f"{place} input[type=file]").set_input_files(file)


@contextmanager
def served(services: Services, agents: bool = False) -> Iterator[str]:
    """The application on a free port, in threads of this process, for agents too if asked; yields its address."""
    app = build_app(services)
    _, url, _ = app.launch(
        prevent_thread_lock=True,
        quiet=True,
        server_name="127.0.0.1",
        server_port=free_port(),
        **launch_options(services, agents),
    )
    if agents:
        finish_agents(app)
    try:
        yield url.rstrip("/")
    finally:
        app.close(verbose=False)


@pytest.fixture(scope="session")
def artefacts() -> Path | None:
    """Where screenshots go, if they are asked for."""
    named = os.environ.get("COFT_TEST_ARTEFACTS")
    if not named:
        return None
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; its absence fails where everything must run, and skips elsewhere."""
    if not CHROMIUM.exists():
        message = f"{CHROMIUM} is missing: install Debian's chromium to run the browser tests"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory, detectors_built_once: None) -> Iterator[Seeded]:
    """The whole program on a store of this process."""
    with seeded(tmp_path_factory.mktemp("story")) as opened:
        yield opened


@pytest.fixture(scope="session")
def address(program: Seeded, browser: Browser) -> Iterator[str]:
    """Where the application runs."""
    with served(program.services) as url:
        yield url


class Embedded(NamedTuple):
    """The program on the embedded model: its services, and where it runs."""

    services: Services
    address: str


@pytest.fixture(scope="session")
def embedded_program(tmp_path_factory: pytest.TempPathFactory, detectors_built_once: None) -> Iterator[Seeded]:
    """The whole program on the embedded model and on an empty store of this process, its settings as they come."""
    path = tmp_path_factory.mktemp("embedded") / "real.sqlite3"
    with open_services(Settings(database_url=f"sqlite:///{path}"), owns_store=True) as opened:
        yield Seeded(opened, path)


@pytest.fixture(scope="session")
def embedded_address(embedded_program: Seeded, browser: Browser) -> Iterator[str]:
    """Where the program on the embedded model runs."""
    with served(embedded_program.services) as url:
        yield url


@pytest.fixture
def embedded(embedded_program: Seeded, embedded_address: str) -> Embedded:
    """The program on the embedded model as if nobody had used it yet, but that the model may be loaded."""
    return Embedded(embedded_program.restore(), embedded_address)


@pytest.fixture
def services(program: Seeded) -> Services:
    """The services, as if nothing had happened since the store was seeded."""
    return program.restore()


@pytest.fixture(scope="session")
def warm(browser: Browser, address: str) -> Iterator[Page]:
    """A page in the browser's window that all tests of this process take turns in.

    While it is open, Chromium keeps the process that holds the pages' scripts, compiled (``--process-per-site``). To
    read and compile them again takes nearly half of the processor's time for opening a page.
    """
    page = browser.new_context().new_page()
    page.goto(f"{address}/theme.css")
    yield page
    page.context.close()


def leave(page: Page) -> None:
    """Take a page away from what a test did on it, and forget what it kept; close it if it will not go."""
    try:
        page.unroute_all(behavior="ignoreErrors")
        if page.url.startswith("http"):
            page.goto("/".join([*page.url.split("/")[:3], "theme.css"]))
            page.evaluate("sessionStorage.clear(); localStorage.clear();")
        page.emulate_media(media="null", color_scheme="null", reduced_motion="null")
    except BrowserError:
        page.close()


@pytest.fixture
def window(warm: Page) -> Iterator[BrowserContext]:
    """A window of the browser without anything that an earlier test left behind in it."""
    yield warm.context
    warm.context.set_offline(False)
    _, *others = warm.context.pages
    for page in others[1:]:
        page.close()
    for page in others[:1]:
        leave(page)
    warm.context.clear_permissions()
    warm.context.clear_cookies()
    warm.evaluate("localStorage.clear()")


@pytest.fixture
def tab(window: BrowserContext) -> Page:
    """The page of a window that tests take turns in: another address in it costs two thirds of what a new page does."""
    return window.pages[1] if len(window.pages) > 1 else open_page(window)


@contextmanager
def no_error() -> Iterator[Callable[[Page], None]]:
    """Yields what listens to a page until the block ends; errors of its scripts fail the test."""
    errors: list[str] = []
    heard: list[Page] = []

    def note(error: BrowserError) -> None:
        errors.append(str(error))

    def hear(page: Page) -> None:
        page.on("pageerror", note)
        heard.append(page)

    yield hear
    for page in heard:
        page.remove_listener("pageerror", note)
    assert not errors, errors


@pytest.fixture
def page(window: BrowserContext, tab: Page) -> Iterator[Page]:
    """An empty page for the whole program, which answers later than a seeded store does; errors fail the test."""
    window.set_default_timeout(2 * PATIENCE_MS)
    tab.set_viewport_size({"width": 1440, "height": 1000})
    with no_error() as hear:
        hear(tab)
        yield tab


Opener = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, tab: Page, address: str, services: Services) -> Iterator[Opener]:
    """Open a page of the application; errors in its scripts fail the test.

    Each page that a test opens after its first one is in a browser of its own, as another person's would be.
    """
    contexts: list[BrowserContext] = []

    def opener(path: str = "/", width: int = 1440, dark: bool = False) -> Page:
        page = open_page(browser.new_context()) if contexts else tab
        contexts.append(page.context)
        page.context.set_default_timeout(PATIENCE_MS)
        page.set_viewport_size({"width": width, "height": 1000})
        page.emulate_media(color_scheme="dark" if dark else "light")
        hear(page)
        page.goto(address + path)
        expect(page.locator(".topbar .brand")).to_be_visible()
        return page

    with no_error() as hear:
        yield opener
        for context in contexts[1:]:
            context.close()


@pytest.fixture
def audit(visit: Opener) -> Opener:
    """Open the audit page and wait until it is ready to be used."""

    def opener(query: str = "", **options: object) -> Page:
        page = visit(f"/{query}", **options)
        expect(page.locator(".rail .note .badge")).to_have_count(1)
        expect(page.locator(".rail .note").first).to_contain_text("Ready on")
        if "session=" in query:
            expect(page.locator(".strip .tok[data-i]").first).to_be_visible()
        else:
            expect(page.locator("[data-do=go]")).to_be_enabled()
        return page

    return opener


@pytest.fixture
def picture(artefacts: Path | None) -> Callable[[Page, str], None]:
    """Keep a screenshot under the name given, where ``COFT_TEST_ARTEFACTS`` says where."""

    def keep(page: Page, name: str) -> None:
        if not artefacts:
            return
        stem = re.sub(r"\W+", "-", name)
        page.screenshot(path=str(artefacts / f"{stem}.png"), full_page=True)

    return keep
