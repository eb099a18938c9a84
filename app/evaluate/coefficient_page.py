"""The page's part for mixed-effects coefficients, which are fitted when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.events import Dependency

from app.evaluate.coefficients import CoefficientRequest, CoefficientService, coefficients_laid_out
from app.evaluate.exports import table_fragment
from app.evaluate.service import EvaluationService
from app.shared.events import EVENT, LATEST, shown_stream, shown_to
from app.shared.markup import hint, laid_out, markup
from app.shared.needs import READ, needs
from app.shared.wiring import Services
from coft_core.suites.base import Outside


class CoefficientHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services) -> None:
        """Remember what fits."""
        self._evaluations = services[EvaluationService]
        self._coefficients = services[CoefficientService]

    @shown_to(READ)
    def offered(self, shown_id: int | None, suite: str) -> list[Any]:
        """Whether the figures of a suite can be followed by coefficients; those of another suite are taken away."""
        own = () if shown_id is None else self._coefficients.suites(self._evaluations.view(shown_id))
        return [gr.Column(visible=suite in {each.key for each in own}), "", ""]

    @needs(READ)
    @shown_stream
    def fitted(self, shown_id: int, suite: str, outside: Outside) -> Iterator[list[Any]]:
        """Fit method after method, saying how far it is; the table."""
        request = CoefficientRequest(shown_id, suite, outside)
        for done, total, label in self._coefficients.fitting(request):
            yield [working(f"Fitting the model of {label}", done, total, "method"), gr.skip()]
        found = self._coefficients.coefficients(request)
        table = table_fragment(coefficients_laid_out(found), "Coefficients", "coefficients")
        yield ["", laid_out("evaluate/coefficients.html", table=table, notes=found.notes)]


def working(what: str, done: int, total: int, noun: str) -> str:
    """How far something is that takes a while."""
    return laid_out("evaluate/working.html", what=what, done=done, total=total, noun=noun)


@dataclass(frozen=True, slots=True)
class CoefficientPart:
    """Where coefficients stand."""

    group: gr.Column
    fit: gr.Button
    busy: gr.HTML
    table: gr.HTML


def place_coefficients() -> CoefficientPart:
    """Place the button and what follows it."""
    with gr.Column(visible=False, min_width=0, elem_id="coefficients-part") as group:
        with gr.Row(elem_classes=["go"]):
            fit = gr.Button("Fit mixed-effects coefficients", elem_id="fit-coefficients")
        hint("The model of the suite’s authors, with effects that differ between questions.")
        busy, table = markup("", "coefficients-busy"), markup("", "coefficients")
    return CoefficientPart(group, fit, busy, table)


def wire_coefficients(
    handlers: CoefficientHandlers,
    part: CoefficientPart,
    opened: Dependency,
    shown_id: gr.State,
    suite: gr.Dropdown,
    outside: gr.Radio,
) -> None:
    """Connect everything about coefficients; ``opened`` is the event that shows an evaluation."""
    emptied = [part.group, part.busy, part.table]
    opened.success(handlers.offered, [shown_id, suite], emptied, **LATEST)
    gr.on([suite.change, outside.change], handlers.offered, [shown_id, suite], emptied, **LATEST)
    fitting = part.fit.click(handlers.fitted, [shown_id, suite, outside], [part.busy, part.table], **EVENT)
    fitting.failure(lambda: "", None, part.busy, **EVENT)
