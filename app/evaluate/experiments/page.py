"""The page's part for named experiments: one is chosen in place of suites and methods, and its tables are shown."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.evaluate import words
from app.evaluate.experiments.charts import picture_figure
from app.evaluate.experiments.figures import Experiment
from app.evaluate.experiments.grid import Grid
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.service import ExperimentCard, ExperimentRequest, ExperimentService
from app.evaluate.exports import table_fragment
from app.evaluate.runs import EvaluationRequest
from app.evaluate.service import EvaluationService
from app.shared.errors import ServiceError
from app.shared.events import shown_to
from app.shared.markup import laid_out as template
from app.shared.needs import EXPORT, READ
from app.shared.terminal import pairs
from app.shared.wiring import Services
from coft_core.suites.base import Outside

OWN = ""
"""Chosen in place of an experiment for suites and methods of one's own choice."""

NEEDED, JUDGES = "The field “What its methods need”", "The field “Who judges written texts”"


def pairs_from(field: str, text: str | None) -> tuple[tuple[str, str], ...]:
    """Names and values of a field."""
    return tuple((pairs(field, (text or "").strip() or None) or {}).items())


def card_markup(card: ExperimentCard) -> str:
    """What an experiment is, what it reads, how it differs from the paper's, and what cannot take part."""
    methods = [(method.label, words.method_sentence(method)) for method in card.experiment.evaluated()]
    return template("evaluate/experiment_card.html", card=card, experiment=card.experiment, methods=methods)


def grid_markup(grid: Grid) -> str:
    """A table; a sentence says which rows are the paper's."""
    paper = any(head.source for head, _ in grid.rows)
    return template("evaluate/experiment_table.html", table=grid, figures=table_fragment(grid.layout, grid.title),
                    paper=paper)  # fmt: skip


def notes_markup(notes: tuple[str, ...]) -> str:
    """The sentences that belong to a table."""
    return template("evaluate/notes.html", notes=notes)


class ExperimentHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services) -> None:
        """The folder for downloads lives as long as the page."""
        self._evaluations = services[EvaluationService]
        self._experiments = services[ExperimentService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-experiments-")

    def choices(self) -> list[tuple[str, str]]:
        """What can be run, by its title."""
        named = [(f"{own.title} ({own.source})", own.name) for own in EXPERIMENTS.values()]
        return [("Suites and methods of your own choice", OWN), *named]

    def request(
        self, name: str, given: str | None, called: str, model: str, data: str, limit: float | None, seeds: float,
        judges: str,
    ) -> EvaluationRequest:  # fmt: skip
        """What is run of an experiment with the values of the form."""
        return self._experiments.request(
            ExperimentRequest(
                name,
                model,
                int(limit) if limit else None,
                tuple(range(int(seeds))),
                data.strip(),
                pairs_from(JUDGES, judges),
                pairs_from(NEEDED, given),
                called.strip(),
            )
        )

    def _shown(self, shown_id: int | None) -> Experiment | None:
        return None if shown_id is None else self._experiments.experiment_of(self._evaluations.view(shown_id))

    @shown_to(READ)
    def chosen(self, name: str, data: str) -> list[Any]:
        """The form for a choice: the pickers, or what the experiment is."""
        pickers = [gr.Column(visible=name == OWN) for _ in range(3)]
        if name == OWN:
            return [*pickers, gr.HTML("", visible=False), gr.Textbox(visible=False), gr.skip()]
        card = self._experiments.card(name, data.strip())
        takes, seeds = bool(card.experiment.needs or card.experiment.stand_ins), len(card.experiment.seeds)
        return [*pickers, gr.HTML(card_markup(card), visible=True), gr.Textbox(visible=takes), seeds]

    @shown_to(READ)
    def opened(self, shown_id: int | None) -> list[Any]:
        """What is said above an experiment's tables, and which there are; hidden for other evaluations."""
        if (experiment := self._shown(shown_id)) is None:
            return [gr.Column(visible=False), "", gr.Dropdown(visible=False)]
        titles = [(table.title, place) for place, table in enumerate(experiment.tables)]
        intro = template("evaluate/experiment_intro.html", experiment=experiment)
        return [gr.Column(visible=True), intro, gr.Dropdown(titles, value=0, visible=len(titles) > 1)]

    @shown_to(READ)
    def table(self, shown_id: int | None, place: int | None, outside: Outside) -> list[Any]:
        """One of the tables with its picture and its notes."""
        hidden = gr.Plot(visible=False)
        if shown_id is None or self._shown(shown_id) is None:
            return ["", hidden, ""]
        tables = self._experiments.shown(shown_id, outside).tables
        table = tables[min(place or 0, len(tables) - 1)]
        picture = hidden if table.picture is None else gr.Plot(picture_figure(table.picture), visible=True)
        return [grid_markup(table), picture, notes_markup(table.notes)]

    @shown_to(EXPORT)
    def export(self, shown_id: int | None, outside: Outside, kind: str) -> str:
        """Write all tables for download."""
        if shown_id is None:
            raise ServiceError("No evaluation is shown; choose one from the list.")
        return str(self._experiments.write(shown_id, kind, Path(self._folder.name), outside))
