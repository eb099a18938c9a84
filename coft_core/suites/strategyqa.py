"""StrategyQA: yes-or-no questions whose steps are not in the question (Geva et al. 2021)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from pydantic import StrictBool

from coft_core.suites.base import Figure, Item, Outcome, Outside, Suite, Writing
from coft_core.suites.files import DataFolder, HubSplit, Line, Row, entries
from coft_core.suites.multiple_choice import MultipleChoice, choice_item, right_of
from coft_core.suites.statistics import Sample, Value
from coft_core.suites.written import cut_off, fitting, shares

HUB = HubSplit("tasksource/strategy-qa", None, "train")
OFFICIAL, PARTS = "strategyqa_train.json", ("train.json", "dev.json")
"""The questions with published answers in one file, as from the data set's own site, or in two, as in its code."""

ANSWERS = ("Yes", "No")
STATED = re.compile(r"answer is:? (yes|no)\b", re.IGNORECASE)


class Question(Row):
    """A question with its published answer."""

    qid: str
    question: str
    answer: StrictBool

    @property
    def asked(self) -> str:
        """In the words of BIG-bench's task, which lm-evaluation-harness takes."""
        return f"Q: {self.question}\nA:"


class Reasoned(Question):
    """A question with the facts that lead to its answer."""

    facts: list[str]

    @property
    def solution(self) -> str:
        """The facts and the answer, in the form of Wei et al. 2022."""
        sentences = [fact if fact.endswith((".", "!", "?")) else f"{fact}." for fact in self.facts]
        return " ".join([*sentences, f"So the answer is {'yes' if self.answer else 'no'}."])


class StrategyQa(MultipleChoice):
    """Right where the true one of "Yes" and "No" is the likelier; a tie is wrong.

    Asked without examples. Likelihoods need no reading of what is written, so that nothing is unscored;
    :class:`StrategyQaChain` has the model write its steps.
    """

    key = "strategyqa"
    hub = HUB

    def items(self, data: DataFolder) -> list[Item]:
        """All questions with published answers, of one file or of both its parts."""
        return self.made(_records(data))

    def item(self, line: Line) -> Item:
        """A question with its two answers."""
        row = line.read(Question)
        return choice_item(row.qid, row.asked, ANSWERS, int(not row.answer))

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """Accuracy, how often yes is the likelier answer, and the accuracy by true answer."""
        sample = Sample.of(outcomes, lambda outcome: outcome.scored().log_likelihoods(outside), self.counted)
        yield sample.share("accuracy", "Accuracy", right_of, "higher")
        yield sample.share("yes", "Answered yes", _likelier_yes)
        for part in _by_answer(sample):
            yield part.share("accuracy", "Accuracy", right_of, "higher")


class StrategyQaChain(Suite):
    """Right where the answer that is stated after some steps is the true one; unscored where none is stated.

    The examples are made of the data set's own facts (Wei et al. 2022, Chain-of-thought prompting elicits reasoning in
    large language models); the questions in them are not asked.
    """

    key = "strategyqa_chain"
    kind = "utility"
    main = "accuracy"
    folder = "strategyqa"
    hub = HUB

    most_examples: ClassVar[int] = 6
    characters: ClassVar[int] = 900
    """How long examples may be together: with a question and an answer they fit into 512 tokens."""

    most_tokens: ClassVar[int] = 128
    stops: ClassVar[tuple[str, ...]] = ("Q:", "</s>", "<|im_end|>")

    def items(self, data: DataFolder) -> list[Item]:
        """All questions with published answers but those of the examples."""
        return self.made(_records(data))

    def made(self, lines: Iterable[Line]) -> list[Item]:
        """Each question behind the examples, which are drawn from the questions themselves."""
        rows = [line.read(Reasoned) for line in lines]
        texts = [f"{row.asked} {row.solution}\n\n" for row in rows]
        chosen = fitting(texts, self.most_examples, self.characters)
        before = "".join(texts[place] for place in chosen)
        return [
            Item(
                row.qid,
                row.qid,
                (Writing(f"{before}{row.asked}", self.most_tokens, self.stops),),
                {"right": int(not row.answer), "solution": row.solution, "examples": len(chosen)},
            )
            for place, row in enumerate(rows)
            if place not in chosen
        ]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """Accuracy, how often yes is stated, the share of answers cut off, and the accuracy by true answer."""
        sample = Sample.of(outcomes, lambda outcome: stated_answer(outcome.written().text), "questions")
        yield from shares(sample, "accuracy", "Accuracy", _stated_rightly)
        yield sample.share("yes", "Answered yes", lambda _, place: None if place is None else float(place == 0))
        yield cut_off(sample)
        for part in _by_answer(sample):
            yield part.share("accuracy", "Accuracy", _stated_rightly, "higher")

    def reference(self, item: Item) -> str | None:
        """The facts and the answer."""
        return f" {item.facts['solution']}"


def _likelier_yes(_: Outcome, values: Sequence[float]) -> float | None:
    yes, no = values
    return None if yes == no else float(yes > no)


def stated_answer(text: str) -> int | None:
    """Place of the answer that a text states first, 0 for yes; None without one."""
    match = STATED.search(text)
    return None if match is None else int(match[1].lower() == "no")


def _stated_rightly(outcome: Outcome, place: int | None) -> float | None:
    return None if place is None else float(place == outcome.facts["right"])


def _records(data: DataFolder) -> list[Line]:
    names = (OFFICIAL,) if data.find("strategyqa", OFFICIAL) else PARTS
    return [line for name in names for line in entries(*data.json("strategyqa", name))]


def _by_answer(sample: Sample[Value]) -> Iterator[Sample[Value]]:
    for place, answer in enumerate(ANSWERS):
        yield sample.where(lambda outcome, place=place: outcome.facts["right"] == place, f"true answer {answer}")
