"""The page of decisions: a file is read, groups are compared, and past files are opened again."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.decisions.reading import FIELDS, ParsedDecisions
from app.decisions.service import DecisionRequest, DecisionService
from app.prompts.form import refused_file
from app.shared.components import hint, listing, markup, upload
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, MULTIPLE, downloaded, or_refusal, shown, shown_to
from app.shared.formal_reports import Statement
from app.shared.markup import html, laid_out
from app.shared.needs import EXPORT, LEAD, READ
from app.shared.requirements import chosen, listed
from app.shared.web import TEMPLATES, topbar
from app.shared.wiring import Services
from coft_core.messages import LANGUAGES

ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".eval")
TITLES = {
    "html": "Page to read (HTML)", "formal": "Formal report (HTML)", "pdf": "Formal report (PDF)",
    "csv": "Rates and ratios (CSV)", "rows": "Rows (CSV)", "json": "Everything (JSON)",
    "bundle": "Signed evidence bundle",
}  # fmt: skip
HELP = {
    "outcome": "what was answered; required", "group": "whom the row is about; required",
    "pair": "rows that differ only in the group", "variant": "the name or the wording", "prompt": "the text",
}  # fmt: skip
NONE = [("none", "")]
NOTHING = '<p class="sub">Choose a file below. The result for its groups appears here.</p>'


class DecisionHandlers:
    """What the page asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the service, and a folder for downloads that lives as long as the page."""
        self._decisions = services[DecisionService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-decisions-")

    @shown_to(READ)
    def parse(self, path: str | None) -> list[Any]:
        """Read a file, each field from the column of its usual name."""
        return self._parsed(path, None)

    @shown_to(READ)
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        return self._parsed(path, dict(zip(FIELDS, columns, strict=True)))

    @shown
    def add(self, path: str | None, *values: Any) -> list[Any]:
        """Compare the groups of the file, and keep it."""
        if path is None:
            raise ServiceError("No file is chosen; upload one first.")
        columns, (selected, other, model, small, accept, name) = values[: len(FIELDS)], values[len(FIELDS) :]
        request = DecisionRequest(
            selected=selected or "", other=other or "", model=model or "", exclude_small=bool(small),
            accept_errors=bool(accept), name=name or "",
        )  # fmt: skip
        parsed = self._decisions.parse(Path(path), request, dict(zip(FIELDS, columns, strict=True)))
        return self._shown(self._decisions.add(parsed, request).id)

    @shown_to(READ)
    def opened(self, request: gr.Request) -> list[Any]:
        """All runs, and the one that the address names."""
        asked = str(request.query_params.get("run", ""))
        known = {str(run.id): run.id for run in self._decisions.list()}
        return self._shown(known.get(asked))

    @shown_to(READ)
    def show(self, event: gr.EventData) -> list[Any]:
        """Show another run."""
        return self._shown(int(event.id))

    @shown_to(LEAD)
    def delete(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Delete a run."""
        self._decisions.delete(int(event.id))
        return self._shown(None if shown_id == event.id else shown_id)

    @shown_to(EXPORT)
    def export(
        self, shown_id: int | None, kind: str, auditor: str, question: str, language: str, annexes: list[str]
    ) -> str:
        """Write the shown run for download."""
        if shown_id is None:
            raise ServiceError("No decisions are shown; choose some first.")
        statement = Statement(auditor or "", question or "", language, annexes=chosen(",".join(annexes or ())))
        return str(self._decisions.write(shown_id, kind, Path(self._folder.name), statement))

    def _shown(self, run_id: int | None) -> list[Any]:
        listed = laid_out("decisions/list.html", runs=self._decisions.list(), shown=run_id)
        body = (
            "" if run_id is None else html('<div class="decided-run">{{ it }}</div>', it=self._decisions.shown(run_id))
        )
        return [run_id, str(body) or NOTHING, listed, gr.Accordion(visible=run_id is not None)]

    def _parsed(self, path: str | None, columns: dict[str, str] | None) -> list[Any]:
        off = gr.Button(interactive=False)
        if path is None:
            parsed: ParsedDecisions | str = ""
        else:
            parsed = or_refusal(lambda: self._decisions.parse(Path(path), DecisionRequest(), columns))
        if isinstance(parsed, str):
            none = [gr.Dropdown(NONE, value="") for _ in FIELDS]
            return [refused_file(parsed), gr.Accordion(visible=False), *none, gr.Dropdown(visible=False),
                    gr.Checkbox(visible=False, value=False), off]  # fmt: skip
        choices = [*NONE, *((name, name) for name in parsed.columns)]
        missing = not {"outcome", "group"} <= parsed.mapping.keys()
        return [
            laid_out("decisions/parsed.html", parsed=parsed),
            gr.Accordion(visible=True, open=True) if missing else gr.Accordion(visible=True),
            *(gr.Dropdown(choices, value=parsed.mapping.get(field, "")) for field in FIELDS),
            gr.Dropdown(list(parsed.models), visible=len(parsed.models) > 1, value=None),
            gr.Checkbox(visible=bool(parsed.problems), value=False),
            gr.Button(interactive=bool(parsed.rows) and not missing),
        ]


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = DecisionHandlers(services)
    topbar(services, "decisions")
    shown_id = gr.State(None)
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Decisions</h1><p class="sub">Outcomes that another model made, without its '
            "probabilities: how often each group is selected, and how much names within a group differ.</p></div>"
        )
        result = markup(NOTHING, "decided")
        fold, export, statement = _downloads()
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                file, columns, others, told, compare = _form()
            with gr.Column(elem_classes=["group"], min_width=0):
                markup('<div class="bar"><h2>Past files</h2></div>')
                runs = listing("runs", "show", "delete")
    download = gr.DownloadButton("Report", elem_id="decisions-file", elem_classes=["offscreen"])
    view = [shown_id, result, runs, fold]
    selected, other, model, small, accept, name = others
    read = [*told, *columns, model, accept, compare]
    file.change(handlers.parse, file, read, **EVENT)
    gr.on([column.input for column in columns], handlers.remap, [file, *columns], read, **LATEST)
    fields = [selected, other, model, small, accept, name]
    compared = compare.click(handlers.add, [file, *columns, *fields], view, trigger_mode="once", **EVENT)
    compared.success(None, None, None, js="() => scrollTo(0, 0)")
    app.load(handlers.opened, None, view, **EVENT)
    runs.show(handlers.show, None, view, **MULTIPLE).success(None, None, None, js="() => scrollTo(0, 0)")
    runs.delete(handlers.delete, shown_id, view, **MULTIPLE)
    downloaded(export.click(handlers.export, [shown_id, *statement], download, **EVENT), "decisions-file")


def _downloads() -> tuple[gr.Accordion, gr.Button, list[Any]]:
    with gr.Accordion("Downloads", open=False, visible=False, elem_classes=["fold"], elem_id="downloads-fold") as fold:
        with gr.Row(elem_classes=["twin"]):
            kinds = [(title, kind) for kind, title in TITLES.items()]
            kind = gr.Dropdown(kinds, value="html", label="Kind", min_width=0)
            auditor = gr.Textbox(label="Auditor", placeholder="for formal reports", max_lines=1, min_width=0)
            question = gr.Textbox(label="Question", placeholder="for formal reports", max_lines=1, min_width=0)
            language = gr.Dropdown([(name, key) for key, name in LANGUAGES.items()], value="en", label="Language",
                                   min_width=0)  # fmt: skip
        maps = [(annex["title"]["en"], name) for name, annex in listed()["annexes"].items()]
        annexes = gr.Dropdown(maps, multiselect=True, label="Further annexes of formal reports (no legal advice)")
        with gr.Row(elem_classes=["go"]):
            export = gr.Button("Download", elem_id="download-decisions")
    return fold, export, [kind, auditor, question, language, annexes]


def _form() -> tuple[gr.File, Sequence[gr.Dropdown], list[Any], list[Any], gr.Button]:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>New file</h2><span class="hint">CSV, JSONL, JSON or Inspect log</span></div>')
        file = upload("Decisions", "decisions-upload", ENDINGS)
        hint(
            "A row for each outcome. Logs of Inspect, samples of lm-eval and results of promptfoo are read as they are."
        )
        with gr.Row(elem_classes=["templates"]):
            markup('<span class="hint">Or start from a sample, which is made up:</span>')
            gr.DownloadButton("CSV", str(TEMPLATES / "outcomes.csv"), size="sm")
        parsed = markup("", "parsed-decisions")
        with gr.Accordion("Columns", open=False, visible=False, elem_classes=["fold"], elem_id="columns") as fold:
            with gr.Row(elem_classes=["columns-grid"]):
                columns = [gr.Dropdown(NONE, value="", label=name, min_width=0) for name in FIELDS]
            meant = "".join(f'<div><dt class="mono">{name}</dt><dd>{text}</dd></div>' for name, text in HELP.items())
            markup(f'<dl class="finger fields">{meant}</dl>')
        model = gr.Dropdown([], label="Model", visible=False, elem_id="decisions-model")
        with gr.Row(elem_classes=["twin"]):
            selected = gr.Textbox(label="Selected", placeholder="such as invite", max_lines=1, min_width=0,
                                  elem_id="selected")  # fmt: skip
            other = gr.Textbox(label="Not selected", placeholder="everything else", max_lines=1, min_width=0)
        hint("The word or phrase in an outcome that means selected. Yes and no, true and false, 1 and 0 need none.")
        small = gr.Checkbox(False, label="Leave groups below 2 % out of the ratios")
        name = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1)
        accept = gr.Checkbox(False, label="Go on with the good rows", visible=False, elem_id="accept")
        with gr.Row(elem_classes=["go"]):
            compare = gr.Button("Compare groups", variant="primary", interactive=False, elem_id="compare-groups")
    return file, columns, [selected, other, model, small, accept, name], [parsed, fold], compare
