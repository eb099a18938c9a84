"""PIQA: which of two ways reaches an everyday goal (Bisk et al. 2020)."""

from __future__ import annotations

from coft_core.suites.base import Card, Item
from coft_core.suites.files import DataError, DataFolder, HubSplit, Line, Release, hub_lines
from coft_core.suites.multiple_choice import MultipleChoice, choice_item

QUESTIONS, LABELS = "valid.jsonl", "valid-labels.lst"


class Piqa(MultipleChoice):
    """An item is right where the way that works is the likelier one; a tie is wrong."""

    key = "piqa"
    title = "PIQA"
    citation = "Bisk et al. 2020, PIQA: Reasoning about physical commonsense in natural language"
    licence = "AFL-3.0"
    counted = "goals"
    hub = HubSplit("baber/piqa", None, "validation")
    releases = (
        Release("PIQA, validation set", "93503cc97c679e459b065c3d13e848282e44b2a25213985bed3e5d458abef72d"),
        Release("PIQA, validation set", "b4192dc3a2a0363d9d60ccf79800cbbe2f32ebb17726efdde6970e0b8131bceb"),
    )
    card = Card(
        "Everyday goals, such as keeping a door open, each with one way that works and one that does not. An item "
        "counts as right when the model finds the way that works likelier after the goal.",
        "Anything about bias: it shows what a method costs. The labels of the test set are not published, so that the "
        "validation set is asked, as everywhere.",
        "Its goals were inspired by a web site for hobbyists, so that everyday life elsewhere is missing. Pairs "
        "that can be told apart by their wording were removed, and some may be left (Bisk et al. 2020).",
        "An interval of 8 points in all needs about 420 goals at 78 % right; the validation set has 1,838.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """The validation set: ``valid.jsonl``, and ``valid-labels.lst`` with 0 or 1 line by line."""
        lines = list(data.json_lines(self.key, QUESTIONS))
        name, text = data.content(self.key, LABELS)
        labels = text.split()
        if len(labels) != len(lines):
            raise DataError(
                f"{lines[0].file} has {len(lines)} questions and {name} has {len(labels)} labels; take both files "
                "from their publisher again."
            )
        for number, label in enumerate(labels, 1):
            if label not in ("0", "1"):
                raise Line(name, number, {}).error(f"the label is {label!r:.60} and has to be 0 or 1")
        return [_item(line, int(label)) for line, label in zip(lines, labels, strict=True)]

    def items_from_hub(self) -> list[Item]:
        """The same from a hub, whose records hold their labels."""
        return [_item(line, _label(line)) for line in hub_lines(self.hub)]


def _item(line: Line, right: int) -> Item:
    answers = [line.text("sol1"), line.text("sol2")]
    if not all(answers):
        raise line.error("a goal needs two ways to reach it, none of them empty")
    # As in lm-evaluation-harness, so that figures compare.
    return choice_item(str(line.number), f"Question: {line.text('goal')}\nAnswer:", answers, right)


def _label(line: Line) -> int:
    label = line.value("label")
    if label not in (0, 1):
        raise line.error(f"the field 'label' is {label!r:.60} and has to be 0 or 1")
    return int(label)
