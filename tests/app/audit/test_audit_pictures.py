"""Pictures of a step and of the chain: what they show, their numbers, their files, and how often they are drawn."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from app.audit.service import AuditService
from app.shared.step_words import step_card
from app.shared.wiring import Services
from tests.story.model import PROMPT
from tests.story.seed import slowed

PICTURES = ("strip", "scatter", "divergence", "margin")


def unfolded(audit, **options: object) -> Page:
    page = audit("?session=1&branch=3", **options)
    page.locator(".pictures > summary").click()
    return page


def drawn(page: Page, name: str) -> Locator:
    figure = page.locator(f"[data-figure={name}]")
    figure.scroll_into_view_if_needed()
    expect(figure.locator("svg.main-svg").first).to_be_visible()
    return figure


def table(figure: Locator) -> list[list[str]]:
    figure.locator("[data-do=picture-numbers]").click()
    expect(figure.locator(".pictable table")).to_be_visible()
    return [row.locator("th, td").all_inner_texts() for row in figure.locator("tbody tr").all()]


def test_nothing_is_drawn_before_the_section_is_unfolded(audit):
    page = audit("?session=1&branch=3")
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_attached()
    expect(page.locator(".pictures svg.main-svg")).to_have_count(0)
    page.locator(".pictures > summary").click()
    for name in PICTURES:
        drawn(page, name)


def test_each_candidate_is_one_point_marked_by_shape(audit, services: Services):
    page = unfolded(audit)
    drawn(page, "scatter")
    step = services[AuditService].view(1, 3).steps[1]
    page.wait_for_function("document.querySelector('[data-plot=scatter]').data.some((t) => t.name === 'written')")
    shown = page.evaluate(
        "document.querySelector('[data-plot=scatter]').data.filter((t) => t.mode === 'markers+text')"
        ".flatMap((t) => t.x.map((x, at) => [t.name, x, t.y[at]]))"
    )
    expected = []
    for candidate in step.candidates:
        place = [math.exp(candidate.log_p_factual), math.exp(candidate.log_p_masked)]
        name = "certified" if candidate.certified else "not certified"
        expected.append(["written" if candidate.token_id == step.token_id else name, *place])
    for point, wanted in zip(sorted(shown), sorted(expected), strict=True):
        assert point == [wanted[0], pytest.approx(wanted[1], rel=1e-3), pytest.approx(wanted[2], rel=1e-3)]
    points = page.evaluate("document.querySelectorAll('[data-plot=scatter] .scatterlayer .point').length")
    assert points == len(step.candidates)
    symbols = page.evaluate(
        "document.querySelector('[data-plot=scatter]').data.map((t) => t.marker && t.marker.symbol)"
    )
    assert {"circle", "x-thin-open"} <= {symbol for symbol in symbols if isinstance(symbol, str)}


def test_the_points_follow_the_selected_token(audit):
    page = unfolded(audit)
    figure = drawn(page, "scatter")
    page.locator(".tok[data-i='12']").click()
    figure.scroll_into_view_if_needed()
    plot = figure.locator(".plot")
    expect(plot).to_have_attribute("aria-label", re.compile(r"candidates of step 13 .*, 0 of them over the threshold"))
    page.locator(".tok[data-i='26']").click()
    figure.scroll_into_view_if_needed()
    expect(plot).to_have_attribute("aria-label", re.compile("step 27 .*without a threshold"))


def test_numbers_are_what_the_steps_say(audit, services: Services):
    page = unfolded(audit)
    steps = services[AuditService].view(1, 3).steps
    rows = table(drawn(page, "divergence"))
    assert len(rows) == len(steps)
    for row, step in zip(rows, steps, strict=True):
        said = step.diagnostics
        assert row[:2] == [str(step.index + 1), step.token.strip()]
        for text, value in zip(row[2:], (said.kl_fused_masked, said.tv_on_set, said.tv_bound), strict=True):
            assert text == "none" if value is None else float(text) == pytest.approx(value, rel=1e-3)
    ratios = [float(row[2]) for row in table(drawn(page, "strip"))]
    assert ratios == pytest.approx([step.diagnostics.log_ratio for step in steps], abs=1e-3)
    margins = [row[2] for row in table(drawn(page, "margin"))]
    assert [text == "none" for text in margins] == [step.state == "uninformative" for step in steps]
    candidates = table(drawn(page, "scatter"))
    assert {row[0] for row in candidates} == {candidate.token.strip() for candidate in steps[1].candidates}
    assert [row[4] for row in candidates if row[0] == "he"] == ["certified, written"]


def test_the_charts_of_the_page_have_their_numbers_too(audit, services: Services):
    page = audit("?session=1&branch=3")
    steps = services[AuditService].view(1, 3).steps
    page.get_by_role("button", name="Numbers: Certified-set size and threshold by step").click()
    rows = page.locator("[data-table=steps] tbody tr")
    expect(rows).to_have_count(38)
    expect(rows.nth(1).locator("th, td")).to_have_text(["2", "he", str(steps[1].set_size), re.compile(r"^0\.07")])
    expect(rows.nth(25).locator("td").last).to_have_text("none, every token passes")
    page.get_by_role("button", name="Numbers: Candidates").click()
    expect(page.locator("[data-table=candidates] tbody tr")).to_have_count(len(step_card(steps[1])["rows"]))
    page.get_by_role("button", name="Numbers: Candidates").click()
    expect(page.locator("[data-table=candidates]")).to_be_hidden()


@pytest.mark.parametrize(("kind", "beginning"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_a_picture_is_downloaded_as_an_image_that_stands_alone(audit, tmp_path, kind: str, beginning: bytes):
    page = unfolded(audit)
    figure = drawn(page, "scatter")
    figure.locator("[data-do=picture-image]").click()
    with page.expect_download() as waiting:
        page.locator(f"#menu-image [data-format={kind}]").click()
    assert waiting.value.suggested_filename == f"audit-1-3-scatter-step-2.{kind}"
    target = tmp_path / f"picture.{kind}"
    waiting.value.save_as(target)
    content = target.read_bytes()
    assert content.startswith(beginning)
    if kind == "svg":
        assert "Candidates of the selected token" in content.decode("utf-8")


def test_a_summary_in_words_stands_for_each_picture(audit, services: Services):
    page = unfolded(audit)
    kl = [step.diagnostics.kl_fused_masked for step in services[AuditService].view(1, 3).steps]
    words = {
        "strip": "Likelier with the attribute visible: steps 2, 4, 15, 34; raised by masking: step 9. Strongest: +1.12",
        "divergence": f"at most {max(kl):.3g}",
        "margin": "for 30 of 38 steps",
    }
    for name, text in words.items():
        plot = drawn(page, name).locator(".plot")
        expect(plot).to_have_attribute("role", "img")
        expect(plot).to_have_attribute("aria-label", re.compile(re.escape(text)))
    expect(page.locator("#steps-plot")).to_have_attribute("aria-label", re.compile("1 step without any"))


def test_without_a_threshold_the_margin_says_so_instead_of_an_empty_picture(audit):
    page = audit()
    page.goto(page.url.split("?")[0] + "?session=2")
    expect(page.locator(".count")).to_contain_text("0 of 64 steps")
    expect(page.locator(".pictures")).to_be_hidden()
    page.locator("[data-do=step]").click()
    page.locator(".pictures > summary").click()
    figure = page.locator("[data-figure=margin]")
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".none")).to_have_text("No step has a threshold, so there is no distance to it.")
    expect(figure.locator(".plot")).to_be_hidden()


WATCHED = """() => {
  window.draws = [];
  const react = Plotly.react;
  Plotly.react = (node, ...rest) => {
    const { running } = coft.session.state();
    window.draws.push([node.closest('[id]').id, performance.now(), running]);
    return react(node, ...rest);
  };
}"""
LEAST_MS = 240
"""What lies at least between two drawings of one chart during a run; a slow machine only makes it longer."""


def test_a_run_draws_each_chart_a_few_times_a_second_and_those_out_of_sight_not_at_all(
    audit, services: Services, monkeypatch
):
    page = audit()
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    page.locator("[data-do=step]").click()
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_attached()
    page.evaluate(WATCHED)
    slowed(monkeypatch, services, 0.02)
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    page.locator("#steps-plot").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('#steps-plot').data[0].x.length > 35")
    draws = page.evaluate("window.draws")
    during = [(name, at) for name, at, running in draws if running]
    assert {name for name, _ in during} <= {"candidates-plot", "steps-plot"}
    for chart in ("candidates-plot", "steps-plot"):
        times = [at for name, at in during if name == chart]
        assert all(later - earlier >= LEAST_MS for earlier, later in itertools.pairwise(times)), times


MARKED_AT = """(step) => [
  '#steps-plot', '[data-plot=strip]', '[data-plot=divergence]', '[data-plot=margin]',
].every((place) => document.querySelector(place).layout.shapes[0].x0 === step - 0.5)"""


def test_another_selection_marks_the_pictures_of_the_chain_and_draws_only_those_of_the_token(audit):
    page = unfolded(audit)
    for name in PICTURES:
        drawn(page, name)
    page.wait_for_function(MARKED_AT, arg=2)
    page.evaluate(WATCHED)
    page.evaluate("window.cells = document.querySelector('.overview').firstChild")
    page.locator(".tok[data-i='12']").click()
    page.wait_for_function(MARKED_AT, arg=13)
    expect(page.locator("[data-plot=scatter]")).to_have_attribute("aria-label", re.compile("candidates of step 13 "))
    redrawn = page.evaluate("window.draws.map(([name]) => name)")
    assert "candidates-plot" in redrawn
    assert "steps-plot" not in redrawn
    assert len(redrawn) == 2, redrawn
    assert page.evaluate("window.cells === document.querySelector('.overview').firstChild")
    marker = page.locator(".overview .s-now").bounding_box()
    whole = page.locator(".overview svg").bounding_box()
    assert marker
    assert whole
    assert marker["x"] - whole["x"] == pytest.approx(12 * whole["width"] / 64, abs=1)


def test_a_longer_chain_has_no_more_step_labels_than_fit(audit):
    page = audit("?session=1&branch=3")
    expect(page.locator("#steps-plot .xtick").first).to_be_attached()
    for length, labels in ((16, range(2, 3)), (128, range(16, 17)), (129, range(8, 10)), (1024, range(8, 17))):
        spacing = page.evaluate("(length) => coft.pictures.reach({ length }).dtick", length)
        assert -(-length // spacing) in labels, (length, spacing)


def test_pictures_follow_the_theme(audit):
    page = unfolded(audit, dark=True)
    drawn(page, "margin")
    page.wait_for_function(
        "document.querySelector('[data-plot=margin]').layout.template.layout.font.color === '#969aa1'"
    )
    page.get_by_role("button", name="Switch between light and dark").click()
    drawn(page, "margin")
    page.wait_for_function(
        "document.querySelector('[data-plot=margin]').layout.template.layout.font.color === '#666a70'"
    )
