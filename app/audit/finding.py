"""What an audit found: the step at which the marked words move the model most, and the words that they move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.prompts.words import Message
from app.shared.bounds import ends_of
from app.shared.format import count, factor_text, plural, quoted, shown_token
from app.shared.format import listed as listed_words
from app.shared.kept_controls import step_said
from coft_core.controls.result import Controls, Effects, Evidence, FamilyControls
from coft_core.effects import named
from coft_core.messages import catalogue
from coft_core.types import Candidate, Step

MOST_WORDS = 3
LEAST = 0.02
"""A probability that moves by less is not told as a finding."""
CONTEXT = 40
"""Characters of the text before the step that are shown."""

NO_CONTROL = ("No control.", "Nothing was compared with the marked words, so that chance is not ruled out.")
"""In place of the answers where nothing was compared."""

Sentence = list[tuple[str, bool]]
"""A sentence in parts, each with whether it is emphasized."""


@dataclass(frozen=True, slots=True)
class MovedWord:
    """A candidate with its probability where the marked words are shown, and where they are masked."""

    token: str
    shown: float
    masked: float
    token_id: int = -1
    # The readings of which only the most likely tokens came back, without this one.
    at_most: tuple[str, ...] = ()

    @property
    def moved(self) -> float:
        """By how much the marked words raise its probability."""
        return self.shown - self.masked

    @property
    def factor(self) -> tuple[str, str]:
        """How many times likelier it is, and the words for it."""
        factor = factor_text(math.log(self.shown / self.masked)) if self.shown and self.masked else None
        least = "at least " if self.at_most else ""
        return (f"{least}{factor or '1.0'}", "times likelier" if self.moved > 0 else "times less likely")


def _nearest(step: Step, row: Candidate) -> tuple[float, float]:
    """A candidate's probabilities in both readings, so that they differ by no more than is certain."""
    (low, high), (masked_low, masked_high) = (ends_of(step, row, view) for view in ("factual", "masked"))
    if low >= masked_high:
        return math.exp(low), math.exp(masked_high)
    return (math.exp(high), math.exp(masked_low)) if high <= masked_low else (math.exp(masked_low),) * 2


def moved_words(step: Step) -> tuple[MovedWord, ...]:
    """The words among a step's candidates that move most, the largest first; signs and special tokens are not words."""
    words = [
        MovedWord(row.token, *_nearest(step, row), row.token_id, row.at_most)
        for row in step.candidates
        if any(map(str.isalnum, row.token)) and not (row.token.startswith("<") and row.token.endswith(">"))
    ]
    return tuple(sorted(words, key=lambda word: -abs(word.moved))[:MOST_WORDS])


def strongest(steps: Sequence[Step], refers: Callable[[str], bool]) -> Step | None:
    """The step whose candidates move most in all, of those whose first word does not refer to the marked words.

    The masked reading cannot name a hidden word. If "he" continues as "he", that is reference, not prejudice.
    """

    def move(step: Step) -> float:
        return sum(abs(shown - masked) for shown, masked in (_nearest(step, row) for row in step.candidates))

    ranked = sorted(steps, key=move, reverse=True)
    return next((step for step in ranked if (words := moved_words(step)) and not refers(words[0].token)), None)


def found(
    masked: Sequence[str], steps: Sequence[Step], refers: Callable[[str], bool], controls: Controls | None = None
) -> tuple[Step | None, Sentence]:
    """The step of the finding with the sentence for it in parts; no step where no word moves enough."""
    if not masked:
        return None, [("No word is marked, so there is nothing to compare.", False)]
    step, marks = strongest(steps, refers), named(masked, catalogue("en"))
    words = () if step is None else enough(step)
    if step is None or not words:
        verb = "changes" if len(masked) == 1 else "change"
        return None, [(f"{marks} {verb} little in this text but the words that refer to it.", False)]
    factor, likelier = words[0].factor
    how, telling, family = f" with {marks} shown", True, None if controls is None else controls.strongest(step.index)
    if controls is not None and family is not None and family.deciding:
        telling = controls.supports(step.index)
        if telling:
            how = f" because of {marks if len(controls.families) == 1 else quoted(family.marked.word)}"
    # Colour is for a finding, which a difference that comparable words make too is not.
    parts = [(f"{quoted(words[0].token)} is ", False), (f"{factor} {likelier}", telling), (how, False)]
    if len(words) > 1:
        factor, likelier = words[1].factor
        parts.append((f", and {quoted(words[1].token)} is {factor} {likelier}", False))
    return step, [*parts, (".", False)]


def enough(step: Step) -> tuple[MovedWord, ...]:
    """Those of a step's words that move enough to be told."""
    return tuple(word for word in moved_words(step) if abs(word.moved) >= LEAST)


def title(
    masked: Sequence[str], steps: Sequence[Step], refers: Callable[[str], bool], controls: Controls | None = None
) -> str:
    """The finding in one short sentence for lists; empty before the first step."""
    sentence = found(masked, steps, refers, controls)[1] if steps else []
    return "".join(text for text, _ in sentence[:3])


def finding_message(
    prompt: str,
    masked: Sequence[str],
    alone: Sequence[Step],
    refers: Callable[[str], bool],
    controls: Controls | None = None,
    done: bool = False,
) -> Message:
    """The finding for the page: a sentence in parts, the words that move, and what the model alone writes.

    It is ``done`` once its words were compared with others, or will not be.
    """
    step, sentence = found(masked, alone, refers, controls)
    message: Message = {
        "kind": "finding",
        "alone": [shown_token(one.token) for one in alone],
        "step": None,
        "words": [],
        "sentence": sentence,
        "compared": [],
        "done": done,
    }
    if step is None:
        return message
    family = None if controls is None else controls.strongest(step.index)
    bands: dict[str, tuple[float, float]] = {}
    if family is not None and family.ranges:
        bands = dict(zip((word.token for word in moved_words(step)), family.ranges[step.index], strict=False))
    return {
        **message,
        "step": step.index,
        "words": [
            {
                "t": shown_token(word.token),
                "shown": round(word.shown, 4),
                "masked": round(word.masked, 4),
                "band": bands.get(word.token),
                "most": ["shown" if view == "factual" else view for view in word.at_most],
            }
            for word in sorted(enough(step), key=lambda word: -word.shown)
        ],
        "after": (prompt + "".join(one.token for one in alone[: step.index]))[-CONTEXT:].partition(" ")[2],
        "marks": named(masked, catalogue("en")),
        "compared": answers(controls, family, step.index) if controls and family else [NO_CONTROL] if done else [],
    }


def compared_message(session: int, branch: int, controls: Controls | None, evidence: Evidence) -> Message:
    """The p-value of each step of a text, and the evidence of all prompts of the project."""
    steps = [] if controls is None else [step_said(controls, step) for step in range(controls.steps)]
    said = ""
    if controls is not None and controls.evidence is not None:
        said = f"Evidence so far: {evidence.product:,.2g} from {plural(evidence.prompts, 'prompt')} of this project. "
        said += (
            f"By chance at most 1 in {evidence.product:,.2g} searches ever reaches this."
            if evidence.product > 1
            else "From 20 on it is strong, whichever prompts you choose and whenever you stop."
        )
    return {"kind": "compared", "session": session, "branch": branch, "steps": steps, "evidence": said}


def watched(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """The tokens of each step whose probabilities with comparable words the page may show."""
    return [tuple(word.token_id for word in moved_words(step)) for step in steps]


def answers(controls: Controls, family: FamilyControls, step: int) -> list[tuple[str, str]]:
    """The two questions that controls answer of a step, each with its answer and what that rests on."""
    mark, own = quoted(family.marked.word), family.marked.effects[step]
    p_value = f"p = {controls.p_value(step):.2g}"
    listed = []
    if family.neutral:
        kind = "neutral words" if family.fits == "neutral" else "other names of the same group"
        such = listed_words([quoted(row.word) for row in family.neutral[:2]], "or")
        yes = "No" if controls.supports(step) else "Yes, it could"
        listed.append((
            f"Would a comparable word do the same? {yes} ({p_value}).",
            f"The grey band is where {len(family.neutral)} {kind} in its place put it, such as {such}. "
            f"{_reach(family.neutral, own, step)} as far as {mark} here; p counts the whole text.",
        ))  # fmt: skip
    if family.others:
        first = max(family.others, key=lambda row: row.effects[step])
        ahead = sum(row.effects[step] > own for row in family.others)
        title = f"Does another word of the prompt do more? {'Yes' if ahead else 'No'}"
        title += "." if family.neutral else f" ({p_value})."
        moves = "moves" if ahead == 1 else "move"
        text = f"{count(ahead)} of {plural(len(family.others), 'other word')} {moves} the next word more when masked. "
        text += f"The one that moves it most is {quoted(first.word)} ({first.effects[step]:.2f}; {mark} {own:.2f})."
        if not family.neutral:
            text += f" No neutral word fits in place of {mark}, so these decide: p cannot fall below "
            text += f"{1 / (len(family.others) + 1):.2g}."
        listed.append((title, text))
    if not listed:
        listed.append(("Nothing is compared with it.", f"The prompt has no word that is comparable with {mark}."))
    return listed


def _reach(rows: Sequence[Effects], own: float, step: int) -> str:
    """How many go as far as the marked word at a step."""
    far = sum(row.effects[step] >= own for row in rows)
    return f"{count(far)} of them {'goes' if far == 1 else 'go'}" if far else "None of them goes"
