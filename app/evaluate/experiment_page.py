"""The page's part for named experiments: one is chosen in place of suites and methods, and its tables are shown."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app.evaluate.experiment_charts import picture_figure
from app.evaluate.experiment_files import ENDINGS
from app.evaluate.experiment_parts import card_markup, intro_markup, notes_markup, table_markup
from app.evaluate.experiment_service import ExperimentRequest, ExperimentService
from app.evaluate.experiments import ExperimentPlan
from app.evaluate.service import EvaluationService
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, MULTIPLE, downloaded, shown_to
from app.shared.markup import chart, markup, upload
from app.shared.needs import EXPORT, READ
from app.shared.terminal import pairs
from app.shared.wiring import Services
from coft_core.suites.base import Outside

OWN = ""
"""Chosen in place of an experiment for suites and methods of one's own choice."""

FORMATS = (("CSV", "csv"), ("LaTeX", "latex"), ("HTML", "html"), ("JSON", "json"))

FILE = "file"
"""Chosen in place of a named experiment for a YAML file of one's own; no shipped experiment is called so."""

NEEDED, JUDGES = "The field “What its methods need”", "The field “Who judges written texts”"


class ExperimentHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services) -> None:
        """The folder for downloads lives as long as the page."""
        self._evaluations = services[EvaluationService]
        self._experiments = services[ExperimentService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-experiments-")

    def choices(self) -> list[tuple[str, str]]:
        """What can be read, by its title."""
        named = [(f"{experiment.title} ({experiment.source})", name) for name, experiment in self._experiments.list()]
        own = ("Suites and methods of your own choice", OWN)
        return [own, *named, ("An experiment of your own, from a YAML file", FILE)]

    def plan(
        self, name: str, file: str | None, given: str | None, called: str, model: str, data: str, limit: float | None,
        seeds: float, judges: str,
    ) -> ExperimentPlan:  # fmt: skip
        """What is run of an experiment with the values of the form."""
        request = ExperimentRequest(
            _named(name, file),
            model,
            int(limit) if limit else None,
            tuple(range(int(seeds))),
            data.strip(),
            judges_from(judges),
            given=tuple((pairs(NEEDED, (given or "").strip() or None) or {}).items()),
            name=called.strip(),
        )
        return self._experiments.plan(request)

    @shown_to(READ)
    def chosen(self, name: str, file: str | None, data: str) -> list[Any]:
        """What stands in the form for a choice: the pickers, or what the experiment is."""
        own = name == OWN
        pickers = [gr.Column(visible=own), gr.Column(visible=own), gr.Column(visible=own)]
        if own or (name == FILE and not file):
            return [*pickers, gr.HTML("", visible=False), gr.Textbox(visible=False), gr.skip()]
        card = self._experiments.card(_named(name, file), data.strip())
        takes = any(entry.needs or entry.stands_in for entry in card.experiment.methods)
        seeds = len(card.experiment.run.seeds)
        return [*pickers, gr.HTML(card_markup(card), visible=True), gr.Textbox(visible=takes), seeds]

    @shown_to(READ)
    def opened(self, shown_id: int | None) -> list[Any]:
        """What is said above an experiment's tables, and which there are; hidden for other evaluations."""
        hidden = [gr.Column(visible=False), "", gr.Dropdown(visible=False)]
        if shown_id is None:
            return hidden
        view = self._evaluations.view(shown_id)
        if view.request.experiment is None:
            return hidden
        plan = self._experiments.plan_of(view)
        titles = [(table.title, place) for place, table in enumerate(plan.experiment.tables)]
        return [
            gr.Column(visible=True),
            intro_markup(plan),
            gr.Dropdown(titles, value=0, visible=len(titles) > 1),
        ]

    @shown_to(READ)
    def table(self, shown_id: int | None, place: int | None, outside: Outside) -> list[Any]:
        """One of the tables with its picture and its notes."""
        hidden = gr.Plot(visible=False)
        if shown_id is None or self._evaluations.view(shown_id).request.experiment is None:
            return ["", hidden, ""]
        tables = self._experiments.tables(shown_id, outside)
        table = tables[min(place or 0, len(tables) - 1)]
        picture = hidden if table.picture is None else gr.Plot(picture_figure(table.picture), visible=True)
        return [table_markup(table), picture, notes_markup(table)]

    @shown_to(EXPORT)
    def export(self, shown_id: int | None, outside: Outside, kind: str) -> str:
        """Write all tables for download."""
        if shown_id is None:
            raise ServiceError("No evaluation is shown; choose one from the list.")
        return str(self._experiments.write(shown_id, kind, Path(self._folder.name), outside))


def judges_from(text: str | None) -> tuple[tuple[str, str], ...]:
    """Who judges what, as the form says it."""
    return tuple((pairs(JUDGES, (text or "").strip() or None) or {}).items())


def _named(name: str, file: str | None) -> str:
    if name != FILE:
        return name
    if not file:
        raise ServiceError("No file is given; upload the experiment as a YAML file.")
    return file


@dataclass(frozen=True, slots=True)
class ExperimentPart:
    """Where the tables of an experiment stand."""

    group: gr.Column
    intro: gr.HTML
    which: gr.Dropdown
    table: gr.HTML
    picture: gr.Plot
    notes: gr.HTML
    kind: gr.Dropdown
    save: gr.Button


def place_tables() -> ExperimentPart:
    """Place the tables of an experiment."""
    with gr.Column(visible=False, min_width=0, elem_id="experiment-tables") as group:
        intro = markup("", "experiment-intro")
        which = gr.Dropdown([], label="Table", elem_id="experiment-table-of", visible=False)
        table = markup("", "experiment-table")
        picture = chart("experiment-plot", visible=False)
        notes = markup("", "experiment-notes")
        with gr.Row(elem_classes=["go"]):
            kind = gr.Dropdown(list(FORMATS), value="csv", label="Format of tables", elem_id="experiment-format")
            save = gr.Button("Save tables", size="sm", elem_id="save-tables")
    return ExperimentPart(group, intro, which, table, picture, notes, kind, save)


def wire_tables(
    handlers: ExperimentHandlers, part: ExperimentPart, shown_id: gr.State, outside: gr.Radio, opening: list[Any]
) -> None:
    """Connect everything about the tables of a shown experiment; ``opening`` are the events that show another one."""
    asked, made = [shown_id, part.which, outside], [part.table, part.picture, part.notes]
    opened = gr.on(opening, handlers.opened, shown_id, [part.group, part.intro, part.which], **LATEST)
    opened.success(handlers.table, asked, made, **LATEST)
    gr.on([part.which.change, outside.change], handlers.table, asked, made, **LATEST)
    download = gr.DownloadButton("Tables", elem_id="experiment-file", elem_classes=["offscreen"])
    written = part.save.click(handlers.export, [shown_id, outside, part.kind], download, **EVENT)
    downloaded(written, "experiment-file")


@dataclass(frozen=True, slots=True)
class ExperimentChoice:
    """What is read: an experiment or one's own choice."""

    name: gr.Dropdown
    file: gr.File
    card: gr.HTML
    given: gr.Textbox


def place_file() -> gr.File:
    """Place the field for an experiment of one's own."""
    field = upload("Experiment as a YAML file", "experiment-upload", ENDINGS)
    field.visible = False
    return field


def place_judges() -> gr.Textbox:
    """Place the field for who judges what was written."""
    return gr.Textbox(
        label="Who judges written texts", placeholder="toxicity=embedded, sentiment=FOLDER", max_lines=1,
        elem_id="judges",
        info="As judgement=scorer or classifier; empty takes the embedded scorer for toxicity, and leaves others out.",
    )  # fmt: skip


def place_given() -> gr.Textbox:
    """Place the field for what methods of an experiment need."""
    return gr.Textbox(
        label="What its methods need", placeholder="cda.checkpoint=FOLDER, dexperts.expert=FOLDER", max_lines=1,
        visible=False, elem_id="given", info="As policy.parameter=value; empty leaves out or lets stand in.",
    )  # fmt: skip


def wire_choice(
    handlers: ExperimentHandlers, choice: ExperimentChoice, data: gr.Textbox, pickers: list[gr.Column],
    seeds: gr.Slider,
) -> None:  # fmt: skip
    """Let the chosen experiment take the place of the pickers of suites, methods and calibration."""
    choice.name.change(lambda name: gr.File(visible=name == FILE), choice.name, choice.file, **MULTIPLE)
    gr.on(
        [choice.name.change, choice.file.change, data.submit],
        handlers.chosen,
        [choice.name, choice.file, data],
        [*pickers, choice.card, choice.given, seeds],
        **MULTIPLE,
    )
