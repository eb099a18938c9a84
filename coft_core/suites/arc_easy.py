"""ARC-easy: science questions of school exams with three to five answers (Clark et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coft_core.suites.base import Card, Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.files import DataFolder, HubSplit, Line, hub_lines
from coft_core.suites.statistics import mean_figure


class ArcEasy(Suite):
    """An item is right where the right answer is the likeliest; ties are wrong, as no answer is preferred."""

    key = "arc_easy"
    title = "ARC-easy"
    kind = "utility"
    citation = "Clark et al. 2018, Think you have solved question answering? Try ARC"
    licence = "CC BY-SA 4.0"
    main = "accuracy"
    hub = HubSplit("allenai/ai2_arc", "ARC-Easy", "test")
    card = Card(
        "Science questions from school exams, each with a few answers. An item counts as right when the model finds "
        "the right answer likelier than every other one after the question.",
        "Whether the model can explain its answer, and anything about bias: it shows what a method costs.",
        "Answers can often be guessed without the question, by how they are worded (Balepur et al. 2024).",
        "An interval of 10 points in all needs about 300 questions at 75 % right; the test set has 2,376.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """Questions of the test set, ``test.jsonl`` or ``ARC-Easy-Test.jsonl``."""
        return [_item(line) for line in data.json_lines(self.key, "test.jsonl", "ARC-Easy-Test.jsonl")]

    def items_from_hub(self) -> list[Item]:
        """The same from a hub, whose records hold labels and texts apart."""
        return [_item(_nested(line)) for line in hub_lines(self.hub)]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Accuracy, plain and by likelihood per character of the answer, as the harness has them."""
        return accuracies(outcomes, outside, "questions")

    def reference(self, item: Item) -> str | None:
        """The right answer."""
        ask = item.asks[0]
        assert isinstance(ask, Choices)
        return ask.texts[int(item.facts["right"])]


def accuracies(outcomes: Sequence[Outcome], outside: Outside, what: str) -> list[Figure]:
    """Accuracy of multiple choice; items whose answers are all impossible are unscored.

    Facts of an item: ``right``, the place of the right answer, and ``lengths``, characters of each answer without its
    leading space.
    """
    units = [outcome.unit for outcome in outcomes]
    plain = [_right(outcome, outside, by_length=False) for outcome in outcomes]
    by_length = [_right(outcome, outside, by_length=True) for outcome in outcomes]
    return [
        mean_figure("accuracy", "Accuracy", units, plain, scale=100.0, what=what, better="higher"),
        mean_figure(
            "accuracy_by_length", "Accuracy, by likelihood per character", units, by_length, scale=100.0, what=what,
            better="higher",
        ),
    ]  # fmt: skip


def _right(outcome: Outcome, outside: Outside, by_length: bool) -> float | None:
    values = outcome.scored().values(outside)  # (C,)
    if by_length:
        values = values / np.array(outcome.facts["lengths"], dtype=float)
    if not np.isfinite(values).any():
        return None
    right = int(outcome.facts["right"])
    return float(values[right] > np.delete(values, right).max())


def _item(line: Line) -> Item:
    question, answer = line.value("question"), line.text("answerKey")
    try:
        labels = [choice["label"] for choice in question["choices"]]
        texts = [choice["text"] for choice in question["choices"]]
        stem = question["stem"]
    except (KeyError, TypeError) as error:
        raise line.error("the field 'question' lacks its stem or a choice's label or text") from error
    if answer not in labels:
        raise line.error(f"the answer {answer!r} is none of the choices {', '.join(labels)}")
    facts = {"right": labels.index(answer), "lengths": [len(text) for text in texts]}
    # As in lm-evaluation-harness, so that figures compare.
    ask = Choices(f"Question: {stem}\nAnswer:", tuple(f" {text}" for text in texts))
    identity = str(line.values.get("id") or line.number)
    return Item(identity, identity, (ask,), facts)


def _nested(line: Line) -> Line:
    choices = line.value("choices")
    pairs = [{"label": label, "text": text} for label, text in zip(choices["label"], choices["text"], strict=True)]
    question = {"stem": line.text("question"), "choices": pairs}
    return Line(line.file, line.number, {**line.values, "question": question})
