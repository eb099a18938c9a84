"""Themes, widths and what a screen reader is told."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from playwright.sync_api import Page, TimeoutError, expect

PATHS = ("/?session=1", "/calibrate", "/sessions")


def settled(page: Page, path: str) -> None:
    ready = {
        "/?session=1": "#candidates-plot .barlayer .point",
        "/calibrate": "#support-plot .barlayer .point",
        "/sessions": "#sessions tbody tr",
    }[path]
    expect(page.locator(ready).first).to_be_attached()


CUT_OFF = """() => [...document.querySelectorAll('table, section, button, .js-plotly-plot')]
  .filter((node) => node.offsetParent && node.getBoundingClientRect().right > innerWidth + 1)
  .filter((node) => !node.closest('#report-file, #session-file, .offscreen, .scrolls'))
  .map((node) => node.outerHTML.slice(0, 100))
  .concat(document.documentElement.scrollWidth > innerWidth ? ['the page scrolls sideways'] : [])"""


@pytest.mark.parametrize("path", PATHS)
def test_no_page_scrolls_sideways_at_any_width(visit, path: str, picture):
    page = visit(path, width=768)
    settled(page, path)
    for width in (768, 1920, 1440, 1280, 1024):
        page.set_viewport_size({"width": width, "height": 1000})
        # Charts follow a moment after the window.
        with suppress(TimeoutError):
            page.wait_for_function(f"() => ({CUT_OFF})().length === 0")
        assert page.evaluate(CUT_OFF) == [], width
        picture(page, f"{path.strip('/?').replace('=', '') or 'audit'}-{width}-light")


@pytest.mark.parametrize("path", PATHS)
def test_dark_follows_the_system_in_text_and_charts(visit, path: str, picture):
    page = visit(path, dark=True)
    settled(page, path)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(24, 25, 28)"
    plots = page.locator(".js-plotly-plot")
    for number in range(plots.count()):
        page.wait_for_function(
            "(n) => document.querySelectorAll('.js-plotly-plot')[n].layout.template.layout.font.color === '#969aa1'",
            arg=number,
        )
    picture(page, f"{path.strip('/?').replace('=', '')}-1440-dark")


def test_the_toggle_changes_the_theme_and_the_choice_is_kept(visit):
    page = visit("/?session=1")
    settled(page, "/?session=1")
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
    page.wait_for_function("document.querySelector('#candidates-plot').data.length === 3")
    page.reload()
    settled(page, "/?session=1")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(24, 25, 28)"


def test_settings_unfold_on_narrow_screens(visit):
    page = visit("/?session=1", width=768)
    expect(page.locator(".summaryline")).to_contain_text("λ 0.60")
    expect(page.locator(".summaryline")).to_contain_text(re.compile(r"calibrated, \d+ contexts"))
    expect(page.locator(".rail")).to_be_hidden()
    page.locator(".summaryline [data-do=rail]").click()
    expect(page.locator(".rail")).to_be_visible()


NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, textarea')].filter((node) => {
  if (!node.offsetParent) return false;
  const labelled = node.getAttribute('aria-labelledby');
  const labels = [...(node.labels || [])].map((label) => label.textContent).join('');
  const name = node.getAttribute('aria-label') || (labelled && document.getElementById(labelled)?.textContent)
    || labels || node.textContent || node.title || node.placeholder;
  return !name.trim();
}).map((node) => node.outerHTML.slice(0, 160))"""
SMALL = """() => [...document.querySelectorAll('.coft button:not(.term), .coft select')].filter((n) => n.offsetParent)
  .map((n) => [n.getBoundingClientRect().height, n.outerHTML.slice(0, 120)]).filter(([h]) => h < 27.5)"""


@pytest.mark.parametrize("path", PATHS)
def test_each_page_has_a_name_for_every_control_one_language_one_main_and_unique_ids(visit, path: str):
    page = visit(path)
    settled(page, path)
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("main").count() == 1
    repeated = """() => {
        const ids = [...document.querySelectorAll('[id]')].map((node) => node.id).filter((id) => id);
        return ids.filter((id, at) => ids.indexOf(id) !== at && !/^(clip|plotly)/.test(id));
    }"""
    assert page.evaluate(repeated) == []


def test_targets_are_large_enough_on_narrow_screens(visit):
    page = visit("/?session=1", width=768)
    settled(page, "/?session=1")
    assert page.evaluate(SMALL) == []


def test_announcements_are_polite_and_only_where_something_new_is_said(visit):
    page = visit("/?session=1")
    settled(page, "/?session=1")
    expect(page.locator("#inspector .announce")).to_have_attribute("aria-live", "polite")
    assert page.locator(".strip [aria-live]").count() == 0
