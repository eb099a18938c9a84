"""The page of word lists: uploaded, looked at, downloaded and deleted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.lists.service import UserListService
from app.prompts.form import refused_file
from app.prompts.words import family_choices
from app.shared.audits import FAMILY_NAMES
from app.shared.components import listing, markup, upload
from app.shared.errors import ServiceError
from app.shared.events import EVENT, MULTIPLE, downloaded, or_refusal, shown, shown_to
from app.shared.markup import laid_out
from app.shared.needs import EXPORT, READ
from app.shared.web import TEMPLATES, topbar
from app.shared.wiring import Services

SHOWN_ERRORS = 12
SHOWN_TERMS = 500
EMPTY = laid_out("lists/empty.html")
ACTIONS = [("mask: always sensitive", "mask"), ("keep: always visible", "keep")]


class ListHandlers:
    """What the page asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for downloads that lives as long as the page."""
        self._lists = services[UserListService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-lists-")

    @shown_to(READ)
    def parse(self, path: str | None, action: str, family: str) -> list[Any]:
        """Read an uploaded word list."""
        if path is None:
            return ["", gr.Button(interactive=False)]
        parsed = or_refusal(lambda: self._lists.parse(Path(path), Path(path).name, action, family))
        if isinstance(parsed, str):
            return [refused_file(parsed), gr.Button(interactive=False)]
        kept = sum(term.keep for _, term in parsed.terms)
        told = laid_out("lists/parsed_list.html", parsed=parsed, kept=kept, shown=SHOWN_ERRORS)
        return [told, gr.Button(interactive=bool(parsed.terms) and not parsed.errors)]

    @shown
    def add(self, path: str | None, name: str, action: str, family: str, replace: bool) -> list[Any]:
        """Store the uploaded word list and show it."""
        if path is None:
            raise ServiceError("No file is chosen; upload a CSV or TXT word list first.")
        parsed = self._lists.parse(Path(path), Path(path).name, action, family)
        view = self._lists.add(name.strip() or Path(path).stem, parsed, replace)
        return [view.summary.id, *self._shown(view.summary.id), None, ""]

    @shown_to(READ)
    def opened(self, request: gr.Request) -> list[Any]:
        """All word lists, and the terms of the one that the address names, else of the first."""
        known = [str(item.id) for item in self._lists.list()]
        asked = str(request.query_params.get("list", ""))
        return self._opened(int(asked) if asked in known else None)

    @shown_to(READ)
    def show(self, event: gr.EventData) -> list[Any]:
        """Show another list."""
        return [int(event.id), *self._shown(int(event.id))]

    @shown
    def delete(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Delete a list; when it was shown, show the first of the others."""
        self._lists.delete(int(event.id))
        return self._opened() if shown_id == event.id else [shown_id, *self._shown(shown_id)]

    @shown_to(EXPORT)
    def export(self, event: gr.EventData) -> str:
        """Write one list for download."""
        return str(self._lists.write_csv(int(event.id), Path(self._folder.name)))

    def _opened(self, asked: int | None = None) -> list[Any]:
        first = next((item.id for item in self._lists.list()), None) if asked is None else asked
        return [first, *self._shown(first)]

    def _shown(self, shown_id: int | None) -> list[str]:
        listed = laid_out("lists/stored_lists.html", lists=self._lists.list(), shown=shown_id)
        if shown_id is None:
            return [listed, EMPTY]
        view = self._lists.view(shown_id)
        return [listed, laid_out("lists/shown_list.html", view=view, shown=SHOWN_TERMS, families=FAMILY_NAMES)]


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = ListHandlers(services)
    topbar(services, "lists")
    shown_id = gr.State(None)
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Word lists</h1><p class="sub">Your own terms: some always sensitive, some '
            "always visible. An audit or a calibration uses one list or none.</p></div>"
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                file, form, parsed, save = _form()
                listed = _stored()
            with gr.Column(elem_classes=["stack"], min_width=0):
                terms = markup(EMPTY, "terms")
    download = gr.DownloadButton("List", elem_id="list-file", elem_classes=["offscreen"])
    name, action, family, replace = form
    view = [shown_id, listed, terms]
    gr.on([file.change, action.change, family.change], handlers.parse, [file, action, family], [parsed, save], **EVENT)
    save.click(handlers.add, [file, name, action, family, replace], [*view, file, name], **EVENT)
    app.load(handlers.opened, None, view, **EVENT)
    listed.show(handlers.show, None, view, **MULTIPLE)
    listed.delete(handlers.delete, shown_id, view, **MULTIPLE)
    downloaded(listed.export(handlers.export, None, download, **MULTIPLE), "list-file")


def _form() -> tuple[gr.File, list[Any], gr.HTML, gr.Button]:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>New list</h2><span class="hint">CSV or TXT, UTF-8</span></div>')
        file = upload("Word list", "list-upload", (".csv", ".txt"))
        markup(
            '<p class="hint">CSV: a column <span class="mono">term</span>; optional <span class="mono">family</span> '
            'and <span class="mono">action</span> (mask or keep). TXT: one term a line. Whole words are matched, in '
            "any letter case, the longest first. Start from a template:</p>"
        )
        with gr.Row(elem_classes=["templates"]):
            gr.DownloadButton("CSV", str(TEMPLATES / "word_list.csv"), size="sm")
        name = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1, elem_id="list-name")
        with gr.Row(elem_classes=["twin"]):
            action = gr.Dropdown(ACTIONS, value="mask", label="Terms without an action", min_width=0)
            family = gr.Dropdown(family_choices(), value="other", label="Terms without a family", min_width=0)
        replace = gr.Checkbox(False, label="Replace the list of this name", elem_id="replace")
        parsed = markup("", "parsed-list")
        with gr.Row(elem_classes=["go"]):
            save = gr.Button("Save", variant="primary", interactive=False, elem_id="save-list")
    return file, [name, action, family, replace], parsed, save


def _stored() -> gr.HTML:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>Lists</h2></div>')
        return listing("lists", "show", "export", "delete")
