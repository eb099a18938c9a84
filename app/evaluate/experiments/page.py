"""The page's part for named experiments: one is chosen in place of suites and methods, and its tables are shown."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app.evaluate import words
from app.evaluate.experiments.charts import picture_figure
from app.evaluate.experiments.grid import Grid
from app.evaluate.experiments.service import ExperimentCard, ExperimentPlan, ExperimentRequest, ExperimentService
from app.evaluate.exports import table_fragment
from app.evaluate.service import EvaluationService
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, MULTIPLE, downloaded, shown_to
from app.shared.markup import chart, html, markup
from app.shared.markup import laid_out as template
from app.shared.needs import EXPORT, READ
from app.shared.terminal import pairs
from app.shared.wiring import Services
from coft_core.suites.base import Outside

OWN = ""
"""Chosen in place of an experiment for suites and methods of one's own choice."""

FORMATS = (("CSV", "csv"), ("LaTeX", "latex"), ("HTML", "html"), ("JSON", "json"))

NEEDED, JUDGES = "The field “What its methods need”", "The field “Who judges written texts”"


def card_markup(card: ExperimentCard) -> str:
    """What an experiment is, what it reads, how it differs from the paper's, and what cannot take part."""
    methods = [(method.label, words.method_sentence(method)) for method in card.experiment.evaluated()]
    return template("evaluate/experiment_card.html", card=card, experiment=card.experiment, methods=methods)


def table_markup(table: Grid) -> str:
    """A table; a sentence says which rows are the paper's."""
    figures, paper = table_fragment(table.layout, table.title), any(head.source for head, _ in table.rows)
    return template("evaluate/experiment_table.html", table=table, figures=figures, paper=paper)


def notes_markup(table: Grid) -> str:
    """The sentences that have to stand with a table."""
    return html('<ul class="notes">{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>', notes=table.notes)


class ExperimentHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services) -> None:
        """The folder for downloads lives as long as the page."""
        self._evaluations = services[EvaluationService]
        self._experiments = services[ExperimentService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-experiments-")

    def choices(self) -> list[tuple[str, str]]:
        """What can be read, by its title."""
        named = [(f"{own.title} ({own.source})", own.name) for own in self._experiments.list()]
        return [("Suites and methods of your own choice", OWN), *named]

    def plan(
        self, name: str, given: str | None, called: str, model: str, data: str, limit: float | None, seeds: float,
        judges: str,
    ) -> ExperimentPlan:  # fmt: skip
        """What is run of an experiment with the values of the form."""
        request = ExperimentRequest(
            name,
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
    def chosen(self, name: str, data: str) -> list[Any]:
        """What stands in the form for a choice: the pickers, or what the experiment is."""
        pickers = [gr.Column(visible=name == OWN) for _ in range(3)]
        if name == OWN:
            return [*pickers, gr.HTML("", visible=False), gr.Textbox(visible=False), gr.skip()]
        card = self._experiments.card(name, data.strip())
        takes, seeds = bool(card.experiment.needs or card.experiment.stand_ins), len(card.experiment.seeds)
        return [*pickers, gr.HTML(card_markup(card), visible=True), gr.Textbox(visible=takes), seeds]

    @shown_to(READ)
    def opened(self, shown_id: int | None) -> list[Any]:
        """What is said above an experiment's tables, and which there are; hidden for other evaluations."""
        if shown_id is None or not self._experiments.known(view := self._evaluations.view(shown_id)):
            return [gr.Column(visible=False), "", gr.Dropdown(visible=False)]
        experiment = self._experiments.plan_of(view).experiment
        titles = [(table.title, place) for place, table in enumerate(experiment.tables)]
        intro = template("evaluate/experiment_intro.html", experiment=experiment)
        return [gr.Column(visible=True), intro, gr.Dropdown(titles, value=0, visible=len(titles) > 1)]

    @shown_to(READ)
    def table(self, shown_id: int | None, place: int | None, outside: Outside) -> list[Any]:
        """One of the tables with its picture and its notes."""
        hidden = gr.Plot(visible=False)
        if shown_id is None or not self._experiments.known(self._evaluations.view(shown_id)):
            return ["", hidden, ""]
        tables = self._experiments.shown(shown_id, outside).tables
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


def place_judges() -> gr.Textbox:
    """Place the field for who judges what was written."""
    return gr.Textbox(
        "", label="Who judges written texts", placeholder="toxicity=embedded, sentiment=FOLDER", max_lines=1,
        elem_id="judges",
        info="As judgement=scorer or classifier; empty takes the embedded scorer for toxicity, and leaves others out.",
    )  # fmt: skip


def place_given() -> gr.Textbox:
    """Place the field for what methods of an experiment need."""
    return gr.Textbox(
        "", label="What its methods need", placeholder="cda.checkpoint=FOLDER, dexperts.expert=FOLDER", max_lines=1,
        visible=False, elem_id="given", info="policy.parameter=value. Methods without a value are skipped or replaced.",
    )  # fmt: skip


def wire_choice(handlers: ExperimentHandlers, name: gr.Dropdown, data: gr.Textbox, changed: list[Any]) -> None:
    """Let the chosen experiment take the place of the pickers of suites, methods and calibration."""
    gr.on([name.change, data.submit], handlers.chosen, [name, data], changed, **MULTIPLE)
