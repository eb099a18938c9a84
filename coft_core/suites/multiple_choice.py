"""Multiple choice by likelihood: right where the right answer is likelier after the question than every other one.

PIQA asks which of two ways reaches an everyday goal (Bisk et al. 2020), ARC-easy has science questions of school exams
with three to five answers (Clark et al. 2018), StrategyQA yes-or-no questions whose steps are not in the question (Geva
et al. 2021). All are asked in the words of lm-evaluation-harness, so that figures compare; it takes the first of
equally likely answers, and here a tie is wrong, as no answer is preferred.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, StrictBool

from coft_core.suites.base import Choices, Figure, Item, Outcome, Outside, Record, Suite, Writing
from coft_core.suites.files import DataError, DataFolder, Id, Line, Row, Text, entries, listed
from coft_core.suites.statistics import Sample, Value
from coft_core.suites.written import cut_off, fitting, shares


class MultipleChoice(Suite):
    """A suite of questions with given answers; its items are made by :func:`choice_item`."""

    kind = "utility"
    main = "accuracy"

    counted: ClassVar[str] = "questions"
    """What its figures count, in the plural."""

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """Accuracy, plain and by likelihood per character of the answer, as lm-evaluation-harness has them."""
        return accuracies(outcomes, outside, self.counted)


def choice_item(identity: str, prompt: str, answers: Sequence[str], right: int) -> Item:
    """A question with its answers, each after a space; a unit of its own."""
    facts = {"right": right, "lengths": [len(answer) for answer in answers]}
    return Item(identity, identity, (Choices(prompt, tuple(f" {answer}" for answer in answers)),), facts)


def accuracies(outcomes: Sequence[Outcome], outside: Outside, what: str) -> Iterator[Figure]:
    """Accuracy of multiple choice; items whose answers are all impossible are unscored."""
    sample = Sample.of(outcomes, lambda outcome: outcome.scored().log_likelihoods(outside), what)
    yield sample.share("accuracy", "Accuracy", right_of, "higher")

    def by_length(outcome: Outcome, values: Sequence[float]) -> float | None:
        lengths = outcome.facts["lengths"]
        return right_of(outcome, [value / length for value, length in zip(values, lengths, strict=True)])

    yield sample.share("accuracy_by_length", "Accuracy, by likelihood per character", by_length, "higher")


def right_of(outcome: Outcome, values: Sequence[float]) -> float | None:
    """1 where the right answer has a higher value than every other one, else 0; None where all are impossible."""
    if not any(map(math.isfinite, values)):
        return None
    right = int(outcome.facts["right"])
    return float(values[right] > max(value for place, value in enumerate(values) if place != right))


class Label(Row):
    """Which way works."""

    label: int = Field(ge=0, le=1)


class Goal(Label, Record):
    """A goal and two ways to it."""

    goal: str
    sol1: Text
    sol2: Text

    def item(self, line: Line) -> Item:
        """The goal with its ways."""
        return choice_item(str(line.number), f"Question: {self.goal}\nAnswer:", [self.sol1, self.sol2], self.label)


class Piqa(MultipleChoice):
    """An item is right where the way that works is the likelier one."""

    key = "piqa"
    counted = "goals"
    record = Goal
    files = ("valid.jsonl",)

    def items(self, data: DataFolder) -> list[Item]:
        """The validation set: ``valid.jsonl``, and ``valid-labels.lst`` with 0 or 1 line by line."""
        lines = list(data.json_lines(self.folder, *self.files))
        name, text = data.content(self.folder, "valid-labels.lst")
        labels = [Line(name, number, {"label": label}).read(Label) for number, label in enumerate(text.split(), 1)]
        if len(labels) != len(lines):
            raise DataError(
                f"{lines[0].file} has {len(lines)} questions and {name} has {len(labels)} labels; take both files "
                "from their publisher again."
            )
        pairs = zip(lines, labels, strict=True)
        return self.made(Line(line.file, line.number, {**line.values, "label": own.label}) for line, own in pairs)


class Choice(Row):
    """One of the answers to a question."""

    label: str
    text: Text


class ExamQuestion(Record):
    """A question; its choices are within it in the authors' files, and beside it on hubs."""

    id: Id = ""
    stem: str = Field(validation_alias=AliasChoices(AliasPath("question", "stem"), "question"))
    choices: Annotated[list[Choice], BeforeValidator(listed), Field(min_length=2)] = Field(
        validation_alias=AliasChoices(AliasPath("question", "choices"), "choices")
    )
    answer: str = Field(validation_alias="answerKey")

    def item(self, line: Line) -> Item:
        """The question with its choices."""
        labels = [choice.label for choice in self.choices]
        if self.answer not in labels:
            raise line.error(f"the answer {self.answer!r} is none of the choices {', '.join(labels)}")
        answers, right = [choice.text for choice in self.choices], labels.index(self.answer)
        return choice_item(self.id or str(line.number), f"Question: {self.stem}\nAnswer:", answers, right)


class ArcEasy(MultipleChoice):
    """An item is right where the right answer is the likeliest."""

    key = "arc_easy"
    record = ExamQuestion
    files = ("test.jsonl", "ARC-Easy-Test.jsonl")


OFFICIAL, PARTS = "strategyqa_train.json", ("train.json", "dev.json")
"""StrategyQA's questions with published answers in one file, as from its own site, or in two, as in its code."""

ANSWERS = ("Yes", "No")
STATED = re.compile(r"answer is:? (yes|no)\b", re.IGNORECASE)


class YesNoQuestion(Record):
    """A question with its published answer."""

    qid: str
    question: str
    answer: StrictBool

    @property
    def asked(self) -> str:
        """In the words of BIG-bench's task, which lm-evaluation-harness takes."""
        return f"Q: {self.question}\nA:"

    def item(self, line: Line) -> Item:
        """The question with both answers."""
        return choice_item(self.qid, self.asked, ANSWERS, int(not self.answer))


class Reasoned(YesNoQuestion):
    """A question with the facts that lead to its answer."""

    facts: list[str]

    @property
    def solution(self) -> str:
        """The facts and the answer, in the form of Wei et al. 2022."""
        sentences = [fact if fact.endswith((".", "!", "?")) else f"{fact}." for fact in self.facts]
        return " ".join([*sentences, f"So the answer is {'yes' if self.answer else 'no'}."])


class StrategyQa(MultipleChoice):
    """Right where the true one of "Yes" and "No" is the likelier.

    Asked without examples. Likelihoods need no reading of what is written, so that nothing is unscored;
    :class:`StrategyQaChain` has the model write its steps.
    """

    key = "strategyqa"
    record = YesNoQuestion

    def items(self, data: DataFolder) -> list[Item]:
        """All questions with published answers, of one file or of both its parts."""
        return self.made(_records(data))

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
    source = StrategyQa.source

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
