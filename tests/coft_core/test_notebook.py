"""A run shown in a notebook: the whole inspector in one piece of HTML, without a script and without a network."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import coft_core as cc
from tests.records import make_step

STEPS = (
    make_step(0, " she"), make_step(1, " said"), make_step(2, "<b>x</b>", "inherited"), make_step(3, " they", "none"),
)  # fmt: skip


def run_of(*steps: cc.Step) -> cc.Run:
    return cc.Run(
        prompt="The nurse <said> that", text="".join(step.token for step in steps),
        tokens=tuple(step.token for step in steps), steps=steps, spans=(cc.Span(4, 9, "gender"),), seed=0,
        finished="length", certificate="certified", warnings=("Something to be said.",),
    )  # fmt: skip


def html_of(*steps: cc.Step) -> str:
    return cc.show(run_of(*steps))._repr_html_()


def test_a_run_is_one_piece_of_html_that_runs_nothing_and_shows_texts_as_text() -> None:
    text = html_of(*STEPS)
    assert "<script" not in text
    assert not re.findall(r"(?:src|href|action)=|url\(|@import|https?:", text)
    assert not re.findall(r"<[^>]*\son\w+=", text)
    text = html_of(*STEPS)
    assert "<b>x</b>" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "The nurse &lt;said&gt; that" in text
    assert "Something to be said." in text


def test_candidates_stand_in_their_steps_table_and_no_set_where_there_is_no_threshold() -> None:
    text = html_of(STEPS[0])
    assert text.count('<th scope="row">') == len(STEPS[0].candidates)
    for row in STEPS[0].candidates:
        figures = (row.log_p_factual, row.log_p_masked, row.log_p_fused)
        cells = "".join(rf"<td>{math.exp(value):.3f}</td>\s*" for value in figures)
        assert re.search(cells, text), row
    text = html_of(STEPS[3])
    assert "yes" not in text
    assert text.count("no set") == len(STEPS[3].candidates)
    assert "no threshold" in text


def test_outputs_share_no_names_and_say_where_there_is_nothing_to_show_or_no_end() -> None:
    view = cc.show(run_of(*STEPS))
    names = [set(re.findall(r'\b(?:id|name)="([^"]+)"', view._repr_html_())) for _ in range(2)]
    assert names[0].isdisjoint(names[1])
    assert "No token was written." in html_of()
    endless = replace(STEPS[0], diagnostics=replace(STEPS[0].diagnostics, log_ratio=math.inf))
    assert "485,165,195 times likelier" in html_of(endless)
    bare = replace(run_of(*STEPS), spans=())
    assert "is masked, so there is nothing to compare" in cc.show(bare)._repr_html_()


def test_the_token_that_the_masked_words_change_most_is_selected_and_says_how_with_both_probabilities() -> None:
    strong = replace(STEPS[2], diagnostics=replace(STEPS[2].diagnostics, log_ratio=-2.77))
    text = html_of(*STEPS[:2], strong, STEPS[3])
    assert re.findall(r'id="coft-\w+-(\d+)" checked', text) == ["3"]
    shown, masked = (f"{math.exp(value):.3f}" for value in (strong.log_p_factual, strong.log_p_masked))
    assert re.search(f"16 times less likely with “nurse” shown: {shown}, .* masked {masked}", text)


@pytest.fixture
def notebook(tmp_path: Path, browser: Browser) -> Iterator[Page]:
    """Two outputs in one page, as a notebook has them, opened from a file without a network."""
    path = tmp_path / "notebook.html"
    outputs = "".join(f'<div class="output">{html_of(*STEPS)}</div>' for _ in range(2))
    path.write_text(f'<!DOCTYPE html><meta charset="utf-8"><title>notebook</title>{outputs}', "utf-8")
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    yield page
    context.close()


def test_the_selected_token_shows_its_table_arrow_keys_stay_in_one_output_and_colours_follow_the_theme(
    notebook: Page,
) -> None:
    first, second = notebook.locator(".coft-run").nth(0), notebook.locator(".coft-run").nth(1)
    for output in (first, second):
        output.locator(".tokens .tok").first.click()
    expect(first.locator(".step-1")).to_be_visible()
    expect(first.locator(".step-2")).to_be_hidden()
    first.get_by_role("radio").nth(0).focus()
    notebook.keyboard.press("ArrowRight")
    expect(first.locator(".step-2")).to_be_visible()
    expect(first.locator(".step-1")).to_be_hidden()
    expect(second.locator(".step-1")).to_be_visible()
    second.locator(".tokens .tok").nth(2).click()
    expect(second.locator(".step-3 table")).to_be_visible()
    expect(first.locator(".step-2")).to_be_visible()
    for scheme, paper, ink in (
        ("light", "rgb(255, 255, 255)", "rgb(27, 28, 30)"),
        ("dark", "rgb(27, 28, 30)", "rgb(232, 232, 230)"),
    ):
        notebook.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(first).to_have_css("background-color", paper)
        expect(first).to_have_css("color", ink)
