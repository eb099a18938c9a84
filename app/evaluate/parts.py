"""The parts of the page as markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.evaluate import words
from app.evaluate.coefficients import Coefficients, coefficients_laid_out
from app.evaluate.exports import table_fragment
from app.evaluate.layout import laid_out, readings_laid_out
from app.evaluate.runs import (
    EvaluationEstimate,
    EvaluationSummary,
    EvaluationView,
    KnownSuite,
    SuiteOutcomes,
    SuitePlan,
)
from app.evaluate.sources import HUB, SHIPPED
from app.evaluate.tables import Table
from app.shared.glossary import explained_titles
from app.shared.markup import laid_out as template
from coft_core.suites.base import Outcome, Scored, Written

ITEMS = 20
"""Items that are listed at once."""

EMPTY = (
    '<div class="empty"><h2>Measure a model on benchmarks</h2><p class="sub">Choose suites and methods, look at what '
    "the run will take, and start it. Every suite is read with every method; figures come with intervals, and each "
    "item opens as an audit. The phantom’s suites come with the program; the others are read from a folder with their "
    "authors’ files, or from a hub where no folder is named.</p></div>"
)


def suite_name(suite: KnownSuite) -> str:
    """A suite's title with its kind, and where it is read from if that is no folder or hub that all stand under."""
    shipped = ", with the program" if suite.source == SHIPPED else ""
    return f"{suite.title} ({suite.kind}{shipped})"


def suites_markup(suites: Sequence[KnownSuite]) -> str:
    """A method card for each suite."""
    where = {HUB: "from a hub, downloaded when first read", SHIPPED: "with the program"}
    places = {suite.key: where.get(suite.source, "in the folder") for suite in suites}
    return template("evaluate/suites.html", suites=suites, places=places)


def estimate_markup(estimate: EvaluationEstimate, suites: Sequence[KnownSuite]) -> str:
    """What a run will take, and what stands in its way."""
    return template("evaluate/estimate.html", estimate=estimate, titles={suite.key: suite.title for suite in suites})


def runs_markup(runs: Sequence[EvaluationSummary], shown: int | None) -> str:
    """All evaluations, newest first."""
    return template("evaluate/runs.html", runs=runs, shown=shown)


def head_markup(view: EvaluationView) -> str:
    """What was evaluated, how far it is, and what must be said of it."""
    notes = words.silent_sentences(view.calibrations)
    notes += list(dict.fromkeys(text for note in view.calibrations for text in note.notes))
    return template("evaluate/head.html", view=view, notes=notes)


def table_markup(table: Table, plans: Sequence[SuitePlan]) -> str:
    """The figures, how the items were read, and every sentence that has to stand with them."""
    layout = laid_out(table)
    figures = table_fragment(layout, "Figures")
    readings = table_fragment(readings_laid_out(table), "How the items were read", "readings")
    return template(
        "evaluate/figures.html",
        figures=figures,
        explained=explained_titles(head.title for head in layout.heads),
        readings=readings,
        notes=words.notes(table, plans),
        reading_notes=words.reading_notes(table),
    )


def working_markup(what: str, done: int, total: int, noun: str) -> str:
    """How far something is that takes a while."""
    return template("evaluate/working.html", what=what, done=done, total=total, noun=noun)


def coefficients_markup(found: Coefficients) -> str:
    """Coefficients of mixed-effects models, with what has to be said of them."""
    table = table_fragment(coefficients_laid_out(found), "Coefficients", "coefficients")
    return template("evaluate/coefficients.html", table=table, notes=found.notes)


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item in the list; ``place`` is its place among the outcomes of the suite and method."""

    place: int
    item: str
    answer: str
    seed: int


def items_markup(outcomes: SuiteOutcomes, search: str, title: str) -> str:
    """The first items whose id or answer holds a text."""
    wanted = search.strip().lower()
    rows = [
        ItemRow(place, outcome.item, _answer(outcome), outcome.seed) for place, outcome in enumerate(outcomes.outcomes)
    ]
    found = [row for row in rows if wanted in row.item.lower() or wanted in row.answer.lower()]
    return template("evaluate/items.html", rows=found[:ITEMS], total=len(found), title=title, method=outcomes.method)


def _answer(outcome: Outcome) -> str:
    if outcome.unread:
        return f"no answer: {outcome.unread}"
    answer = outcome.answers[0]
    if isinstance(answer, Written):
        return answer.text.strip() or "nothing was written"
    assert isinstance(answer, Scored)
    likelihoods = ", ".join(f"{likelihood.floored:.2f}" for likelihood in answer.likelihoods)
    return f"log-likelihoods {likelihoods}"
