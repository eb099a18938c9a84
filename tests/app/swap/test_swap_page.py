"""The swap page clicked through."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.shared.project_cache import in_present
from app.shared.wiring import Services
from app.swap.service import SwapService
from app.swap.types import SwapProgress, SwapRequest, SwapResult
from tests.app.shared.test_accessibility import faulty

PRONOUN = "The cook finished rounds and then he prepared the reports"
"""The story, begun with someone of no family."""


@pytest.fixture
def swap(visit, services: Services):
    """Open the swap page and wait until it listens."""

    def opener(query: str = "", **options: object) -> Page:
        page = visit(f"/swap{query}", **options)
        expect(page.locator("[data-ready]")).to_have_count(1)
        expect(page.locator("#swap-settings .label-wrap").first).to_have_attribute(
            "data-summary", "COFT, λ 0.60, α 0.1"
        )
        return page

    return opener


@pytest.fixture
def asked(services: Services, monkeypatch: pytest.MonkeyPatch) -> list[SwapRequest]:
    """The comparisons that were begun."""
    requests: list[SwapRequest] = []
    run = services[SwapService].run

    def recorded(request: SwapRequest) -> Iterator[SwapProgress | SwapResult]:
        requests.append(request)
        return run(request)

    monkeypatch.setattr(services[SwapService], "run", recorded)
    return requests


@pytest.fixture
def held(services: Services, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Comparisons do not end before this is set."""
    service, let_go = services[SwapService], threading.Event()
    run = service.run

    def until_let_go(request: SwapRequest) -> Iterator[SwapProgress | SwapResult]:
        with closing(run(request)) as stream:
            for item in stream:
                yield item
                while isinstance(item, SwapProgress) and item.decoding == "coft" and not let_go.wait(0.05):
                    service._running[in_present(item.number)].check()
                    yield item

    monkeypatch.setattr(service, "run", until_let_go)
    return let_go


def variants(page: Page):
    return page.locator(".variants > li")


def write(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    expect(page.locator(".texts")).to_have_attribute("aria-busy", "false")
    expect(page.locator(".choices")).to_be_visible()


def compare(page: Page) -> None:
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("[data-do=run]").click()
    expect(page.locator(".lead")).to_be_visible()
    expect(page.locator("#swap-plot .main-svg").first).to_be_visible()


def is_held(page: Page) -> None:
    """Run, and see how far it is."""
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("[data-do=run]").click()
    expect(page.locator(".told")).to_contain_text("%: as typed (he), COFT")


def cancel(page: Page) -> None:
    """End a run, of which nothing is shown."""
    page.locator("[data-do=cancel]").click()
    expect(page.locator(".told")).to_have_text("Cancelled. Nothing of it is kept.")
    expect(page.locator("[data-do=run]")).to_be_enabled()
    expect(page.locator(".found")).to_be_hidden()


def test_a_prompt_with_a_pronoun_is_compared_after_a_cancelled_run_and_its_numbers_are_shown_and_downloaded(
    swap, asked, held: threading.Event, tmp_path
):
    page = swap()
    write(page, PRONOUN)
    expect(variants(page)).to_have_count(2)
    expect(variants(page).first).to_contain_text("as typed (he)")
    expect(page.locator("mark.swapped.pronoun")).to_contain_text("she")
    is_held(page)
    cancel(page)
    held.set()
    compare(page)
    expect(page.locator(".lead")).to_contain_text("“she”")
    # A pronoun is the only word of its group; wordings are compared all the same.
    expect(page.locator(".gaps dt")).to_have_count(3)
    expect(page.locator(".in-groups tbody tr")).to_have_count(4)
    expect(page.locator(".heat-table")).to_have_count(4)
    expect(page.locator(".heat-table").first.locator("tbody td").nth(1)).to_have_text("0.04")
    panels = page.locator("#swap-plot .annotation-text")
    expect(panels).to_have_text(["Visible", "After fusion", "Drawn from", "Masked", "probability of token 1"])
    expect(page.locator(".numbers table")).to_be_hidden()
    page.locator(".numbers summary").click()
    expect(page.locator(".numbers tbody tr")).to_have_count(8)
    _, request = asked
    assert (request.pronouns, request.groups) == (("she", "he"), ())
    assert (request.answer_step, request.max_new_tokens) == (0, 12)
    _tables_and_pictures_are_downloaded(page, tmp_path)
    expect(page.locator(".stale")).to_be_hidden()
    page.locator("[data-pronoun=they]").check()
    expect(page.locator(".stale")).to_be_visible()
    page.locator("[data-pronoun=they]").uncheck()
    expect(page.locator(".stale")).to_be_hidden()
    _groups_are_compared_by_words_of_a_file(page, tmp_path)
    assert faulty(page) == []


def _groups_are_compared_by_words_of_a_file(page: Page, folder: Path) -> None:
    write(page, "The elderly cook finished rounds")
    page.locator(".words-of summary").click()
    file = folder / "words.csv"
    file.write_text("group,word\nthe old,elderly\nthe old,aged\nthe young,young\nthe young,youthful\n", "utf-8")
    page.locator("#swap-file-of-words").set_input_files(file)
    lists = page.locator("[data-members]")
    expect(lists).to_have_count(2)
    expect(lists.first).to_have_value("elderly, aged")
    lists.nth(1).fill("young, youthful, teenage")
    lists.nth(1).blur()
    expect(page.locator(".texts")).to_have_attribute("aria-busy", "false")
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("[data-do=run]").click()
    expect(page.locator(".gaps dt")).to_have_count(4)
    expect(page.locator(".in-groups .whole th")).to_contain_text(["the old", "the young"])
    expect(page.locator(".in-groups tbody").nth(1).locator("tr")).to_have_count(1 + 3 + 1)


def _tables_and_pictures_are_downloaded(page: Page, folder: Path) -> None:
    starts = {"Tokens (CSV)": b"step,", "Groups (CSV)": b"step,", "Picture (PNG)": b"\x89PNG", "SVG": b"<svg"}
    for name, start in starts.items():
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        waiting.value.save_as(folder / "file")
        assert (folder / "file").read_bytes().startswith(start)
