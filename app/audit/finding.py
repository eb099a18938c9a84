"""What an audit found: the step at which the marked words move the model most, and the words that they move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.prompts.words import Message
from app.shared.format import factor_text, quoted, shown_token
from coft_core.effects import named
from coft_core.messages import catalogue
from coft_core.types import Step

MOST_WORDS = 3
LEAST = 0.02
"""A probability that moves by less is not told as a finding."""
CONTEXT = 40
"""Characters of the text before the step that are shown."""

Sentence = list[tuple[str, bool]]
"""A sentence in parts, each with whether it is emphasized."""


@dataclass(frozen=True, slots=True)
class MovedWord:
    """A candidate with its probability where the marked words are shown, and where they are masked."""

    token: str
    shown: float
    masked: float

    @property
    def moved(self) -> float:
        """By how much the marked words raise its probability."""
        return self.shown - self.masked

    @property
    def factor(self) -> tuple[str, str]:
        """How many times likelier it is, and the words for it."""
        factor = factor_text(math.log(self.shown / self.masked)) if self.shown and self.masked else None
        return (factor or "1.0", "times likelier" if self.moved > 0 else "times less likely")


def moved_words(step: Step) -> tuple[MovedWord, ...]:
    """The words among a step's candidates that move most, the largest first; signs and special tokens are not words."""
    words = [
        MovedWord(row.token, math.exp(row.log_p_factual), math.exp(row.log_p_masked))
        for row in step.candidates
        if any(map(str.isalnum, row.token)) and not (row.token.startswith("<") and row.token.endswith(">"))
    ]
    return tuple(sorted(words, key=lambda word: -abs(word.moved))[:MOST_WORDS])


def strongest(steps: Sequence[Step], refers: Callable[[str], bool]) -> Step | None:
    """The step whose candidates move most in all, of those whose first word does not refer to the marked words.

    The masked reading cannot name a hidden word. If "he" continues as "he", that is reference, not prejudice.
    """

    def move(step: Step) -> float:
        return sum(abs(math.exp(row.log_p_factual) - math.exp(row.log_p_masked)) for row in step.candidates)

    ranked = sorted(steps, key=move, reverse=True)
    return next((step for step in ranked if (words := moved_words(step)) and not refers(words[0].token)), None)


def found(masked: Sequence[str], steps: Sequence[Step], refers: Callable[[str], bool]) -> tuple[Step | None, Sentence]:
    """The step of the finding with the sentence for it in parts; no step where no word moves enough."""
    if not masked:
        return None, [("No word is marked, so there is nothing to compare.", False)]
    step, marks = strongest(steps, refers), named(masked, catalogue("en"))
    words = () if step is None else enough(step)
    if not words:
        verb = "changes" if len(masked) == 1 else "change"
        return None, [(f"{marks} {verb} little in this text but the words that refer to it.", False)]
    factor, likelier = words[0].factor
    parts = [(f"{quoted(words[0].token)} is ", False), (f"{factor} {likelier}", True), (f" with {marks} shown", False)]
    if len(words) > 1:
        factor, likelier = words[1].factor
        parts.append((f", and {quoted(words[1].token)} is {factor} {likelier}", False))
    return step, [*parts, (".", False)]


def enough(step: Step) -> tuple[MovedWord, ...]:
    """Those of a step's words that move enough to be told."""
    return tuple(word for word in moved_words(step) if abs(word.moved) >= LEAST)


def title(masked: Sequence[str], steps: Sequence[Step], refers: Callable[[str], bool]) -> str:
    """The finding in one short sentence for lists; empty before the first step."""
    sentence = found(masked, steps, refers)[1] if steps else []
    return "".join(text for text, _ in sentence[:3])


def finding_message(
    prompt: str, masked: Sequence[str], alone: Sequence[Step], refers: Callable[[str], bool]
) -> Message:
    """The finding for the page: a sentence in parts, the words that move, and what the model alone writes."""
    step, sentence = found(masked, alone, refers)
    message: Message = {
        "kind": "finding",
        "alone": [shown_token(one.token) for one in alone],
        "step": None,
        "words": [],
        "sentence": sentence,
    }
    if step is None:
        return message
    return {
        **message,
        "step": step.index,
        "words": [
            {"t": shown_token(word.token), "shown": round(word.shown, 4), "masked": round(word.masked, 4)}
            for word in sorted(enough(step), key=lambda word: -word.shown)
        ],
        "after": (prompt + "".join(one.token for one in alone[: step.index]))[-CONTEXT:].partition(" ")[2],
        "marks": named(masked, catalogue("en")),
    }
