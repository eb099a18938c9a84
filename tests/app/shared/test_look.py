"""Themes, widths and what a screen reader is told."""

from __future__ import annotations

from contextlib import suppress

import pytest
from playwright.sync_api import Page, TimeoutError, expect

PATHS = ("/?session=1", "/calibrate", "/sessions")


def settled(page: Page, path: str) -> None:
    ready = {
        "/?session=1": ".cand tbody tr",
        "/calibrate": "#support-plot .barlayer .point",
        "/sessions": "#sessions tbody tr",
    }[path]
    expect(page.locator(ready).first).to_be_attached()


CUT_OFF = """() => [...document.querySelectorAll('table, section, button, .js-plotly-plot')]
  .filter((node) => node.offsetParent && node.getBoundingClientRect().right > innerWidth + 1)
  .filter((node) => !node.closest('#report-file, #session-file, .offscreen, .scrolls'))
  .map((node) => node.outerHTML.slice(0, 100))
  .concat(document.documentElement.scrollWidth > innerWidth ? ['the page scrolls sideways'] : [])"""


NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, textarea')].filter((node) => {
  if (!node.offsetParent) return false;
  const labelled = node.getAttribute('aria-labelledby');
  const labels = [...(node.labels || [])].map((label) => label.textContent).join('');
  const name = node.getAttribute('aria-label') || (labelled && document.getElementById(labelled)?.textContent)
    || labels || node.textContent || node.title || node.placeholder;
  return !name.trim();
}).map((node) => node.outerHTML.slice(0, 160))"""


REPEATED = """() => {
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id).filter((id) => id);
  return ids.filter((id, at) => ids.indexOf(id) !== at && !/^(clip|plotly)/.test(id));
}"""
TEXT_OF_CHARTS = """(colour) => [...document.querySelectorAll('.js-plotly-plot')].every(
  (plot) => plot.layout?.template?.layout.font.color === colour)"""


@pytest.mark.slow
def test_pages_follow_the_theme_scroll_sideways_at_no_width_and_name_every_control(visit):
    page = visit(PATHS[0], width=768, dark=True)
    root = page.url.partition("/?")[0]
    for path in PATHS:
        if path != PATHS[0]:
            page.goto(root + path)
        settled(page, path)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(24, 25, 28)"
        page.wait_for_function(TEXT_OF_CHARTS, arg="#969aa1")
        for width in (768, 1920, 1280, 1024):
            page.set_viewport_size({"width": width, "height": 1000})
            # Charts follow a moment after the window.
            with suppress(TimeoutError):
                page.wait_for_function(f"() => ({CUT_OFF})().length === 0", polling=100)
            assert page.evaluate(CUT_OFF) == [], (path, width)
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.locator("main").count() == 1
        assert page.evaluate(REPEATED) == []
