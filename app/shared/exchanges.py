"""A prompt with its attribute exchanged: other pronouns, or another group in the place of the marked one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.shared.errors import ServiceError
from coft_core.text.agreement import PRONOUN_SETS, PronounSet, Role, find_pronouns, is_pronoun
from coft_core.text.rewording import Replacement, swap_text
from coft_core.text.vocabulary import lexicon_words
from coft_core.types import Span

AS_TYPED = "as typed"


@dataclass(frozen=True, slots=True)
class Variant:
    """The prompt with an attribute replaced."""

    label: str
    prompt: str
    spans: tuple[Span, ...]
    replacements: tuple[Replacement, ...] = ()
    notes: tuple[str, ...] = ()


def known_set(name: str) -> PronounSet:
    """A set of pronouns by its name."""
    if name not in PRONOUN_SETS:
        raise ServiceError(f"There are no pronouns {name!r}; choose {', '.join(PRONOUN_SETS)}.")
    return name


def with_pronouns(
    prompt: str, spans: Sequence[Span], targets: Sequence[Span], name: str, roles: Mapping[int, Role] | None = None
) -> Variant:
    """The prompt with other pronouns in the place of those in some spans."""
    wanted = known_set(name)
    if not any(item.meets(span) for item in find_pronouns(prompt) for span in targets):
        raise ServiceError("No masked word is a pronoun, so none is exchanged; mask one, or choose groups instead.")
    swapped = swap_text(prompt, spans, wanted=wanted, targets=targets, roles=dict(roles or {}))
    return Variant(wanted, swapped.text, swapped.spans, swapped.replacements, swapped.notes)


def with_group(
    prompt: str,
    spans: Sequence[Span],
    targets: Sequence[Span],
    replaced: Sequence[Span],
    group: str,
    pronouns: str | None = None,
    roles: Mapping[int, Role] | None = None,
) -> Variant:
    """The prompt with a group in the place of some spans, and other pronouns in the further targets where they go."""
    name = " ".join(group.split())
    if not name:
        raise ServiceError("A group is empty; write a word, or leave it out.")
    new = {span: lexicon_words().inflected(name, like=prompt[span.start : span.end]) for span in replaced}
    wanted = None if pronouns is None else known_set(pronouns)
    others = [span for span in targets if span not in new]
    swapped = swap_text(prompt, spans, new, wanted, others, dict(roles or {}))
    label = name if wanted is None else f"{name}, {wanted}"
    return Variant(label, swapped.text, swapped.spans, swapped.replacements, swapped.notes)


def group_spans(prompt: str, targets: Sequence[Span], category: str | None = None) -> list[Span]:
    """The spans that a group takes the place of: those that are more than a pronoun, of one family."""
    pronouns = find_pronouns(prompt)
    words = [span for span in targets if not is_pronoun(span, pronouns)]
    families = sorted({span.category for span in words})
    if category is not None:
        words = [span for span in words if span.category == category]
    elif len(families) > 1:
        raise ServiceError(f"Words of {' and '.join(families)} are masked; choose the family that a group replaces.")
    if not words:
        raise ServiceError("No masked word can be replaced by a group; mask the words that name one.")
    return words
