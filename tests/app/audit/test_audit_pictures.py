"""Pictures of a step and of the chain: what they show, their numbers, their files, and how often they are drawn."""

from __future__ import annotations

import math
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from app.audit.service import AuditService
from app.shared.step_words import step_card
from app.shared.wiring import Services
from tests.app.shared.test_accessibility import faulty, unfold

PICTURES = ("strip", "scatter", "divergence", "margin")
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
    page.locator(".charted > summary").click()
    steps = services[AuditService].view(1, 3).steps
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_attached()
    expect(page.locator(".pictures svg.main-svg")).to_have_count(0)
    for length, labels in ((16, range(2, 3)), (128, range(16, 17)), (129, range(8, 10)), (1024, range(8, 17))):
        spacing = page.evaluate("(length) => coft.pictures.reach({ length }).dtick", length)
        assert -(-length // spacing) in labels, (length, spacing)
    page.locator(".pictures > summary").click()
    for name, count in (("steps", 38), ("candidates", len(step_card(steps[1])["rows"]))):
        page.locator(f"[data-picture={name}] [data-do=picture-numbers]").click()
        expect(page.locator(f"[data-table={name}] tbody tr")).to_have_count(count)
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
