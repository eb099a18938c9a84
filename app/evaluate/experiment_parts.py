"""The page's part for named experiments as markup."""

from __future__ import annotations

from app.evaluate import words
from app.evaluate.experiment_layout import ExperimentTable
from app.evaluate.experiment_service import ExperimentCard
from app.evaluate.experiments import ExperimentPlan
from app.evaluate.exports import table_fragment
from app.shared.markup import html
from app.shared.markup import laid_out as template


def card_markup(card: ExperimentCard) -> str:
    """What an experiment is, what it reads, how it differs from the paper's, and what cannot take part."""
    methods = [(method.label, words.method_sentence(method)) for method in card.experiment.evaluated()]
    return template("evaluate/experiment_card.html", card=card, experiment=card.experiment, methods=methods)


def intro_markup(plan: ExperimentPlan) -> str:
    """What is said above the tables of an experiment."""
    return template("evaluate/experiment_intro.html", experiment=plan.experiment)


def table_markup(table: ExperimentTable) -> str:
    """A table; a sentence says which rows are the paper's."""
    figures, paper = table_fragment(table.layout, table.title), any(head.source for head, _ in table.layout.lines)
    return template("evaluate/experiment_table.html", table=table, figures=figures, paper=paper)


def notes_markup(table: ExperimentTable) -> str:
    """The sentences that have to stand with a table."""
    return html('<ul class="notes">{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>', notes=table.notes)
