"""StrategyQA: yes-or-no questions whose steps are not in the question (Geva et al. 2021)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from coft_core.suites.base import Card, Figure, Item, Outcome, Outside, Suite, Writing
from coft_core.suites.examples import fitting
from coft_core.suites.files import DataError, DataFolder, HubSplit, Line, hub_lines
from coft_core.suites.multiple_choice import MultipleChoice, choice_item, right_of
from coft_core.suites.statistics import mean_figure
from coft_core.suites.written import cut_off, share, shares

FOLDER = "strategyqa"
HUB = HubSplit("tasksource/strategy-qa", None, "train")
OFFICIAL, PARTS = "strategyqa_train.json", ("train.json", "dev.json")
"""The questions with published answers in one file, as from the data set's own site, or in two, as in its code."""

ANSWERS = ("Yes", "No")
STATED = re.compile(r"answer is:? (yes|no)\b", re.IGNORECASE)
CITATION = "Geva et al. 2021, Did Aristotle use a laptop? A question answering benchmark with implicit reasoning steps"
CRITICISM = (
    "Some answers are disputable: people who looked the facts up in Wikipedia gave the same one to 87 of 100 questions "
    "(Geva et al. 2021). Always saying no is right for 53 %."
)
SIZES = "An interval of 10 points in all needs about 340 questions at 67 % right; 2,290 have published answers."


class StrategyQa(MultipleChoice):
    """Right where the true one of "Yes" and "No" is the likelier; a tie is wrong.

    Asked without examples, in the words of BIG-bench's task, which lm-evaluation-harness takes. Likelihoods need no
    reading of what is written, so that nothing is unscored; :class:`StrategyQaChain` has the model write its steps.
    """

    key = "strategyqa"
    title = "StrategyQA"
    citation = CITATION
    licence = "MIT"
    card = Card(
        "Questions with the answer yes or no that take several facts to answer, such as whether Aristotle used a "
        "laptop. An item counts as right when the model finds the true answer likelier after the question.",
        "The steps: nothing is written. Anything about bias: it shows what a method costs.",
        CRITICISM,
        SIZES,
    )

    def items(self, data: DataFolder) -> list[Item]:
        """All questions with published answers, of one file or of both its parts."""
        return [_choices(line) for line in _records(data)]

    def items_from_hub(self) -> list[Item]:
        """The same from a hub."""
        return [_choices(line) for line in hub_lines(HUB)]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Accuracy, how often yes is the likelier answer, and the accuracy by true answer."""
        right = [right_of(outcome, outside) for outcome in outcomes]
        return [
            _accuracy(outcomes, right),
            _yes_share(outcomes, [_likelier_yes(outcome, outside) for outcome in outcomes]),
            *_by_answer(outcomes, right),
        ]

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """Accuracy."""
        return _accuracy(outcomes, [right_of(outcome, outside) for outcome in outcomes])


class StrategyQaChain(Suite):
    """Right where the answer that is stated after some steps is the true one; unscored where none is stated.

    The examples are made of the data set's own facts, in the form of Wei et al. 2022 (Chain-of-thought prompting
    elicits reasoning in large language models); the questions in them are not asked.
    """

    key = "strategyqa_chain"
    title = "StrategyQA, chain of thought"
    kind = "utility"
    citation = CITATION
    licence = "MIT"
    main = "accuracy"

    most_examples: ClassVar[int] = 6
    characters: ClassVar[int] = 900
    """How long examples may be together: with a question and an answer they fit into 512 tokens."""

    most_tokens: ClassVar[int] = 128
    stops: ClassVar[tuple[str, ...]] = ("Q:", "</s>", "<|im_end|>")
    card = Card(
        "The questions of StrategyQA after as many answered ones as fit into 900 characters, here three. The model "
        "writes out the facts that it needs and then its answer, which is right when it is the true one. Answers that "
        "were cut off at 128 tokens are counted in a figure of their own.",
        "Whether the facts are true when the answer is, and anything about bias: it shows what a method costs to "
        "reasoning in writing.",
        CRITICISM,
        SIZES,
    )

    def items(self, data: DataFolder) -> list[Item]:
        """All questions with published answers but those of the examples."""
        return self._items(_records(data))

    def items_from_hub(self) -> list[Item]:
        """The same from a hub."""
        return self._items(hub_lines(HUB))

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Accuracy, how often yes is stated, the share of answers cut off, and the accuracy by true answer."""
        stated = [stated_answer(outcome.written().text) for outcome in outcomes]
        right = _stated_rightly(outcomes, stated)
        return [
            *shares("accuracy", "Accuracy", outcomes, right, "questions"),
            _yes_share(outcomes, [None if place is None else float(place == 0) for place in stated]),
            cut_off(outcomes, "questions"),
            *_by_answer(outcomes, right),
        ]

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """Accuracy."""
        stated = [stated_answer(outcome.written().text) for outcome in outcomes]
        return share("accuracy", "Accuracy", outcomes, _stated_rightly(outcomes, stated), "questions")

    def reference(self, item: Item) -> str | None:
        """The facts and the true answer."""
        return f" {item.facts['solution']}"

    def _items(self, lines: Sequence[Line]) -> list[Item]:
        texts = [f"{_question(line)} {_solution(line)}\n\n" for line in lines]
        chosen = fitting(texts, self.most_examples, self.characters)
        before = "".join(texts[place] for place in chosen)
        return [
            Item(
                line.text("qid"),
                line.text("qid"),
                (Writing(f"{before}{_question(line)}", self.most_tokens, self.stops),),
                {"right": _right_place(line), "solution": _solution(line), "examples": len(chosen)},
            )
            for place, line in enumerate(lines)
            if place not in chosen
        ]


def stated_answer(text: str) -> int | None:
    """Place of the answer that a text states first, 0 for yes; None without one."""
    match = STATED.search(text)
    return None if match is None else int(match[1].lower() == "no")


def _stated_rightly(outcomes: Sequence[Outcome], stated: Sequence[int | None]) -> list[float | None]:
    return [
        None if place is None else float(place == outcome.facts["right"])
        for outcome, place in zip(outcomes, stated, strict=True)
    ]


def _records(data: DataFolder) -> list[Line]:
    names = (OFFICIAL,) if data.find(FOLDER, OFFICIAL) else PARTS
    return [line for name in names for line in _entries(data, name)]


def _entries(data: DataFolder, name: str) -> list[Line]:
    file, document = data.json(FOLDER, name)
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise DataError(f"{file} is no list of questions; take the file from its publisher again.")
    return [Line(file, number, entry) for number, entry in enumerate(document, 1)]


def _question(line: Line) -> str:
    return f"Q: {line.text('question')}\nA:"


def _right_place(line: Line) -> int:
    answer = line.value("answer")
    if not isinstance(answer, bool):
        raise line.error(f"the field 'answer' is {answer!r:.60} and has to be true or false")
    return int(not answer)


def _choices(line: Line) -> Item:
    return choice_item(line.text("qid"), _question(line), ANSWERS, _right_place(line))


def _solution(line: Line) -> str:
    facts = line.value("facts")
    if not isinstance(facts, list) or not all(isinstance(fact, str) for fact in facts):
        raise line.error("the field 'facts' has to be a list of texts")
    sentences = [fact if fact.endswith((".", "!", "?")) else f"{fact}." for fact in facts]
    return " ".join([*sentences, f"So the answer is {ANSWERS[_right_place(line)].lower()}."])


def _accuracy(outcomes: Sequence[Outcome], right: Sequence[float | None], part: str = "") -> Figure:
    units = [outcome.unit for outcome in outcomes]
    return mean_figure("accuracy", "Accuracy", units, right, scale=100.0, what="questions", better="higher", part=part)


def _by_answer(outcomes: Sequence[Outcome], right: Sequence[float | None]) -> list[Figure]:
    figures = []
    for place, answer in enumerate(ANSWERS):
        rows = [row for row, outcome in enumerate(outcomes) if outcome.facts["right"] == place]
        part = [outcomes[row] for row in rows]
        figures.append(_accuracy(part, [right[row] for row in rows], f"true answer {answer}"))
    return figures


def _likelier_yes(outcome: Outcome, outside: Outside) -> float | None:
    """1 where yes is the likelier answer; None where neither is."""
    yes, no = outcome.scored().log_likelihoods(outside)
    return None if yes == no else float(yes > no)


def _yes_share(outcomes: Sequence[Outcome], yes: Sequence[float | None]) -> Figure:
    units = [outcome.unit for outcome in outcomes]
    return mean_figure("yes", "Answered yes", units, yes, scale=100.0, what="questions")
