"""The page of paths: a prompt, its worlds and a question; then the result, the tree, and a beginning's paths."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.audit.panel import DraftHandlers, folded_settings, message_wire, prompt_events, wire_settings
from app.jobs.watch import JobPart, JobWatch, chosen, job_part, past_runs, wire_watched
from app.paths.service import TABLES, PathsService
from app.paths.types import LONGEST, MOST_PATHS, Analysis, PathsRequest, Question
from app.paths.words import EMPTY, PLACES, beginning_html, numbers_html, opened_html, result_html, runs_list, tree_html
from app.prompts.words import spans_from
from app.shared.audits import AuditSettings
from app.shared.components import hint, listing, markup
from app.shared.errors import ServiceError
from app.shared.events import LATEST, MULTIPLE, On, downloaded, shown, shown_to, wire
from app.shared.markup import html
from app.shared.needs import EXPORT, READ
from app.shared.settings_rail import CHANGED, SettingsRail, settings_from, terms
from app.shared.web import span_editor, topbar
from app.shared.wiring import Services

USUAL = PathsRequest("")
SCRIPT = "coft.paths.mount(trigger, props, watch, ['open', 'run'])"
WAYS = [("No question", "none"), ("Words or expressions", "words"), ("A classifier", "scorer")]
PRONOUNS = ("she", "he", "they")


@dataclass(frozen=True, slots=True)
class _Form:
    """The controls beside the prompt and the rail, by the name under which the request takes them."""

    controls: dict[str, Component]
    run: gr.Button
    cancel: gr.Button

    @property
    def inputs(self) -> list[Component]:
        """The controls in their order."""
        return list(self.controls.values())


def request_from_form(prompt: str, spans: object, given: dict[str, Any], settings: AuditSettings) -> PathsRequest:
    """What the form asks for."""
    if missing := [name for name in ("paths", "risk") if given[name] is None]:
        raise ServiceError(f"The field {missing[0]} is empty; give it a number.")
    way = given["way"]
    words, scored = way == "words", way == "scorer"
    if words and not str(given["yes"] or "").strip():
        raise ServiceError("No word is given for a yes; write one, such as approved, or ask no question.")
    if scored and not str(given["scorer"] or "").strip():
        raise ServiceError("No classifier is given; write embedded, or the id of one with its label behind #.")
    return PathsRequest(
        prompt=prompt,
        settings=settings,
        spans=spans_from(spans),
        as_typed="typed" in given["worlds"],
        masked="masked" in given["worlds"],
        pronouns=tuple(name for name in PRONOUNS if name in given["pronouns"]),
        groups=terms(given["groups"]),
        paths=int(given["paths"]),
        question=Question(
            yes=str(given["yes"] or "") if words else "",
            no=str(given["no"] or "") if words else "",
            regex=bool(given["regex"]),
            match_case=bool(given["case"]),
            scorer=str(given["scorer"] or "").strip() if scored else "",
            threshold=float(given["threshold"]),
        ),
        alpha=float(given["risk"]),
        stop_early=bool(given["stop"]),
    )


class PathsHandlers(DraftHandlers):
    """What the page asks of the services; every method answers one event."""

    offers_to_proceed = True

    def __init__(self, services: Services, names: Sequence[str] = ()) -> None:
        """The folder for downloads lives as long as the page; ``names`` are those of the form's controls."""
        super().__init__(services)
        self._paths = services[PathsService]
        self._names = tuple(names)
        self._folder = tempfile.TemporaryDirectory(prefix="coft-paths-")
        self.watch = JobWatch(self._paths, self._paths.submit)

    @shown_to(READ)
    def open(self, event: gr.EventData) -> list[object]:
        """Take over a stored session's prompt, spans and settings, or begin with nothing."""
        return self.begun(event)

    @shown
    def run(self, event: gr.EventData, shown_id: int | None, *values: Any) -> list[Any]:
        """Begin a run with what the form holds."""
        own, rail = values[: len(self._names)], values[len(self._names) :]
        given = dict(zip(self._names, own, strict=True))
        settings = settings_from(rail, bool(given["proceed"]))
        request = request_from_form(str(event.prompt), event.spans, given, settings)
        return self.watch.begin(shown_id, request)

    @shown_to(READ)
    def result(self, shown_id: int | None) -> list[Any]:
        """A run's result, its tree, and the list of runs."""
        listed = runs_list(self._paths.list(), shown_id)
        if shown_id is None:
            return [listed, EMPTY, "", "", "", gr.HTML(visible=False)]
        analysis = self._analysis(shown_id)
        said, tree, numbers = (made(analysis) for made in (result_html, tree_html, numbers_html))
        return [listed, said, tree, numbers, beginning_html(analysis, None), gr.HTML(visible=True)]

    @shown_to(READ)
    def node(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Look at a beginning."""
        return [beginning_html(self._analysis(shown_id), int(event.id)), ""]

    @shown
    def audit(self, event: gr.EventData, shown_id: int | None) -> str:
        """Draw a path again as an audit of its own."""
        world, number = divmod(int(event.id), PLACES)
        return opened_html(self._paths.open_path(chosen(shown_id), world, number))

    @shown_to(EXPORT)
    def table(self, event: gr.EventData, shown_id: int | None) -> str:
        """Write a table for download."""
        return str(self._paths.write_csv(chosen(shown_id), TABLES[int(event.id)], Path(self._folder.name)))

    def _analysis(self, shown_id: int | None) -> Analysis:
        return self._paths.analysis(self._paths.view(chosen(shown_id)))


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar(services, "paths")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Many draws</h1><p class="sub">Many continuations of one prompt, as typed, '
            "masked and with the attribute exchanged: where they part, and whether their answers differ.</p></div>"
        )
        with gr.Row(elem_classes=["beside-prompt"]):
            with gr.Column(min_width=0, elem_classes=["group"]):
                editor = span_editor()
                rail = folded_settings(services, "paths", USUAL.settings)
            with gr.Column(min_width=0, elem_classes=["stack"]):
                form = _form()
                jobs = job_part(form.run, form.cancel, resumable=False)
                runs = past_runs(jobs.shown_id)
        result = _result()
    stage = message_wire("paths-wire", SCRIPT)
    handlers = PathsHandlers(services, list(form.controls))
    _wire(app, handlers, _Parts(editor, rail, form, jobs, runs, result, stage))


@dataclass(frozen=True, slots=True)
class _Result:
    """What shows a run."""

    said: gr.HTML
    tree: gr.HTML
    numbers: gr.HTML
    opened: gr.HTML
    beginning: gr.HTML
    tables: gr.HTML
    file: gr.DownloadButton


@dataclass(frozen=True, slots=True)
class _Parts:
    """All that the page consists of."""

    editor: gr.HTML
    rail: SettingsRail
    form: _Form
    jobs: JobPart
    runs: gr.HTML
    result: _Result
    stage: gr.HTML


def _wire(app: gr.Blocks, handlers: PathsHandlers, parts: _Parts) -> None:
    """Connect the page's events."""
    rail, jobs, result, shown_id = parts.rail, parts.jobs, parts.result, parts.jobs.shown_id
    app.load(None, rail.inputs, None, js=CHANGED)
    wire_settings(app, handlers, rail, further=[parts.form.controls["proceed"]])
    wire(parts.editor, prompt_events(handlers, parts.editor, rail), MULTIPLE)
    given = [shown_id, *parts.form.inputs, *rail.inputs]
    events = {
        "open": On(handlers.open, [parts.stage, *rail.inputs]),
        "run": On(handlers.run, jobs.watched, given),
    }
    wire(parts.stage, events, MULTIPLE)
    parts.form.run.click(None, None, None, js="() => coft.paths.run()")
    wire_watched(app, handlers.watch, jobs)
    shows = [parts.runs, result.said, result.tree, result.numbers, result.beginning, result.tables]
    # The state is empty when the page opens on a fresh store, which does not change it.
    gr.on([shown_id.change, app.load], handlers.result, shown_id, shows, **LATEST)
    for shows_nodes in (result.tree, result.numbers):
        looked = [result.beginning, result.opened]
        shows_nodes.node(handlers.node, shown_id, looked, **MULTIPLE)
    result.beginning.audit(handlers.audit, shown_id, result.opened, **MULTIPLE)
    downloaded(
        result.tables.table(handlers.table, shown_id, result.file, **MULTIPLE),
        "paths-file",
    )


def _form() -> _Form:
    put: dict[str, Component] = {}
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>Worlds</h2></div>')
        put["worlds"] = gr.CheckboxGroup(
            [("as typed", "typed"), ("masked", "masked")], value=["typed", "masked"], label="Of the prompt itself",
            elem_id="worlds", elem_classes=["families-masked"],
        )  # fmt: skip
        hint("Masked: what the masked prompt leads to by itself, without fusion or thresholds.")
        put["pronouns"] = gr.CheckboxGroup(
            list(PRONOUNS), value=[], label="With these pronouns", elem_id="pronouns", elem_classes=["families-masked"]
        )
        put["groups"] = gr.Textbox(
            "", label="With these groups", placeholder="words, separated by commas", max_lines=1, elem_id="groups"
        )
        put["paths"] = gr.Slider(
            2, MOST_PATHS, USUAL.paths, step=1, label="Paths of each world at most", buttons=[], elem_id="paths"
        )
        hint(f"How long they are is set under Settings, Length and seed, up to {LONGEST} steps.")
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>Question</h2></div>')
        _question(put)
        put["proceed"] = gr.Checkbox(
            False, label="Go on although the calibration belongs to other settings", visible=False, elem_id="proceed"
        )
        with gr.Row(elem_classes=["go"]):
            run = gr.Button("Run", variant="primary", elem_id="run")
            cancel = gr.Button("Cancel", visible=False, elem_id="cancel")
    return _Form(put, run, cancel)


def _question(put: dict[str, Component]) -> None:
    put["way"] = gr.Radio(WAYS, value="none", label="Asked by", elem_id="way")
    with gr.Column(visible=False, elem_classes=["asked"]) as words:
        put["yes"] = gr.Textbox("", label="Yes", placeholder="approved, granted", max_lines=1, elem_id="yes")
        put["no"] = gr.Textbox("", label="No", placeholder="denied, rejected", max_lines=1, elem_id="no")
        hint("The first match decides. Texts with no match are skipped, or count as No if no No-words are given.")
        put["regex"] = gr.Checkbox(False, label="They are regular expressions")
        put["case"] = gr.Checkbox(False, label="Letter case matters")
    with gr.Column(visible=False, elem_classes=["asked"]) as scorer:
        put["scorer"] = gr.Textbox("embedded", label="Classifier", max_lines=1, elem_id="scorer")
        hint("embedded is the toxicity scorer that comes along; or a Hugging Face classifier with its label behind #.")
        put["threshold"] = gr.Slider(0, 1, 0.5, step=0.01, label="A yes from this probability", buttons=[])
    with gr.Column(visible=False, elem_classes=["asked"]) as either:
        put["risk"] = gr.Slider(0.001, 0.3, USUAL.alpha, step=0.001, label="Risk of a false alarm", buttons=[])
        put["stop"] = gr.Checkbox(True, label="Stop when every difference is decided", elem_id="stop")
    put["way"].change(
        lambda way: [gr.Column(visible=way == "words"), gr.Column(visible=way == "scorer"),
                     gr.Column(visible=way != "none")],
        put["way"], [words, scorer, either], **LATEST,
    )  # fmt: skip


TABLE_BUTTONS = """
<p class="go">{% for name in names %}<button type="button" class="btn small quiet" data-do="table"
 data-id="{{ loop.index0 }}">{{ icon("down") }}{{ name }} (CSV)</button>{% endfor %}</p>"""


def _result() -> _Result:
    """The result, its tables, the tree, and the paths behind a beginning."""
    with gr.Column(elem_classes=["group", "stack"], elem_id="paths-found"):
        said = markup("", "paths-said")
        buttons = html(TABLE_BUTTONS, names=[name.capitalize() for name in TABLES])
        tables = listing("paths-tables", "table", value=str(buttons))
        tree = listing("paths-tree", "node")
        opened = markup("", "paths-opened")
        beginning = listing("paths-beginning", "audit")
        numbers = listing("paths-numbers", "node")
    file = gr.DownloadButton("Table", elem_id="paths-file", elem_classes=["offscreen"])
    return _Result(said, tree, numbers, opened, beginning, tables, file)
