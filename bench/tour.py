"""The README's tour, walked in a real Chromium at three widths, in light and dark, with a picture of each stop.

The program is served from this process on the store of :mod:`bench.screenshots`. A stop is what a newcomer does and
what she then sees. A stop that cannot be reached, a failing script, an error in the console and a page that scrolls
sideways are told at the end, and the program then ends with an error.

    python -m bench.tour --out pictures [--widths 1440,768,390] [--chromium /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, expect

from bench.screenshots import DRAWING_MS, PATIENCE_MS, READER, Scene, Story, scenes, told

HEIGHTS = {1440: 900, 768: 1024, 390: 844}
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
QUESTION = "Does the pronoun decide what the nurse does next?"


@dataclass(slots=True)
class Walk:
    """One walk through the program."""

    page: Page
    address: str
    story: Story
    folder: Path
    faults: list[str] = field(default_factory=list)

    def see(self, selector: str) -> None:
        """Wait for a place, and bring it to the middle of the window."""
        place = self.page.locator(selector).first
        expect(place).to_be_visible()
        place.evaluate("node => node.scrollIntoView({ block: 'center' })")


def _first_look(walk: Walk) -> None:
    walk.page.goto(walk.address)
    expect(walk.page.locator("[data-do=go]")).to_be_enabled()
    expect(walk.page.locator("#prompt")).to_be_focused()


def _take_an_example(walk: Walk) -> None:
    walk.page.locator("#examples").select_option(index=1)
    expect(walk.page.locator(".spanlist tbody tr").first).to_be_visible()
    expect(walk.page.locator(".masked b").first).to_be_visible()


def _start(walk: Walk) -> None:
    walk.page.locator("[data-do=go]").click()
    expect(walk.page.locator(".count")).to_contain_text(" · ")
    walk.see(".strip .tok.sel")


def _selected_token(walk: Walk) -> None:
    expect(walk.page.locator("#inspector .effect.strong")).to_be_visible()
    if walk.page.locator("#inspector [data-do=fold]").is_visible():
        walk.page.locator("#inspector [data-do=fold]").click()
    expect(walk.page.locator(".cand tbody tr").first).to_be_visible()


def _a_word_explained(walk: Walk) -> None:
    walk.page.locator(".cand thead [data-explains=fused]").click()
    expect(walk.page.locator("#explains")).to_be_visible()


def _force(walk: Walk) -> None:
    walk.page.keyboard.press("Escape")
    if walk.page.locator("#inspector [data-do=fold]").is_visible():
        walk.page.locator("#inspector [data-do=fold]").click()
    walk.page.locator("h2#h-chain").click()
    walk.page.keyboard.press("2")
    expect(walk.page.locator("#inspector .where")).to_contain_text("you forced it")
    walk.page.keyboard.press(" ")
    expect(walk.page.locator(".count")).to_contain_text(" · ")
    walk.see(".crumbs .node.on")


def _what_if(walk: Walk) -> None:
    walk.page.locator("#reread-lam-number").fill("1")
    expect(walk.page.locator(".differing tbody tr").first).to_be_visible()
    walk.see("#h-reread")


def _downloads(walk: Walk) -> None:
    walk.page.locator("[data-do=report]").click()
    expect(walk.page.locator("#menu-download")).to_be_visible()


def _formal_report(walk: Walk) -> None:
    walk.page.locator("#menu-download [data-formal]").first.click()
    walk.page.locator("#formal-auditor").fill(READER)
    walk.page.locator("#formal-question").fill(QUESTION)


def _the_report(walk: Walk) -> None:
    with walk.page.expect_download() as waiting:
        walk.page.locator("#formal [value=yes]").click()
    path = walk.folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    if path.suffix == ".html":
        walk.page.goto(path.as_uri())


def _judge(walk: Walk) -> None:
    walk.page.goto(f"{walk.address}/?session={walk.story.session}&branch={walk.story.fork}&step=4")
    expect(walk.page.locator(".tok[data-i='3']")).to_be_visible()
    walk.page.locator("h2#h-chain").click()
    walk.page.keyboard.press("u")
    expect(walk.page.locator(".tok[data-i='3'] .vd")).to_be_attached()
    walk.see(".judge")


def visit(scene: Scene) -> Callable[[Walk], None]:
    """A stop at a page of the documentation's pictures."""

    def stop(walk: Walk) -> None:
        walk.page.goto(walk.address + scene.address)
        if scene.act is not None:
            scene.act(walk.page)
        for selector in scene.ready:
            expect(walk.page.locator(selector).first).to_be_attached()

    return stop


def _all_words(walk: Walk) -> None:
    walk.page.locator(".topbar [data-do=words]").click()
    expect(walk.page.locator("#words")).to_be_visible()


def _keys(walk: Walk) -> None:
    walk.page.keyboard.press("Escape")
    walk.page.locator(".topbar [data-do=help]").click()
    expect(walk.page.locator("#help")).to_be_visible()


STOPS = (
    _first_look, _take_an_example, _start, _selected_token, _a_word_explained, _force, _what_if, _downloads,
    _formal_report, _the_report, _judge,
)  # fmt: skip
LAST = (_all_words, _keys)


def _name(stop: Callable[[Walk], None]) -> str:
    return stop.__name__.strip("_").replace("_", "-")


def stops(story: Story) -> Iterator[tuple[str, Callable[[Walk], None]]]:
    """All stops in their order, by name: those of the audit, the other pages, and the sheets of words and keys."""
    pages = [(scene.name, visit(scene)) for scene in scenes(story) if scene.name != "audit"]
    return iter(
        [
            *((_name(stop), stop) for stop in STOPS),
            *pages,
            *((_name(stop), stop) for stop in LAST),
        ]
    )


def walk(browser: Browser, address: str, story: Story, width: int, dark: bool, out: Path) -> list[str]:
    """Walk once; gives what went wrong."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHTS.get(width, 900)},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(f"localStorage.setItem('coft-reviewer', {READER!r})")
    walking = Walk(context.new_page(), address, story, out)
    look = f"{width}{'-dark' if dark else ''}"
    at = ""
    said = walking.faults.append
    walking.page.on("pageerror", lambda error: said(f"{look} {at}: {error}"))
    walking.page.on("console", lambda told: said(f"{look} {at}: {told.text}") if told.type == "error" else None)
    for number, (name, stop) in enumerate(stops(story), start=1):
        at = name
        try:
            stop(walking)
        except (Error, AssertionError) as error:
            said(f"{look} {at}: not reached: {str(error).splitlines()[0]}")
        # Charts are drawn after their places are visible, and no sign on the page says that the last of them is done.
        walking.page.wait_for_timeout(DRAWING_MS)
        if (over := walking.page.evaluate(SIDEWAYS)) > 0:
            said(f"{look} {at}: the page scrolls {over} pixels sideways")
        path = out / f"{number:02}-{name}-{look}.png"
        walking.page.screenshot(path=path, animations="disabled", caret="hide")
        print(path, flush=True)
    context.close()
    return walking.faults


def main() -> None:
    """Walk at each width, in light and dark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures and reports")
    parser.add_argument("--widths", default="1440,768,390")
    parser.add_argument("--chromium", type=Path, default=Path("/usr/bin/chromium"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    with told(options.chromium) as (story, browser, address):
        for width in map(int, options.widths.split(",")):
            for dark in (False, True):
                faults += walk(browser, address, story, width, dark, options.out)
    print("\n".join(faults) or "No error, and no page scrolls sideways.", flush=True)
    sys.stdout.flush()
    # Threads of the server and of the browser's driver may outlive the program and make it end as if it had failed.
    os._exit(1 if faults else 0)


if __name__ == "__main__":
    main()
