"""PIQA: which of two ways reaches an everyday goal (Bisk et al. 2020)."""

from __future__ import annotations

from pydantic import Field

from coft_core.suites.base import Item
from coft_core.suites.files import DataError, DataFolder, HubSplit, Line, Release, Row, Text
from coft_core.suites.multiple_choice import MultipleChoice, choice_item


class Label(Row):
    """Which way works."""

    label: int = Field(ge=0, le=1)


class Goal(Label):
    """A goal and two ways to it."""

    goal: str
    sol1: Text
    sol2: Text


class Piqa(MultipleChoice):
    """An item is right where the way that works is the likelier one; a tie is wrong."""

    key = "piqa"
    counted = "goals"
    files = ("valid.jsonl",)
    hub = HubSplit("baber/piqa", None, "validation")
    releases = (
        Release("PIQA, validation set", "93503cc97c679e459b065c3d13e848282e44b2a25213985bed3e5d458abef72d"),
        Release("PIQA, validation set", "b4192dc3a2a0363d9d60ccf79800cbbe2f32ebb17726efdde6970e0b8131bceb"),
    )

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

    def item(self, line: Line) -> Item:
        """A goal, in the words of lm-evaluation-harness, so that figures compare."""
        row = line.read(Goal)
        return choice_item(str(line.number), f"Question: {row.goal}\nAnswer:", [row.sol1, row.sol2], row.label)
