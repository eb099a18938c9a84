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
from tests.app.shared.test_accessibility import faulty, unfold
from tests.story.model import PROMPT
from tests.story.seed import slowed

PICTURES = ("strip", "scatter", "divergence", "margin")
DRAWS = """() => {
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
POINTS = """() => document.querySelector('[data-plot=scatter]').data.filter((t) => t.mode === 'markers+text')
  .flatMap((t) => t.x.map((x, at) => [t.name, x, t.y[at], t.marker.symbol]))"""


def drawn(page: Page, name: str) -> Locator:
    figure = page.locator(f"[data-figure={name}]")
    figure.scroll_into_view_if_needed()
    expect(figure.locator("svg.main-svg").first).to_be_visible()
    return figure


def table(figure: Locator) -> list[list[str]]:
    figure.locator("[data-do=picture-numbers]").click()
    expect(figure.locator(".pictable table")).to_be_visible()
    return figure.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((c) => c.innerText))"
    )


def test_pictures_are_drawn_once_unfolded_show_what_the_steps_say_and_leave_as_files(
    audit, services: Services, tmp_path
):
    page = audit("?session=1&branch=3")
    steps = services[AuditService].view(1, 3).steps
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_attached()
    expect(page.locator(".pictures svg.main-svg")).to_have_count(0)
    for length, labels in ((16, range(2, 3)), (128, range(16, 17)), (129, range(8, 10)), (1024, range(8, 17))):
        spacing = page.evaluate("(length) => coft.pictures.reach({ length }).dtick", length)
        assert -(-length // spacing) in labels, (length, spacing)
    for name, count in (("steps", 38), ("candidates", len(step_card(steps[1])["rows"]))):
        page.locator(f"[data-picture={name}] [data-do=picture-numbers]").click()
        expect(page.locator(f"[data-table={name}] tbody tr")).to_have_count(count)
    page.locator(".pictures > summary").click()
    rows = table(drawn(page, "divergence"))
    for row, step in zip(rows, steps, strict=True):
        said = step.diagnostics
        assert row[:2] == [str(step.index + 1), step.token.strip()]
        for text, value in zip(row[2:], (said.kl_fused_masked, said.tv_on_set, said.tv_bound), strict=True):
            assert text == "none" if value is None else float(text) == pytest.approx(value, rel=1e-3)
    ratios = [float(row[2]) for row in table(drawn(page, "strip"))]
    assert ratios == pytest.approx([step.diagnostics.log_ratio for step in steps], abs=1e-3)
    margins = [row[2] for row in table(drawn(page, "margin"))]
    assert [text == "none" for text in margins] == [step.state == "uninformative" for step in steps]
    figure = drawn(page, "scatter")
    page.wait_for_function("document.querySelector('[data-plot=scatter]').data.some((t) => t.name === 'written')")
    shown = sorted(page.evaluate(POINTS))
    expected = sorted(
        [
            "written" if each.token_id == steps[1].token_id else "certified" if each.certified else "not certified",
            math.exp(each.log_p_factual),
            math.exp(each.log_p_masked),
        ]
        for each in steps[1].candidates
    )
    for point, wanted in zip(shown, expected, strict=True):
        assert point[:3] == [wanted[0], pytest.approx(wanted[1], rel=1e-3), pytest.approx(wanted[2], rel=1e-3)]
    assert len({str(point[3]) for point in shown}) > 1
    for name in PICTURES:
        expect(page.locator(f"[data-plot={name}]")).to_have_attribute("role", "img")
    largest = max(step.diagnostics.kl_fused_masked for step in steps)
    expect(page.locator("[data-plot=divergence]")).to_have_attribute("aria-label", re.compile(f"{largest:.3g}"))
    expect(page.locator("[data-plot=margin]")).to_have_attribute("aria-label", re.compile("for 30 of 38 steps"))
    for kind, beginning in (("png", b"\x89PNG"), ("svg", b"<svg")):
        figure.locator("[data-do=picture-image]").click()
        with page.expect_download() as waiting:
            page.locator(f"#menu-image [data-format={kind}]").click()
        assert waiting.value.suggested_filename == f"audit-1-3-scatter-step-2.{kind}"
        waiting.value.save_as(tmp_path / kind)
        assert (tmp_path / kind).read_bytes().startswith(beginning)
    unfold(page, 4)
    assert faulty(page) == []


@pytest.mark.slow
def test_a_run_draws_each_chart_a_few_times_a_second_and_those_out_of_sight_not_at_all(
    audit, services: Services, monkeypatch
):
    page = audit()
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)
    page.locator("[data-do=step]").click()
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_attached()
    page.evaluate(DRAWS)
    slowed(monkeypatch, services, 0.02)
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    page.locator("#steps-plot").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('#steps-plot').data[0].x.length > 35")
    during = [(name, at) for name, at, running in page.evaluate("window.draws") if running]
    assert {name for name, _ in during} <= {"candidates-plot", "steps-plot"}
    for chart in ("candidates-plot", "steps-plot"):
        times = [at for name, at in during if name == chart]
        assert all(later - earlier >= LEAST_MS for earlier, later in itertools.pairwise(times)), times
