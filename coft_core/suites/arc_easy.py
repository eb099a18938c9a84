"""ARC-easy: science questions of school exams with three to five answers (Clark et al. 2018)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from coft_core.suites.base import Item
from coft_core.suites.files import HubSplit, Id, Line, Row, Text, listed
from coft_core.suites.multiple_choice import MultipleChoice, choice_item


class Choice(Row):
    """One of the answers to a question."""

    label: str
    text: Text


class Question(Row):
    """A question; its choices are within it in the authors' files, and beside it on hubs."""

    id: Id = ""
    stem: str = Field(validation_alias=AliasChoices(AliasPath("question", "stem"), "question"))
    choices: Annotated[list[Choice], BeforeValidator(listed), Field(min_length=2)] = Field(
        validation_alias=AliasChoices(AliasPath("question", "choices"), "choices")
    )
    answer: str = Field(validation_alias="answerKey")


class ArcEasy(MultipleChoice):
    """An item is right where the right answer is the likeliest; ties are wrong, as no answer is preferred."""

    key = "arc_easy"
    files = ("test.jsonl", "ARC-Easy-Test.jsonl")
    hub = HubSplit("allenai/ai2_arc", "ARC-Easy", "test")

    def item(self, line: Line) -> Item:
        """A question, in the words of lm-evaluation-harness, so that figures compare."""
        row = line.read(Question)
        labels = [choice.label for choice in row.choices]
        if row.answer not in labels:
            raise line.error(f"the answer {row.answer!r} is none of the choices {', '.join(labels)}")
        answers, right = [choice.text for choice in row.choices], labels.index(row.answer)
        return choice_item(row.id or str(line.number), f"Question: {row.stem}\nAnswer:", answers, right)
