"""GSM8K: word problems of grade school, solved in writing, step by step (Cobbe et al. 2021)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from coft_core.suites.base import Card, Figure, Item, Outcome, Outside, Suite, Writing
from coft_core.suites.examples import fitting
from coft_core.suites.files import DataFolder, HubSplit, Line, Release, hub_lines
from coft_core.suites.written import cut_off, share, shares

STRICT = re.compile(r"#### (-?[0-9.,]+)")
FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
"""A number as lm-evaluation-harness finds it: the first behind ``####``, or the last one anywhere."""

IGNORED = (re.compile(r","), re.compile(r"\$"), re.compile(r"(?s).*#### "), re.compile(r"\.$"))
"""What is taken out before numbers are compared, in this order, as in the harness."""

STOPS = ("Question:", "</s>", "<|im_end|>")
MOST_TOKENS = 256


class Gsm8k(Suite):
    """An answer is right where its number is the solution's, compared as text, as in lm-evaluation-harness.

    The paper gives an accuracy of chains of thought and not how numbers are read out of them. The main figure reads the
    last number: behind ``####`` alone, it would depend on whether a model keeps to the form of the examples. An answer
    without a number is unscored; figures that count it as wrong, as published ones do, stand beside.
    """

    key = "gsm8k"
    title = "GSM8K"
    kind = "utility"
    citation = "Cobbe et al. 2021, Training verifiers to solve math word problems"
    licence = "MIT"
    main = "accuracy"

    most_examples: ClassVar[int] = 5
    """Solved problems before each question at most; their number is kept with each item."""

    characters: ClassVar[int] = 650
    """How long they may be together: with a question and an answer they fit into 512 tokens, as of a small model."""

    folder: ClassVar[str] = "gsm8k"
    hub: ClassVar[HubSplit] = HubSplit("openai/gsm8k", "main", "test")
    examples_on_hub: ClassVar[HubSplit] = HubSplit("openai/gsm8k", "main", "train")
    releases = (
        Release("GSM8K, test set", "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"),
        Release("GSM8K, training set", "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"),
    )
    card = Card(
        "Word problems of grade school, which take two to eight steps. The model is shown as many solved problems as "
        "fit into 650 characters, here two, writes out its own solution, and is right when the last number in it is "
        "the right one. Answers that were cut off at 256 tokens are counted in a figure of their own.",
        "Whether the steps are right when the number is, and anything about bias: it shows what a method costs to "
        "reasoning in writing. Published figures use five or eight examples of any length; gsm8k_five_shot does too.",
        "The problems have been public since 2021 and may be part of what models were trained on; on new problems of "
        "the same kind some do worse (Zhang et al. 2024, A careful examination of large language model performance on "
        "grade school arithmetic). Less than 2 % of the problems are broken (Cobbe et al. 2021).",
        "An interval of 10 points in all needs about 390 problems at 50 % right; the test set has 1,319.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """Problems of ``test.jsonl`` after examples of ``train.jsonl``."""
        examples = list(data.json_lines(self.folder, "train.jsonl"))
        return self._items(list(data.json_lines(self.folder, "test.jsonl")), examples)

    def items_from_hub(self) -> list[Item]:
        """The same from a hub."""
        return self._items(hub_lines(self.hub), hub_lines(self.examples_on_hub))

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Accuracy by the last number and by the number behind ``####``, and the share of answers cut off."""
        last = [_right(outcome, last_number) for outcome in outcomes]
        marked = [_right(outcome, marked_number) for outcome in outcomes]
        return [
            *shares("accuracy", "Accuracy, last number", outcomes, last, "problems"),
            *shares("accuracy_strict", "Accuracy, number behind ####", outcomes, marked, "problems"),
            cut_off(outcomes, "problems"),
        ]

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """Accuracy by the last number."""
        last = [_right(outcome, last_number) for outcome in outcomes]
        return share("accuracy", "Accuracy, last number", outcomes, last, "problems")

    def reference(self, item: Item) -> str | None:
        """The solution."""
        return f" {item.facts['answer']}"

    def _items(self, lines: Sequence[Line], examples: Sequence[Line]) -> list[Item]:
        texts = [f"{_question(line)} {_answer(line)}\n\n" for line in examples]
        chosen = fitting(texts, self.most_examples, self.characters)
        before = "".join(texts[place] for place in chosen)
        return [
            Item(
                str(line.number),
                str(line.number),
                (Writing(f"{before}{_question(line)}", MOST_TOKENS, STOPS),),
                {"answer": _answer(line), "examples": len(chosen)},
            )
            for line in lines
        ]


class Gsm8kFiveShot(Gsm8k):
    """The same after five solved problems of any length, as lm-evaluation-harness asks it."""

    key = "gsm8k_five_shot"
    title = "GSM8K, five examples"
    characters = 1_000_000
    card = Card(
        "The problems of GSM8K after five solved ones of any length, as in most published figures. It takes about "
        "1,200 tokens, and models with less context cannot read it.",
        Gsm8k.card.leaves_out,
        Gsm8k.card.criticism,
        Gsm8k.card.sizes,
    )


def last_number(text: str) -> str | None:
    """The last number anywhere in a text; None where the last that looks like one has no digit, or nothing does."""
    found = deque(FLEXIBLE.finditer(text), maxlen=1)
    return found[0][0] if found and _has_digit(found[0][0]) else None


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


def _right(outcome: Outcome, read: Callable[[str], str | None]) -> float | None:
    number = read(outcome.written().text)
    return None if number is None else float(plain(number) == plain(outcome.facts["answer"]))


def _question(line: Line) -> str:
    # As in lm-evaluation-harness, so that figures compare.
    return f"Question: {line.text('question')}\nAnswer:"


def _answer(line: Line) -> str:
    answer = line.text("answer")
    if marked_number(answer) is None:
        raise line.error("the field 'answer' has no number behind ####")
    return answer
