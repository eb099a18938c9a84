"""What is compared with a marked word: prompts with another word in its place, and with another word masked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spacy.lang.en.stop_words import STOP_WORDS

from coft_core.controls.words import NeutralWords, comparable, shuffled
from coft_core.decode.plan import Plan
from coft_core.errors import CoftError
from coft_core.text.masking import MaskedPrompt, mask_families, mask_prompt, masked_families, masked_spans
from coft_core.text.rewording import reword
from coft_core.text.turns import outside_lines
from coft_core.types import Span

Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of a prompt with a word shown, and with it masked; both have one length."""

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Placebo:
    """A prompt in which something comparable was done: its word, and the prompt with it shown and masked."""

    word: str
    pair: Pair


@dataclass(frozen=True, slots=True)
class FamilyPlacebos:
    """The marked words of one family and what is compared with them.

    ``fits`` says what takes the words' place: ``"neutral"`` words, other ``"names"`` of the same group, or nothing.
    """

    family: str
    words: tuple[str, ...]
    pair: Pair
    fits: str
    neutral: tuple[Placebo, ...]
    others: tuple[Placebo, ...]


def placebos_of(plan: Plan, neutral: int, others: int, words: NeutralWords) -> tuple[FamilyPlacebos, ...]:
    """The placebos of each family of marked words, at most so many of either kind.

    Neutral words that keep the number of tokens come first. Which of them are taken depends on the prompt only.
    """
    prompt, families = plan.prompt, plan.policy.mask.families
    spans = masked_spans(prompt, families)
    elsewhere = tuple(_elsewhere(plan, spans, others)) if spans else ()
    found = []
    for family in masked_families(prompt, families):
        own = [span for span in spans if span.category == family]
        fits, replaced = _replaced(plan, own, neutral, words)
        found.append(
            FamilyPlacebos(
                family,
                tuple(dict.fromkeys(prompt.factual_text[span.start : span.end] for span in own)),
                (prompt.factual_ids, mask_families(prompt, (family,))),
                fits,
                replaced,
                _nearest(plan, elsewhere, own, others),
            )
        )
    return tuple(found)


def _masking(plan: Plan, text: str, spans: Sequence[Span]) -> MaskedPrompt:
    """A text masked as the plan's prompt is."""
    mask = plan.policy.mask
    return mask_prompt(
        plan.model.tokenizer, text, spans, mask.sentinel, mask.mode, mask.hint, plan.model.prompting, required=False
    )


def _replaced(plan: Plan, own: Sequence[Span], most: int, words: NeutralWords) -> tuple[str, tuple[Placebo, ...]]:
    """The prompt with comparable words in place of a family's; none where one of its words has none."""
    text, spans = plan.prompt.factual_text, plan.prompt.spans
    marked: dict[str, Span] = {}
    for span in own:
        marked.setdefault(text[span.start : span.end], span)
    choices = {word: comparable(text, span, spans, words) for word, span in marked.items()}
    fits = "names" if any(kind == "names" for kind, _ in choices.values()) else "neutral"
    listed = {word: shuffled(fitting, f"{word}|{text}") for word, (_, fitting) in choices.items()}
    count = min(map(len, listed.values()), default=0)
    if not most or count < len(marked):
        return fits if count else "", ()
    found: dict[str, tuple[Placebo, int]] = {}
    for place in range(min(count, 4 * most)):
        # Words that differ stay different: each has its own place in the same list.
        new = {word: listed[word][(place + shift) % count] for shift, word in enumerate(marked)}
        if len(set(new.values())) == len(new) and (made := _put(plan, own, new)) is not None:
            placebo, longer = made
            found.setdefault(placebo.word, (placebo, longer))
    nearest = sorted(found.values(), key=lambda item: abs(item[1]))
    return fits, tuple(placebo for placebo, _ in nearest[:most])


def _put(plan: Plan, own: Sequence[Span], new: dict[str, str]) -> tuple[Placebo, int] | None:
    """The prompt with new words in place, and how many tokens longer it is; None where it does not fit the model."""
    text = plan.prompt.factual_text
    reworded = reword(text, plan.prompt.spans, {span: new[text[span.start : span.end]] for span in own}, {})
    try:
        prompt = _masking(plan, reworded.text, reworded.spans)
    except CoftError:
        return None
    pair = prompt.factual_ids, mask_families(prompt, (own[0].category,))
    if pair[0] == pair[1]:
        return None
    return Placebo(", ".join(new.values()), pair), len(pair[0]) - len(plan.prompt.factual_ids)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Another word of the prompt, masked."""

    span: Span
    placebo: Placebo
    tokens: int
    content: bool


def _elsewhere(plan: Plan, spans: Sequence[Span], others: int) -> Iterator[_Elsewhere]:
    """The other words of a prompt that no span touches, each masked by itself."""
    text = plan.prompt.factual_text
    words = [Span(match.start(), match.end()) for match in _WORD.finditer(text)] if others else []
    for span in outside_lines(text, words):
        word = text[span.start : span.end]
        if any(span.start < other.end and other.start < span.end for other in plan.prompt.spans):
            continue
        try:
            prompt = _masking(plan, text, (span,))
        except CoftError:
            continue
        touched = {at for at in range(len(prompt.factual_ids)) if prompt.factual_ids[at] != prompt.masked_ids[at]}
        if touched and touched.isdisjoint(plan.prompt.positions):
            placebo = Placebo(word, (prompt.factual_ids, prompt.masked_ids))
            yield _Elsewhere(span, placebo, len(touched), word.casefold() not in STOP_WORDS)


def _nearest(plan: Plan, found: Sequence[_Elsewhere], own: Sequence[Span], most: int) -> tuple[Placebo, ...]:
    """The other words that are most like a family's: content or function words, as many tokens, near it."""
    text, offsets = plan.prompt.factual_text, plan.prompt.offsets
    content = any(text[span.start : span.end].casefold() not in STOP_WORDS for span in own)
    tokens = sum(any(a < span.end and span.start < b for span in own) for a, b in offsets) / len(own)

    def unlike(other: _Elsewhere) -> tuple[bool, float, int]:
        away = min(abs(other.span.start - span.start) for span in own)
        return other.content is not content, abs(other.tokens - tokens), away

    nearest = sorted(found, key=unlike)[:most]
    return tuple(other.placebo for other in sorted(nearest, key=lambda other: other.span))
