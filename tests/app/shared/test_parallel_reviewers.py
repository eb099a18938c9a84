"""Three reviewers at one program at the same time: each sees her own audit, and the chain that she would get alone."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from app.audit.service import AuditService
from app.bootstrap import services as open_services
from app.settings import Settings
from app.shared.audits import AuditSettings, AuditView, StartAudit
from app.shared.policies import policy_info
from app.shared.wiring import Services
from coft_core.types import Step
from tests.browser import PATIENCE_MS, open_page, served

TYPED = " she"


@dataclass(frozen=True, slots=True)
class Reviewer:
    """What one of them audits, and under which settings."""

    prompt: str
    masked: tuple[str, ...]
    seed: int
    alpha: float = 0.1
    policy: str = "coft"
    steps: int = 24

    @property
    def settings(self) -> AuditSettings:
        """The settings as the program should get them, but for those that the page fills in itself."""
        return AuditSettings(
            seed=self.seed,
            alpha=self.alpha,
            policy=self.policy,
            max_new_tokens=self.steps,
            calibration_id=1 if policy_info(self.policy).certifies else None,
        )


NURSE = Reviewer("The nurse finished rounds and then he prepared the reports", ("he",), seed=3)
TOURIST = Reviewer("The German tourist asked where the station was", ("German",), seed=4, alpha=0.2, steps=20)
IMAM = Reviewer("The Muslim teacher opened the school and she", ("Muslim", "she"), seed=5, policy="vanilla")
REVIEWERS = (NURSE, TOURIST, IMAM)


class Gates:
    """Lets the runs of each session write so many steps and no more, so that a test decides what happens meanwhile."""

    def __init__(self, wired: Services) -> None:
        self._run = wired[AuditService].run
        self._allowed: defaultdict[int, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))

    def run(self, session_id: int, *more: object) -> Iterator[Step]:
        for made in self._run(session_id, *more):
            yield made
            assert self._allowed[session_id].acquire(timeout=PATIENCE_MS / 1000)

    def open(self, session_id: int, steps: int = 1000) -> None:
        self._allowed[session_id].release(steps)


@pytest.fixture
def pages(browser: Browser) -> Iterator[tuple[Page, ...]]:
    """A browser of her own for each."""
    contexts = [browser.new_context(viewport={"width": 1440, "height": 1000}) for _ in REVIEWERS]
    errors: list[str] = []
    opened = []
    for context in contexts:
        context.set_default_timeout(2 * PATIENCE_MS)
        page = open_page(context)
        page.on("pageerror", lambda error: errors.append(str(error)))
        opened.append(page)
    yield tuple(opened)
    for context in contexts:
        context.close()
    assert errors == []


def tokens(page: Page):
    return page.locator(".strip .tok[data-i]")


def write_down(page: Page, reviewer: Reviewer) -> None:
    """Everything up to the click on Start."""
    expect(page.locator("[data-do=go]")).to_be_enabled()
    expect(page.locator(".rail .note .badge")).to_contain_text("calibrated")
    page.get_by_label("number input for Alpha").fill(str(reviewer.alpha))
    if reviewer.policy == "vanilla":
        page.get_by_label("Policy", exact=True).select_option("vanilla")
    fold = page.locator(".fold .label-wrap", has_text="Length and seed")
    fold.click()
    expect(fold).to_have_attribute("aria-expanded", "true")
    page.get_by_label("number input for Steps at most").fill(str(reviewer.steps))
    page.get_by_label("Seed", exact=True).fill(str(reviewer.seed))
    page.locator("#prompt").fill(reviewer.prompt)


def start(page: Page, button: str) -> int:
    """Begin the audit and wait for its first token; gives the session's number."""
    page.locator(f"[data-do={button}]").click()
    expect(tokens(page)).to_have_count(1)
    return int(page.url.split("session=")[1].split("&")[0])


def shown(token: str) -> str:
    """A token as the strip writes it."""
    return token[1:] if len(token) > 1 and token.startswith(" ") else token


def expect_own(page: Page, reviewer: Reviewer, view: AuditView, selected: int) -> None:
    """What stands on the page is this reviewer's, down to the line that says what is saved."""
    expect(page.locator("#prompt")).to_have_value(reviewer.prompt)
    expect(page.locator(".spanlist tbody .word:not(.white):not(.offer)")).to_have_text(list(reviewer.masked))
    expect(page.get_by_label("number input for Alpha")).to_have_value(str(reviewer.alpha))
    expect(page.locator(".rail")).to_have_attribute("data-policy", reviewer.policy)
    expect(page.get_by_label("Seed", exact=True)).to_have_value(str(reviewer.seed))
    expect(tokens(page).locator(".w")).to_have_text([shown(step.token) for step in view.steps])
    expect(page.locator(".strip .tok.sel")).to_have_attribute("data-i", str(selected))
    expect(page.locator("#inspector .where")).to_contain_text(f"step {selected + 1} of {len(view.steps)}")
    expect(page.locator("#saved")).to_contain_text(view.name)
    expect(page.locator("#saved")).to_contain_text("all changes saved")


def chain(view: AuditView) -> list[int]:
    return [step.token_id for step in view.steps]


@pytest.mark.slow
def test_three_reviewers_at_once_see_only_their_own_audits_and_get_the_chains_that_each_would_get_alone(
    pages: tuple[Page, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nurse, tourist, imam = pages
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'together.sqlite3'}")
    with open_services(settings, owns_store=True) as wired, served(wired) as url:
        gates = Gates(wired)
        monkeypatch.setattr(wired[AuditService], "run", gates.run)
        for page in pages:
            page.goto(url)
        for page, reviewer in zip(pages, REVIEWERS, strict=True):
            write_down(page, reviewer)
        # The first two write at the same time; one of them pauses, the other goes on, the third steps by hand.
        sessions = [start(page, button) for page, button in zip(pages, ("go", "go", "step"), strict=True)]
        assert len(set(sessions)) == 3
        for page in (nurse, tourist):
            expect(page.locator("[data-do=pause]")).to_be_enabled()
        for number in (2, 3):
            imam.locator("[data-do=step]").click()
            expect(tokens(imam)).to_have_count(number)
        nurse.locator("[data-do=pause]").click()
        gates.open(sessions[0])
        expect(nurse.locator("[data-do=pause]")).to_be_disabled()
        expect(nurse.locator("[data-do=go]")).to_be_enabled()
        assert len(wired[AuditService].view(sessions[0]).steps) < NURSE.steps
        assert wired[AuditService].running(sessions[1])
        expect(tourist.locator("[data-do=pause]")).to_be_enabled()
        gates.open(sessions[1])
        gates.open(sessions[2])
        for page in (nurse, imam):
            page.locator("[data-do=go]").click()
        for page in pages:
            expect(page.locator(".count")).to_contain_text(" · ")
        whole = [wired[AuditService].view(number) for number in sessions]

        # Each looks at another step, and one departs from her chain.
        tourist.locator(".tok[data-i='2']").click()
        nurse.locator(".tok[data-i='0']").click()
        imam.locator(".tok[data-i='1']").click()
        imam.locator("#typed").fill(TYPED)
        imam.keyboard.press("Enter")
        expect(tokens(imam)).to_have_count(2)
        expect(imam.locator("#inspector .where")).to_contain_text("you forced it")
        expect(imam.locator(".crumbs .node.on")).to_contain_text(TYPED.strip())
        now = [wired[AuditService].view(number) for number in sessions]
        assert [view.branch_id == before.branch_id for view, before in zip(now, whole, strict=True)] == [
            True, True, False,
        ]  # fmt: skip
        for page, reviewer, view, selected in zip(pages, REVIEWERS, now, (0, 2, 1), strict=True):
            expect_own(page, reviewer, view, selected)
        for page in (nurse, tourist):
            expect(page.locator(".crumbs .node")).to_have_count(0)

    with open_services(Settings(database_url=f"sqlite:///{tmp_path / 'alone.sqlite3'}"), owns_store=True) as alone:
        for reviewer, together in zip(REVIEWERS, whole, strict=True):
            wanted = replace(reviewer.settings, masked_families=together.settings.masked_families)
            assert together.settings == wanted
            view = alone[AuditService].start(StartAudit(reviewer.prompt, wanted, None))
            list(alone[AuditService].run(view.session_id))
            assert chain(alone[AuditService].view(view.session_id)) == chain(together)
        forked = alone[AuditService].fork(view.session_id, view.branch_id, 1, TYPED)
        assert chain(forked) == chain(now[2])
