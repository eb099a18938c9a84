"""What a page loads of our own scripts and styles, and when."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.ui

MOST_BYTES = 150_000
OURS = """() => performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/own/'))
  .map((entry) => [entry.name, entry.encodedBodySize, entry.transferSize])"""
DRAWN = """() => { const style = getComputedStyle(document.documentElement);
  return [style.colorScheme, style.backgroundColor]; }"""


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [False, True])
def test_no_page_has_many_files_of_ours_and_each_file_is_loaded_once(
    browser: Browser, address: str, services, drawn: bool
):
    context = browser.new_context()
    page = context.new_page()
    if not drawn:
        # Gradio draws the page; ours comes with it. A route of Playwright's would switch the browser's memory off.
        page.context.new_cdp_session(page).send("Network.setBlockedURLs", {"urls": ["*/assets/*"]})
    loaded: set[str] = set()
    paths = [page.path for page in services.pages]
    for path in (*paths, paths[0]):
        page.goto(f"{address}/{path}")
        if drawn:
            expect(page.locator(".topbar .brand")).to_be_visible()
        files = page.evaluate(OURS)
        assert 0 < sum(size for _, size, _ in files) < MOST_BYTES, path
        assert {name for name, _, sent in files if sent} == {name for name, _, _ in files} - loaded, path
        loaded |= {name for name, _, _ in files}
    context.close()


def test_colours_and_styles_are_there_before_anything_is_drawn(page: Page, address: str, services):
    page.route("**/assets/**", lambda route: route.abort())  # nothing of Gradio arrives, which draws the page
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/sessions")
    assert page.evaluate(DRAWN) == ["dark", "rgb(24, 25, 28)"]
    page.emulate_media(color_scheme="light")
    page.evaluate("localStorage.setItem('coft-theme', 'dark')")
    page.reload()
    assert page.evaluate(DRAWN) == ["dark", "rgb(24, 25, 28)"]
