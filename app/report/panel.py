"""The menu of exports, which every page that shows a session has: its own script opens it at a button."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gradio as gr

from app.report.service import FORMAL, ReportService
from app.shared.events import MULTIPLE, downloaded, shown, told_of_failure
from app.shared.formal_reports import LANGUAGES, Statement
from app.shared.markup import place
from app.shared.wiring import Services

EXPORTS = (
    ("formal", "Formal report (HTML)", "One page with the finding, and annexes for the law. You sign it."),
    ("pdf", "Formal report (PDF)", "The same to file or to send."),
    ("html", "HTML report", "Everything to read, print or hand on: one file that needs nothing else."),
    ("csv", "CSV", "One table, one row a token. For a spreadsheet."),
    ("zip", "CSV bundle (zip)", "Steps, candidate words and the verdict log as three tables. For your own analysis."),
    ("json", "JSON", "Everything in the report as data with a fixed form. For other programs."),
    ("inspect", "Inspect log", "A sample for each branch, for Inspect's viewer. Needs the package inspect-ai."),
    ("bundle", "Evidence bundle", "The report with all that a third party needs to recompute and check it."),
    (
        "bundle-with-prompts",
        "Evidence bundle with calibration prompts",
        "The same with the prompts of its calibration, so that this can be made again. They may be confidential.",
    ),
)
"""Kinds of exports, their names, and what each is for."""


class DownloadHandlers:
    """What the menu asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the service, and a folder for reports that lives as long as the page."""
        self._reports = services[ReportService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def export(self, event: gr.EventData) -> str:
        """Write one session's report for download."""
        statement = Statement(str(event.auditor), str(event.question), str(event.language))
        return str(self._reports.write(int(event.id), str(event.kind), Path(self._folder.name), statement))


def place_downloads(services: Services) -> None:
    """Place the menu and connect it; scripts open it with ``downloads.open(button, session)``."""
    handlers = DownloadHandlers(services)
    menu = place(
        "report/downloads.html",
        "coft.downloads.mount(element, trigger, props, watch, ['export'])",
        "downloads",
        ("coft", "wire"),
        exports=EXPORTS,
        formal=FORMAL,
        languages=LANGUAGES,
    )
    file = gr.DownloadButton("Report", elem_id="report-file", elem_classes=["offscreen"])
    event = menu.export(handlers.export, None, file, **MULTIPLE)  # type: ignore[attr-defined]
    downloaded(event, "report-file", "coft.downloads.written();")
    told_of_failure(event, "download")
