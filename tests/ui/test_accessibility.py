"""Every page, filled, in light and dark, under the rules of axe-core; and widths, and less motion.

``docs/accessibility.md`` says the same in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from app.services.views import AuditSettings, StartAudit
from app.services.views.batches import BatchRequest
from tests.ui.fakes import FakeServices, make_step
from tests.ui.fakes.batches import hiring
from tests.ui.fakes.comparisons import written

Opener = Callable[..., Page]
Filled = Callable[[Opener, FakeServices], Page]


@dataclass(frozen=True)
class Exception_:
    rule: str
    selector: str
    reason: str


EXCEPTIONS: tuple[Exception_, ...] = ()

IMPACTS = ("serious", "critical")
PROMPT = "The Muslim doctor saw her before he left"


def unfold(page: Page) -> None:
    """Open everything that can be unfolded."""
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    folds = page.locator(".label-wrap:visible:not(.open)")
    for fold in folds.all()[::-1]:
        fold.click()
    expect(folds).to_have_count(0)


def audit(visit: Opener, services: FakeServices, **options: Any) -> Page:
    services.verdicts.say("A. Lee", "fair", 1, note="from the prompt")
    services.verdicts.say("R. Osei", "unfair", 1)
    page = visit("/?session=1&branch=102", **options)
    expect(page.locator("#candidates-plot .barlayer .point").first).to_be_attached()
    expect(page.locator("#reread-lam")).to_be_enabled()
    unfold(page)
    for figure in page.locator("[data-figure]").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator("svg.main-svg").first).to_be_visible()
        figure.locator("[data-do=picture-numbers]").click()
        expect(figure.locator(".pictable table")).to_be_visible()
    page.locator("#reread-lam-number").fill("0.4")
    expect(page.locator(".differing tbody tr")).to_have_count(3)
    return page


def calibrate(visit: Opener, services: FakeServices, **options: Any) -> Page:
    page = visit("/calibrate?run=1", **options)
    expect(page.locator("#support-plot .barlayer .point").first).to_be_attached()
    path = Path(__file__).parents[2] / "assets" / "prompts" / "hiring_questions.csv"
    page.locator("#prompt-set input[type=file]").set_input_files(path)
    expect(page.locator("#parsed")).to_contain_text("hiring_questions.csv")
    unfold(page)
    return page


def compare(visit: Opener, services: FakeServices, **options: Any) -> Page:
    ids = []
    for settings in (AuditSettings(policy="vanilla"), AuditSettings(calibration_id=1)):
        session = services.audits._create(StartAudit(PROMPT, settings, None, settings.policy))
        session.branches[0].steps = [make_step(n, token, session.state) for n, token in enumerate(written(settings, 9))]
        ids.append(session.id)
    page = visit(f"/compare?sessions={ids[0]},{ids[1]}", **options)
    expect(page.locator("#cmp-summary tbody tr")).to_have_count(9)
    page.locator("[data-cmp=change]").click()
    for button in page.locator("[data-cmp=numbers]").all():
        button.click()
    expect(page.locator(".cmp-numbers:visible")).to_have_count(3)
    page.locator(".cmp-rows tbody tr").nth(1).click()
    unfold(page)
    return page


def swap(visit: Opener, services: FakeServices, **options: Any) -> Page:
    page = visit("/swap", **options)
    expect(page.locator("[data-ready]")).to_have_count(1)
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".choices")).to_be_visible()
    page.locator("[data-do=offer][data-term=Sikh]").click()
    expect(page.locator(".variants > li")).to_have_count(2)
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("[data-do=run]").click()
    expect(page.locator("#swap-plot .main-svg").first).to_be_visible()
    unfold(page)
    return page


def new_batch(visit: Opener, services: FakeServices, **options: Any) -> Page:
    services.batches.add(BatchRequest("First"), hiring(4), "x.csv", finished=True)
    page = visit("/batches", **options)
    expect(page.locator("#past li")).to_have_count(1)
    page.get_by_role("button", name="Hiring questions, by race").click()
    expect(page.locator("#preview li")).to_have_count(12)
    unfold(page)
    return page


def batch(visit: Opener, services: FakeServices, **options: Any) -> Page:
    request = BatchRequest("Hiring, spring", AuditSettings(calibration_id=1))
    number = services.batches.add(request, hiring(24), "hiring.csv", finished=True)
    page = visit(f"/batches?batch={number}&selected=Yes&other=No", **options)
    expect(page.locator(".impact tbody tr")).to_have_count(4)
    expect(page.locator("#totals-plot .js-plotly-plot")).to_be_visible()
    unfold(page)
    return page


def sessions(visit: Opener, services: FakeServices, **options: Any) -> Page:
    page = visit("/sessions", **options)
    expect(page.locator("#sessions tbody tr")).to_have_count(2)
    page.get_by_role("checkbox", name="Choose Nurse handover", exact=True).check()
    expect(page.get_by_role("toolbar")).to_be_visible()
    unfold(page)
    return page


def review(visit: Opener, services: FakeServices, **options: Any) -> Page:
    for step in (1, 3, 7):
        services.verdicts.say("A. Lee", "fair", step, note="from the prompt")
        services.verdicts.say("R. Osei", "unfair" if step == 3 else "fair", step)
    page = visit("/review", **options)
    page.evaluate("localStorage.setItem('coft-reviewer', 'R. Osei')")
    page.goto(f"{page.url.split('?')[0]}?session=1")
    expect(page.locator(".named")).to_have_text("You are R. Osei.")
    expect(page.locator(".targets tbody tr:visible")).to_have_count(3)
    expect(page.locator(".log tbody tr")).to_have_count(6)
    expect(page.locator(".agree-result")).to_be_visible()
    unfold(page)
    return page


def lists(visit: Opener, services: FakeServices, **options: Any) -> Page:
    page = visit("/lists", **options)
    expect(page.locator("#lists")).to_contain_text("No word list yet")
    content = b"term,family,action\nrounds,race,mask\nnurse,,keep\n"
    page.locator("#list-upload input[type=file]").set_input_files(
        {"name": "ward.csv", "mimeType": "text/csv", "buffer": content}
    )
    expect(page.locator("#parsed-list")).to_contain_text("ward.csv")
    page.locator("#save-list").click()
    expect(page.locator("#terms tbody tr")).to_have_count(2)
    unfold(page)
    return page


PAGES: dict[str, Callable[..., Page]] = {
    "audit": audit,
    "calibrate": calibrate,
    "compare": compare,
    "swap": swap,
    "new batch": new_batch,
    "batch": batch,
    "sessions": sessions,
    "review": review,
    "lists": lists,
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_rule_is_broken(visit, services: FakeServices, name: str, dark: bool):
    page = PAGES[name](visit, services, dark=dark)
    Axe().run(page)
