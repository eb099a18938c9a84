"""ARC-easy: science questions of school exams with three to five answers (Clark et al. 2018)."""

from __future__ import annotations

from coft_core.suites.base import Card, Item
from coft_core.suites.files import DataFolder, HubSplit, Line, hub_lines
from coft_core.suites.multiple_choice import MultipleChoice, choice_item


class ArcEasy(MultipleChoice):
    """An item is right where the right answer is the likeliest; ties are wrong, as no answer is preferred."""

    key = "arc_easy"
    title = "ARC-easy"
    citation = "Clark et al. 2018, Think you have solved question answering? Try ARC"
    licence = "CC BY-SA 4.0"
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


def _item(line: Line) -> Item:
    question, answer = line.value("question"), line.text("answerKey")
    try:
        labels = [str(choice["label"]) for choice in question["choices"]]
        texts = [str(choice["text"]) for choice in question["choices"]]
        stem = str(question["stem"])
    except (KeyError, TypeError) as error:
        raise line.error("the field 'question' lacks its stem or a choice's label or text") from error
    if answer not in labels:
        raise line.error(f"the answer {answer!r} is none of the choices {', '.join(labels)}")
    if len(texts) < 2 or not all(texts):
        raise line.error("a question needs two answers or more, none of them empty")
    # As in lm-evaluation-harness, so that figures compare.
    prompt = f"Question: {stem}\nAnswer:"
    return choice_item(str(line.values.get("id") or line.number), prompt, texts, labels.index(answer))


def _nested(line: Line) -> Line:
    """A record of the hub as the authors' files have it."""
    choices = line.value("choices")
    try:
        pairs = [{"label": label, "text": text} for label, text in zip(choices["label"], choices["text"], strict=True)]
    except (KeyError, TypeError, ValueError) as error:
        raise line.error("the field 'choices' has no labels and texts of one number") from error
    question = {"stem": line.text("question"), "choices": pairs}
    return Line(line.file, line.number, {**line.values, "question": question})
