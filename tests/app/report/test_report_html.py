"""The exported HTML report in a real browser: draws without a network, fits a sheet of paper, breaks nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from app.audit.service import AuditService
from app.bootstrap import services
from app.report.service import ReportService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from coft_core.types import Span
from tests.conftest import load_tiny


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a session with a fork and a verdict."""
    folder = tmp_path_factory.mktemp("report")
    settings = Settings(database_url=f"sqlite:///{folder / 'audits.sqlite3'}", pipeline="none")
    with services(settings, loader=load_tiny) as wired:
        request = StartAudit(
            "The nurse said he would come", AuditSettings(max_new_tokens=24), (Span(15, 17, "gender"),)
        )
        view = wired[AuditService].start(request)
        list(wired[AuditService].run(view.session_id))
        wired[AuditService].fork(view.session_id, view.branch_id, 2, "x")
        wired[VerdictService].add(VerdictRequest(view.session_id, "A", "unfair", view.branch_id, 1, note="why"))
        return wired[ReportService].write(view.session_id, "html", folder)


@pytest.fixture
def opened(report: Path, browser: Browser) -> Iterator[tuple[Page, list[str], list[str]]]:
    """The page with what its console said and what it asked for."""
    said: list[str] = []
    asked: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            asked.append(request.url)

    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", note)
    page.goto(report.as_uri())
    yield page, said, asked
    context.close()


def test_charts_are_drawn_without_a_network_and_without_a_complaint(
    opened: tuple[Page, list[str], list[str]],
) -> None:
    page, said, asked = opened
    expect(page.locator(".stepschart").first).to_be_visible()
    expect(page.locator(".stepschart")).to_have_count(2)
    expect(page.locator(".heatstrip")).to_have_count(2)
    expect(page.get_by_role("heading", name="What is not claimed")).to_be_visible()
    assert said == []
    assert asked == []
