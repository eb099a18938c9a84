"""Neutral rewriting: the prompt is rewritten so that it names no attribute, and the model continues the rewriting.

Vanmassenhove, Emmery and Shterionov, "NeuTral Rewriter: A Rule-Based and Neural Approach to Automatic Rewriting into
Gender-Neutral Alternatives", EMNLP 2021; Sun, Webster, Shah, Wang and Johnson, "They, Them, Theirs: Rewriting with
Gender-Neutral English", 2021.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from coft_core.errors import InvalidInputError
from coft_core.model.branches import write_greedily
from coft_core.model.language_model import LanguageModel
from coft_core.model.slots import rows_size
from coft_core.policies.base import parameter
from coft_core.policies.baseline import BaselinePolicy, reading
from coft_core.text.counterfactuals import rewording_version
from coft_core.text.masking import MaskedPrompt
from coft_core.text.neutral import neutral_text

REWRITTEN = "rewritten"
REWRITER = "rewriter"
RULES, MODEL = "rules", "model"
PLACE = "{text}"
INSTRUCTION = (
    "Rewrite the text below so that it no longer says or hints at anyone's gender, race, religion, nationality, age, "
    "disability, appearance or sexual orientation. Keep everything else, and write nothing but the rewritten text.\n\n"
    "Text: {text}\n\nRewritten text:"
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A rewritten prompt, and what must be said of it, one sentence each."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class NeutralRewritePolicy(BaselinePolicy):
    """Rewrite the prompt once, before the first token, then decode as the model alone would.

    The COFT paper has a "neutral LLM rewrite pre-processor" (appendix on symmetric baselines) and prints neither its
    prompt nor its model. Here a model rewrites greedily after an instruction, or rules rewrite only the masked spans
    (:func:`coft_core.text.neutral.neutral_text`).
    """

    by: str = parameter(RULES, "choice", "Rewritten by", "Rules, or a model.", choices=(RULES, MODEL))
    rewriter: str = parameter("", "model", "Rewriting model", "Empty is the audited model.", optional=True)
    instruction: str = parameter(
        INSTRUCTION, "text", "Instruction", "For a model, with {text} where the prompt stands."
    )
    longest: int = parameter(256, "whole", "Longest rewriting", "Tokens that a model writes at most.", low=1, high=4096)
    rewriting: Rewriting | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "neutral_rewrite"
    title: ClassVar[str] = "Neutral rewrite"
    drawn_from: ClassVar[str] = REWRITTEN
    writers = (REWRITER,)

    def __post_init__(self) -> None:
        """Validate; the instruction needs a place for the prompt."""
        super().__post_init__()
        if PLACE not in self.instruction:
            raise InvalidInputError(f"Instruction has no {PLACE}; write it where the prompt is to stand.")

    @property
    def models(self) -> dict[str, str]:
        """The rewriting model, where it is another one."""
        return {REWRITER: self.rewriter} if self.by == MODEL and self.rewriter else {}

    @property
    def label(self) -> str:
        """The method and its parameters, and the tables where it rewrites by rules."""
        return f"{super().label}, rewording {rewording_version()}" if self.by == RULES else super().label

    def bound(self, model: LanguageModel, models: Mapping[str, LanguageModel], prompt: MaskedPrompt) -> Self:
        """This policy with the rewritten prompt."""
        writer = models.get(REWRITER, model)
        rewriting = _by_rules(prompt) if self.by == RULES else self._by_model(writer, prompt)
        return replace(self, rewriting=rewriting, method_branches=(reading(REWRITTEN, model, rewriting.text),))

    def writing_size(self, model: LanguageModel, models: Mapping[str, LanguageModel], text: str) -> int:
        """Bytes of keys and values of the rewriting model's one row; 0 for the rules."""
        if self.by == RULES:
            return 0
        writer = models.get(REWRITER, model)
        return rows_size(writer, 1, len(self._instructed(writer, text)) + self.longest)

    def notes(self, prompt: MaskedPrompt) -> tuple[str, ...]:
        """What the prompt was rewritten to, and what to check in it."""
        if self.rewriting is None:
            return ()
        if self.rewriting.text == prompt.factual_text:
            return (
                "Nothing in this prompt was rewritten, so the policy writes what vanilla decoding writes.",
                *self.rewriting.notes,
            )
        return (f"The model reads this rewriting of the prompt: “{self.rewriting.text}”", *self.rewriting.notes)

    def _instructed(self, writer: LanguageModel, text: str) -> tuple[int, ...]:
        """The instruction with the prompt in it, in the rewriting model's tokens."""
        return reading(REWRITER, writer, self.instruction.replace(PLACE, text)).input_ids

    def _by_model(self, writer: LanguageModel, prompt: MaskedPrompt) -> Rewriting:
        text = prompt.factual_text
        instructed = self._instructed(writer, text)
        # Models without a chat template go on after their answer; a line more than the prompt has is no part of it.
        lines = None if writer.chat else text.count("\n") + 1
        written = write_greedily(writer, instructed, self.longest, lambda told: _complete(told, lines))
        rewritten = "\n".join(written.text.strip().splitlines()[:lines]).strip()
        if not rewritten:
            raise InvalidInputError(
                f"The model {writer.name!r} wrote nothing when it was asked to rewrite the prompt; choose another "
                "model, another instruction, or the rules."
            )
        cut = ("The rewriting was cut before its end; let it be longer, or shorten the prompt.",) if written.cut else ()
        return Rewriting(rewritten, (*cut, *_still_named(prompt, rewritten)))


def _by_rules(prompt: MaskedPrompt) -> Rewriting:
    neutral = neutral_text(prompt.factual_text, prompt.spans)
    left = [f"No neutral words are known for “{word}”, which stays." for word in neutral.left]
    merged = [
        f"{' and '.join(f'“{word}”' for word in words)} were rewritten alike; what they told apart may be mixed up now."
        for words in neutral.merged
    ]
    return Rewriting(neutral.text, (*left, *merged))


def _complete(written: str, lines: int | None) -> bool:
    return lines is not None and written.lstrip().count("\n") >= lines


def _still_named(prompt: MaskedPrompt, rewritten: str) -> tuple[str, ...]:
    """Masked words of the prompt that a model left in its rewriting."""
    words = dict.fromkeys(prompt.factual_text[s.start : s.end].strip() for s in prompt.spans if s.masked)
    left = [w for w in words if re.search(rf"(?<!\w){re.escape(w)}(?!\w)", rewritten, re.IGNORECASE)]
    return tuple(f"The rewriting still has “{word}”, which is masked in the prompt." for word in left)
