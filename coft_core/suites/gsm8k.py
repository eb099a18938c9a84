"""GSM8K: word problems of grade school, solved in writing, step by step (Cobbe et al. 2021)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from pydantic import field_validator

from coft_core.suites.base import Figure, Item, Outcome, Outside, Suite, Writing
from coft_core.suites.files import DataFolder, Line, Row, hub_lines
from coft_core.suites.statistics import Sample
from coft_core.suites.written import cut_off, fitting, shares

STRICT = re.compile(r"#### (-?[0-9.,]+)")
FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
"""A number as lm-evaluation-harness finds it: the first behind ``####``, or the last one anywhere."""

IGNORED = (re.compile(r","), re.compile(r"\$"), re.compile(r"(?s).*#### "), re.compile(r"\.$"))
"""What is taken out before numbers are compared, in this order, as in the harness."""

STOPS = ("Question:", "</s>", "<|im_end|>")
MOST_TOKENS = 256


class Problem(Row):
    """A problem with its solution, whose number is behind ``####``."""

    question: str
    answer: str

    @field_validator("answer")
    @classmethod
    def _has_number(cls, answer: str) -> str:
        if marked_number(answer) is None:
            raise ValueError("has no number behind ####")
        return answer

    @property
    def asked(self) -> str:
        """In the words of lm-evaluation-harness, so that figures compare."""
        return f"Question: {self.question}\nAnswer:"


class Gsm8k(Suite):
    """An answer is right where its number is the solution's, compared as text, as in lm-evaluation-harness.

    The paper gives an accuracy of chains of thought and not how numbers are read out of them. The main figure reads the
    last number: behind ``####`` alone, it would depend on whether a model keeps to the form of the examples. An answer
    without a number is unscored; figures that count it as wrong, as published ones do, stand beside.
    """

    key = "gsm8k"
    kind = "utility"
    main = "accuracy"

    most_examples: ClassVar[int] = 5
    """Solved problems before each question at most; their number is kept with each item."""

    characters: ClassVar[int] = 650
    """How long they may be together: with a question and an answer they fit into 512 tokens, as of a small model."""

    files = ("test.jsonl",)

    def items(self, data: DataFolder) -> list[Item]:
        """Problems of ``test.jsonl`` after examples of ``train.jsonl``."""
        examples = list(data.json_lines(self.folder, "train.jsonl"))
        return self._after(examples, data.json_lines(self.folder, *self.files))

    def items_from_hub(self) -> list[Item]:
        """The same from a hub."""
        examples, asked = map(hub_lines, self.source.hub)
        return self._after(examples, asked)

    def _after(self, examples: Iterable[Line], lines: Iterable[Line]) -> list[Item]:
        solved = [line.read(Problem) for line in examples]
        texts = [f"{problem.asked} {problem.answer}\n\n" for problem in solved]
        chosen = fitting(texts, self.most_examples, self.characters)
        before = "".join(texts[place] for place in chosen)
        items = []
        for line in lines:
            problem, number = line.read(Problem), str(line.number)
            ask = Writing(f"{before}{problem.asked}", MOST_TOKENS, STOPS)
            items.append(Item(number, number, (ask,), {"answer": problem.answer, "examples": len(chosen)}))
        return items

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """Accuracy by the last number and by the number behind ``####``, and the share of answers cut off."""
        sample = Sample.of(outcomes, lambda outcome: outcome.written().text, "problems")
        yield from shares(sample, "accuracy", "Accuracy, last number", _right_by(last_number))
        yield from shares(sample, "accuracy_strict", "Accuracy, number behind ####", _right_by(marked_number))
        yield cut_off(sample)

    def reference(self, item: Item) -> str | None:
        """The solution."""
        return f" {item.facts['answer']}"


class Gsm8kFiveShot(Gsm8k):
    """The same after five solved problems of any length, as lm-evaluation-harness asks it."""

    key = "gsm8k_five_shot"
    characters = 1_000_000


def last_number(text: str) -> str | None:
    """The last number anywhere in a text; None where the last that looks like one has no digit, or nothing does."""
    *_, last = ["", *FLEXIBLE.findall(text)]
    return last if _has_digit(last) else None


def marked_number(text: str) -> str | None:
    """The first number behind ``####``; None without one."""
    match = STRICT.search(text)
    return match[1] if match and _has_digit(match[1]) else None


def plain(number: str) -> str:
    """A number as it is compared, or the number at the end of a solution."""
    for pattern in IGNORED:
        number = pattern.sub("", number)
    return number.lower()


def _has_digit(text: str) -> bool:
    return any(letter.isdigit() for letter in text)


def _right_by(read: Callable[[str], str | None]) -> Callable[[Outcome, str], float | None]:
    def right(outcome: Outcome, text: str) -> float | None:
        number = read(text)
        return None if number is None else float(plain(number) == plain(outcome.facts["answer"]))

    return right
