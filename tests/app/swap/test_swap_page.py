"""The swap page clicked through."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.project_cache import in_present
from app.shared.wiring import Services
from app.swap.service import SwapService
from app.swap.types import SwapProgress, SwapRequest, SwapResult
from tests.app.shared.test_accessibility import faulty
from tests.story.model import PROMPT
from tests.story.seed import newest

BOTH = "The Muslim doctor saw her before he left"
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


@pytest.mark.slow
def test_groups_are_offered_added_removed_and_given_pronouns_and_kept_in_their_own_tab(swap):
    page = swap(width=768, dark=True)
    expect(page.locator("[data-do=run]")).to_be_disabled()
    write(page, BOTH)
    expect(page.locator(".refusal")).not_to_be_empty()
    page.locator("[data-do=offer][data-term=Sikh]").click()
    expect(variants(page)).to_have_count(2)
    page.locator("#swap-own").fill("atheist")
    page.keyboard.press("Enter")
    expect(page.locator("#swap-own")).to_have_value("")
    expect(variants(page)).to_have_count(3)
    page.get_by_label("Pronouns that go with atheist").select_option("they")
    expect(variants(page).nth(2)).to_contain_text("atheist, they")
    expect(variants(page).nth(2).locator("mark.swapped")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("[data-do=offer][data-term=Sikh]").click()
    expect(variants(page)).to_have_count(2)
    page.locator(".spans input").first.focus()
    page.locator("#swap-answer").fill("2")
    page.reload()
    expect(page.locator("#prompt")).to_have_value(BOTH)
    expect(variants(page)).to_have_count(2)
    expect(page.locator("#swap-answer")).to_have_value("2")
    fresh = swap("?result=0123456789abcdef0123456789abcdef&token=2")
    expect(fresh.locator("#prompt")).to_have_value("")
    expect(fresh.locator(".found")).to_be_hidden()
    page.get_by_role("button", name="Remove atheist").click()
    expect(page.locator(".refusal")).not_to_be_empty()
    expect(page.locator("[data-do=run]")).to_be_disabled()


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
    assert faulty(page) == []


def _tables_and_pictures_are_downloaded(page: Page, folder: Path) -> None:
    starts = {"Tokens (CSV)": b"step,", "Distances (CSV)": b"step,", "Picture (PNG)": b"\x89PNG", "SVG": b"<svg"}
    for name, start in starts.items():
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        waiting.value.save_as(folder / "file")
        assert (folder / "file").read_bytes().startswith(start)


@pytest.mark.slow
def test_an_audit_leads_here_words_are_left_as_they_are_and_a_mismatch_is_asked_about(audit, asked):
    page = audit("?session=1")
    page.get_by_role("link", name="What if someone else?").click()
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    # the uncle is kept in that session, so that only the pronoun can be exchanged
    expect(page.locator(".spans .tickbox")).to_have_count(1)
    expect(variants(page)).to_have_count(2)
    write(page, "He saw her leave and he knew")
    expect(variants(page)).to_have_count(3)
    page.locator("[data-pronoun=they]").check()
    page.locator("[data-pronoun=she]").uncheck()
    page.locator("[data-pronoun=he]").uncheck()
    expect(variants(page)).to_have_count(2)
    expect(variants(page).nth(1)).to_contain_text("they")
    expect(page.locator(".roles")).to_contain_text("uncertain: please check")
    page.locator("[data-role]").select_option("object")
    expect(page.locator(".roles")).not_to_contain_text("uncertain")
    page.locator(".spans input").first.uncheck()
    expect(page.locator(".texts")).to_have_attribute("aria-busy", "false")
    page.locator("#swap-settings .label-wrap").first.click()
    page.get_by_label("Lambda", exact=False).first.fill("0.3")
    page.keyboard.press("Tab")
    expect(page.locator("#swap-settings .label-wrap").first).to_have_attribute("data-summary", "COFT, λ 0.30, α 0.1")
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("[data-do=run]").click()
    page.get_by_role("button", name="Proceed uncertified").click()
    expect(page.locator(".lead")).to_be_visible()
    assert [request.settings.proceed_uncertified for request in asked] == [False, True]
    assert (asked[-1].roles, asked[-1].targets) == (((7, "object"),), (7, 21))


@pytest.mark.slow
def test_another_token_is_compared_without_a_second_run_a_late_answer_is_void_and_a_chain_opens_as_an_audit(
    swap, services: Services, asked, monkeypatch
):
    service, let_go, read = services[SwapService], threading.Event(), {}
    at = service.at

    def late(number: int, answer_step: int) -> SwapResult:
        read[answer_step] = None
        if answer_step == 2:
            let_go.wait(20)
        read[answer_step] = at(number, answer_step)
        return read[answer_step]

    monkeypatch.setattr(service, "at", late)
    page = swap()
    write(page, PRONOUN)
    compare(page)
    field = page.locator("#swap-at")
    field.fill("3")
    field.press("Tab")
    expect(page.locator(".rereads")).to_contain_text("Reading the model again")
    field.fill("2")
    field.press("Tab")
    expect(page.locator(".lead")).to_contain_text("moves 13\N{NO-BREAK SPACE}%")
    let_go.set()
    expect(page.locator(".captioned")).to_contain_text("for token 2")
    field.fill("5")
    field.press("Tab")
    expect(page.locator(".captioned")).to_contain_text("for token 5")
    fifth = read[4].outcomes[0].vanilla.steps[4]
    expect(page.locator(".tok.now").first).to_contain_text(fifth.token.strip())
    assert list(read) == [2, 1, 4]
    assert len(asked) == 1
    page.get_by_role("button", name="Open as audit: COFT, she").click()
    expect(page.locator("#prompt")).to_have_value(PRONOUN.replace(" he ", " she "))
    opened = services[AuditService].view(newest(services))
    assert (opened.settings.policy, opened.settings.max_new_tokens, opened.name) == ("coft", 12, "she · COFT")


@pytest.mark.slow
def test_a_result_and_what_it_was_asked_by_come_back_on_a_reload_and_in_another_tab_without_being_computed_again(
    swap, services: Services, asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = swap()
    write(page, BOTH)
    page.locator("[data-do=offer][data-term=Sikh]").click()
    expect(variants(page)).to_have_count(2)
    page.locator("#swap-length").fill("7")
    compare(page)
    address, lead = page.url, page.locator(".lead").text_content()
    assert "result=" in address
    page.locator("#swap-at").fill("2")
    page.locator("#swap-at").press("Tab")
    expect(page.locator(".captioned")).to_contain_text("for token 2")
    second = page.locator(".lead").text_content()

    def never(*given: object) -> None:
        raise AssertionError("the model was run again")

    monkeypatch.setattr(services[SwapService], "_distributions", never)
    # As after a restart of the program, nothing is in its memory.
    services[SwapService]._kept.clear()
    page.reload()
    expect(page.locator(".lead")).to_have_text(second)
    expect(page.locator("#prompt")).to_have_value(BOTH)
    expect(variants(page)).to_have_count(2)
    expect(page.locator("#swap-length")).to_have_value("7")
    expect(page.locator(".group-chip")).to_contain_text("Sikh")
    expect(page.locator("[data-do=run]")).to_be_enabled()
    expect(page.locator(".stale")).to_be_hidden()
    other = swap(address.partition("/swap")[2])
    expect(other.locator(".lead")).to_have_text(lead)
    expect(other.locator("#prompt")).to_have_value(BOTH)
    expect(other.locator(".stale")).to_be_hidden()
    other.get_by_role("button", name="Open as audit: COFT, Sikh").click()
    expect(other.locator("#prompt")).to_have_value(BOTH.replace("Muslim", "Sikh"))
    assert len(asked) == 1
