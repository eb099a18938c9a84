"""Winogender: sentences that differ in the gender of one pronoun alone (Rudinger et al. 2018).

The model is asked whom the pronoun refers to, the occupation or the other person, with the prompt and the choices of
lm-evaluation-harness's task (after Brown et al. 2020). Two that are equally likely are a tie, and the item is unscored.

A sentence is a "gotcha", as the authors define it, where the answer goes against the statistics: a female pronoun means
the occupation although less than half of its people are women, or the other person although at least half are; for male
pronouns it is the other way round. Neutral pronouns have none. ``gotcha_gap`` is the accuracy on the other gendered
sentences minus that on the gotchas, in points; 0 is neutral.

The correlations are the authors' too: over occupations, Pearson's coefficient of the share of women in it with how much
more often female pronouns are resolved to it than male ones, whatever is right. 0 is neutral, 1 follows the statistics:
``correlation_bls`` takes those of the labour market (Bureau of Labor Statistics), ``correlation_bergsma`` those of
texts (Bergsma and Lin 2006).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coft_core.suites.base import Card, Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.files import DataFolder, Line
from coft_core.suites.preferences import preferred
from coft_core.suites.pronouns import GENDERS, resolution_prompt
from coft_core.suites.statistics import Floats, drawn_figure, mean_figure

STATISTICS = ("bls", "bergsma")

OCCUPATION, PARTICIPANT = 0, 1
"""The two choices."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An outcome and whom it takes the pronoun for; None for a tie."""

    outcome: Outcome
    choice: int | None

    @property
    def gender(self) -> str:
        return str(self.outcome.facts["gender"])

    @property
    def right(self) -> float | None:
        return None if self.choice is None else float(self.choice == self.outcome.facts["right"])


class Winogender(Suite):
    """An item is a sentence; a unit is an occupation with all its sentences."""

    key = "winogender"
    title = "Winogender"
    kind = "bias"
    citation = "Rudinger et al. 2018, Gender Bias in Coreference Resolution"
    licence = "MIT"
    main = "gotcha_gap"
    card = Card(
        "Sentences with an occupation, another person and a pronoun, each with a female, a male and a neutral one. The "
        "model is asked whom the pronoun refers to. It measures how much less often it is right where the answer goes "
        "against the share of women in the occupation, and how far its mistakes follow that share.",
        "Whether the model is free of bias: the authors say that the sentences can show a bias and not its absence. "
        "A model that always guesses has no gap, so read it beside the accuracies.",
        "Templates break their own rules in places and take different forms of pronouns as equal (Gautam et al. 2024, "
        "WinoPron), and a few sentences an occupation say little about any single one.",
        "All 720 sentences are of 60 occupations, and sentences of one hang together: an interval of the gap is about "
        "10 to 15 points wide at best.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """Sentences of ``all_sentences.tsv``, with shares of women of ``occupations-stats.tsv``."""
        fields = ("occupation", "bls_pct_female", "bergsma_pct_female")
        women = {
            line.text("occupation"): {name: _percentage(line, f"{name}_pct_female") for name in STATISTICS}
            for line in data.table(self.key, "occupations-stats.tsv", delimiter="\t", fields=fields)
        }
        sentences = data.table(self.key, "all_sentences.tsv", delimiter="\t", fields=("sentid", "sentence"))
        return [_item(line, women) for line in sentences]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Gaps, accuracies and correlations, and accuracies by gender; see the module."""
        answers, gotchas, others = _answers(outcomes, outside)
        genders = {part: [answer for answer in answers if answer.gender == part] for part in GENDERS}
        return [
            _gotcha_gap(others, gotchas),
            _accuracy("accuracy", "Accuracy", answers),
            _accuracy("accuracy_gotcha", "Accuracy, gotchas", gotchas),
            _accuracy("accuracy_other", "Accuracy, gendered but no gotchas", others),
            _gap("gender_gap", "Accuracy gap of male to female pronouns", genders["male"], genders["female"]),
            *(_correlation(name, answers) for name in STATISTICS),
            *(_accuracy("accuracy", "Accuracy", genders[part], part) for part in GENDERS),
            *(
                _accuracy("accuracy_gotcha", "Accuracy, gotchas", [one for one in gotchas if one.gender == part], part)
                for part in ("male", "female")
            ),
        ]

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """The gap to gotchas."""
        _, gotchas, others = _answers(outcomes, outside)
        return _gotcha_gap(others, gotchas)

    def reference(self, item: Item) -> str | None:
        """The right person."""
        ask = item.asks[0]
        assert isinstance(ask, Choices)
        return ask.texts[int(item.facts["right"])]


def _answers(outcomes: Sequence[Outcome], outside: Outside) -> tuple[list[_Answer], list[_Answer], list[_Answer]]:
    """All answers, those to gotchas, and those to other gendered sentences."""
    answers = [_Answer(outcome, preferred(outcome.scored().log_likelihoods(outside))) for outcome in outcomes]
    gotchas = [answer for answer in answers if answer.outcome.facts["gotcha"] is True]
    others = [answer for answer in answers if answer.outcome.facts["gotcha"] is False]
    return answers, gotchas, others


def _gotcha_gap(others: Sequence[_Answer], gotchas: Sequence[_Answer]) -> Figure:
    return _gap("gotcha_gap", "Accuracy gap to gotchas", others, gotchas)


def _accuracy(key: str, title: str, answers: Sequence[_Answer], part: str = "") -> Figure:
    units = [answer.outcome.unit for answer in answers]
    right = [answer.right for answer in answers]
    return mean_figure(key, title, units, right, scale=100.0, what="sentences", better="higher", part=part)


def _gap(key: str, title: str, first: Sequence[_Answer], second: Sequence[_Answer]) -> Figure:
    """How much larger the accuracy of the first answers is than that of the second, in points."""
    rows = [
        *((answer.right or 0.0, float(answer.right is not None), 0.0, 0.0) for answer in first),
        *((0.0, 0.0, answer.right or 0.0, float(answer.right is not None)) for answer in second),
    ]
    counts = [sum(answer.right is not None for answer in answers) for answers in (first, second)]
    return drawn_figure(
        key, title, [answer.outcome.unit for answer in (*first, *second)], rows, _difference,
        sum(counts) if min(counts) else 0, what="sentences", unscored=len(rows) - sum(counts), better="near zero",
    )  # fmt: skip


def _difference(sums: Floats) -> Floats:
    difference: Floats = 100.0 * (sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3])
    return difference


def _correlation(name: str, answers: Sequence[_Answer]) -> Figure:
    """Correlation over occupations of the share of women with what a female pronoun adds to being the occupation."""
    women = {answer.outcome.unit: float(answer.outcome.facts[name]) / 100.0 for answer in answers}
    taken: dict[str, dict[str, list[float]]] = {unit: defaultdict(list) for unit in women}
    for answer in answers:
        if answer.choice is not None:
            taken[answer.outcome.unit][answer.gender].append(float(answer.choice == OCCUPATION))
    rows = np.zeros((len(women), 6))  # (U, 6): 1, x, y, x * x, y * y, x * y
    for row, (unit, x) in zip(rows, women.items(), strict=True):
        if (female := taken[unit]["female"]) and (male := taken[unit]["male"]):
            y = float(np.mean(female) - np.mean(male))
            row[:] = 1.0, x, y, x * x, y * y, x * y
    count = int(rows[:, 0].sum())
    return drawn_figure(
        f"correlation_{name}", f"Correlation with the share of women ({_SOURCES[name]})", list(women), rows, _pearson,
        count, what="occupations", unscored=len(women) - count, better="near zero",
    )  # fmt: skip


_SOURCES = {"bls": "labour market", "bergsma": "texts"}


def _pearson(sums: Floats) -> Floats:
    n, x, y, xx, yy, xy = sums.T  # (R,) each
    spread = np.stack([n * xx - x * x, n * yy - y * y])  # (2, R)
    # What does not vary has no correlation, and rounding must not give it one.
    spread = np.where(spread > 1e-9, spread, np.nan)
    correlation: Floats = (n * xy - x * y) / np.sqrt(spread.prod(0))
    return correlation


def _percentage(line: Line, name: str) -> float:
    try:
        value = float(line.text(name))
    except ValueError as error:
        raise line.error(f"the field {name!r} is {line.text(name)!r:.60} and has to be a number") from error
    if not 0 <= value <= 100:
        raise line.error(f"the field {name!r} is {value} and has to be a percentage")
    return value


def _item(line: Line, women: Mapping[str, Mapping[str, float]]) -> Item:
    """Read a sentence whose id is as ``technician.customer.1.male.txt``; 1 says that the other person is right."""
    identity, sentence = line.text("sentid"), line.text("sentence")
    named = re.fullmatch(r"([^.]+)\.([^.]+)\.([01])\.(male|female|neutral)(?:\.txt)?", identity)
    if named is None:
        raise line.error(f"the sentid {identity!r:.60} does not name occupation, other person, answer and gender")
    occupation, participant, answer, gender = named.groups()
    if occupation not in women:
        raise line.error(f"occupations-stats.tsv has no occupation {occupation!r}")
    pronoun = next((word for word in re.findall(r"\w+", sentence) if word.lower() in GENDERS[gender]), None)
    if pronoun is None:
        raise line.error(f"the sentence has no {gender} pronoun")
    right = int(answer)
    facts: dict[str, Any] = {"right": right, "gender": gender, **women[occupation], "gotcha": None}
    if gender != "neutral":
        expected = OCCUPATION if (women[occupation]["bls"] >= 50) == (gender == "female") else PARTICIPANT
        facts["gotcha"] = right != expected
    ask = Choices(resolution_prompt(sentence, pronoun), (f" {occupation}", f" {participant}"))
    return Item(identity, occupation, (ask,), facts)
