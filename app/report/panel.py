"""The menu of exports, which every page that shows a session has, and the field that takes bundles of other servers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gradio as gr

from app.prompts.form import refused_file
from app.report.imports import BundleImports
from app.report.service import EXPORTS, FORMAL, INSPECT, WITH_PROMPTS, ReportService
from app.report.signing import PUBLIC_KEY_FILE, Signer
from app.shared.components import hint, markup, place, upload
from app.shared.events import LATEST, MULTIPLE, downloaded, or_refusal, shown, shown_to, told_of_failure
from app.shared.formal_reports import Statement
from app.shared.markup import html
from app.shared.needs import EXPORT
from app.shared.requirements import chosen, listed
from app.shared.results.publication import RELATIONSHIPS
from app.shared.wiring import Services
from coft_core.messages import LANGUAGES

MENU = (*FORMAL, "html", "csv", "zip", "json", INSPECT, "bundle", WITH_PROMPTS)
"""Kinds of exports in their order."""


class DownloadHandlers:
    """What the menu asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the service, and a folder for reports that lives as long as the page."""
        self._reports = services[ReportService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown_to(EXPORT)
    def export(self, event: gr.EventData) -> str:
        """Write one session's report for download."""
        statement = Statement(
            str(event.auditor), str(event.question), str(event.language), annexes=chosen(str(event.annexes))
        )
        return str(self._reports.write(int(event.id), str(event.kind), Path(self._folder.name), statement))


BUNDLES = """
<div class="bar"><h2>Evidence bundles</h2></div>
<p class="hint">This server signs what it exports. SHA-256 of its key: <span class="mono">{{ fingerprint }}</span></p>
<p class="hint"><a href="./{{ file }}" download>Public key</a></p>
<p class="hint">The bundle of another server is verified, and its session opens read-only.</p>"""
IMPORTED = """
<p role="status"><a href="./?session={{ one.session_id }}">Session {{ one.session_id }}</a>
{{ "was here already" if one.already else "is imported" }}: {{ one.checks }} checks passed. {{ one.origin }}</p>
{% if one.signature.status != "passed" %}
<p class="notice" role="alert">{% if one.signature.status == "unsigned" %}<b>Not signed.</b>{% endif %}
Anybody can have made it, because it is {{ one.signature.detail }}.</p>
{% endif %}"""


def place_imports(services: Services) -> None:
    """Place the key that bundles are signed by, and the field that takes those of other servers."""

    @shown
    def bring_in(path: str | None) -> str:
        if path is None:
            return ""
        imported = or_refusal(lambda: services[BundleImports].add(Path(path)))
        return str(refused_file(imported) if isinstance(imported, str) else html(IMPORTED, one=imported))

    with gr.Column(elem_classes=["group"], elem_id="bundles"):
        markup(str(html(BUNDLES, fingerprint=services[Signer].fingerprint, file=PUBLIC_KEY_FILE)))
        file = upload("Evidence bundle", "bundle-upload", (".zip",))
        said = markup("", "bundle-said")
    file.change(bring_in, file, said, **LATEST)


def place_publication(name: str) -> list[gr.Textbox | gr.Dropdown]:
    """Place a field for each value that a publication needs, in the order of :class:`Publication`."""
    with gr.Accordion("For publication", open=False, elem_classes=["fold"], elem_id=f"{name}-publication"):
        hint("Every Eval Ever needs organization and relationship. A Hub result needs dataset and task.")
        with gr.Row():
            organization = gr.Textbox(label="Organization", max_lines=1)
            relationship = gr.Dropdown(
                [("not stated", ""), *((own.replace("_", " "), own) for own in RELATIONSHIPS)],
                value="",
                label="Relationship to the model",
            )
        with gr.Row():
            dataset = gr.Textbox(label="Dataset on the Hub", max_lines=1, placeholder="cais/hle")
            task = gr.Textbox(label="Task on the Hub", max_lines=1, placeholder="default")
        with gr.Row():
            result = gr.Textbox(label="Result", max_lines=1, placeholder="suite/metric/method")
            source = gr.Textbox(label="Address of the source", max_lines=1)
    return [organization, relationship, dataset, task, result, source]


def place_downloads(services: Services) -> None:
    """Place the menu and connect it; scripts open it with ``downloads.open(button, session)``."""
    handlers = DownloadHandlers(services)
    menu = place(
        "report/downloads.html",
        "coft.downloads.mount(element, trigger, props, watch, ['export'])",
        "downloads",
        ("coft", "wire"),
        exports=[(kind, EXPORTS[kind].title, EXPORTS[kind].about) for kind in MENU],
        formal=FORMAL,
        languages=LANGUAGES,
        maps=[(name, annex["title"]["en"]) for name, annex in listed()["annexes"].items()],
    )
    file = gr.DownloadButton("Report", elem_id="report-file", elem_classes=["offscreen"])
    event = menu.export(handlers.export, None, file, **MULTIPLE)
    downloaded(event, "report-file", "coft.downloads.written();")
    told_of_failure(event, "download")
