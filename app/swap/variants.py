"""The variants of an attribute swap: which spans are replaced by what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from app.shared.errors import ServiceError
from app.shared.exchanges import AS_TYPED, Variant, group_spans, with_group, with_pronouns
from app.swap.types import SwapOutcome, SwapPronoun, SwapRequest, SwapTarget, SwapTargets
from coft_core.text.agreement import FORMS, ROLES, Pronoun, Role, find_pronouns, is_pronoun
from coft_core.text.merging import validate_spans
from coft_core.text.vocabulary import lexicon_words, shipped_tables
from coft_core.types import Span


def swap_targets(prompt: str, spans: Sequence[Span]) -> SwapTargets:
    """The masked spans of a prompt, without kept and suggested ones, and its pronouns as they are read."""
    validate_spans(prompt, spans)
    pronouns = find_pronouns(prompt)
    return SwapTargets(
        tuple(
            SwapTarget(s.start, s.end, prompt[s.start : s.end], s.category, is_pronoun(s, pronouns))
            for s in sorted(spans)
            if s.masked
        ),
        tuple(_shown(prompt, item) for item in pronouns),
    )


def _shown(prompt: str, item: Pronoun) -> SwapPronoun:
    text = prompt[item.start : item.end]
    possible = tuple(role for role in ROLES if any(FORMS[name][role] == text.lower() for name in item.sets))
    return SwapPronoun(item.start, item.end, text, item.role, possible or (item.role,), item.sure)


USUAL = 6
"""How many counterparts are offered before others are searched for."""
USUAL_NAMES = ("Emily", "Greg", "Lakisha", "Jamal", "Maria", "Mohammed")


def swap_offers(category: str, text: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The usual counterparts of a word, and further words of its family that can take its place."""
    words, tables = lexicon_words(), shipped_tables()
    kinds, kind = words.kinds(category), words.kind(text)
    rows = [row for row in tables.groups if row.family == category]
    # Rows that list the word come first, then those for its kind.
    rows.sort(key=lambda row: (row.place(text) is None, kind not in row.kinds))
    usual = [word for row in rows for word in row.words]
    if category == "gender" and (found := tables.gendered_word(text)):
        usual = [found[0].female, found[0].male, found[0].neutral, *usual]
    if category == "name":
        usual = [*USUAL_NAMES]
    # Only kinds that a table compares are groups; other words are there to be found in prompts.
    compared = [kind for row in rows for kind in row.kinds] or [kind for kind in kinds if category == "name"]
    further = [term for each in compared for term in kinds.get(each, ())]
    known = tuple(dict.fromkeys(word for word in (*usual, *further) if word and word.lower() != text.lower()))
    return known[:USUAL], known[USUAL:]


def swap_notes(request: SwapRequest, outcomes: Sequence[SwapOutcome]) -> list[str]:
    """Sentences on what a distance includes, and on variants whose masked views cannot be equal."""
    settings = request.settings
    notes = [
        f"Distributions are compared over the whole vocabulary at temperature {settings.temperature:g}, before top-p "
        "and top-k."
    ]
    first = outcomes[0]
    for other in (outcome for outcome in outcomes if not outcome.masked_like_first):
        why = "other words stand outside its masked spans"
        if other.tokens != first.tokens:
            why = f"it has {other.tokens} tokens instead of {first.tokens}"
        notes.append(
            f"The masked prompt of “{other.variant.label}” is not that of “{first.variant.label}” ({why}), so that the "
            "masked view differs too."
        )
    beginnings = [
        {tuple(step.token_id for step in chain.steps[: request.answer_step]) for chain in chains}
        for chains in zip(*((outcome.policy, outcome.vanilla) for outcome in outcomes), strict=True)
    ]
    if any(len(texts) > 1 for texts in beginnings):
        notes.append(
            f"Token {request.answer_step + 1} follows what each text wrote before it, which is not the same in all "
            "variants; part of the distance comes from there."
        )
    if settings.policy == "vanilla":
        notes.append("The policy is vanilla decoding itself, so that both texts of a variant are the same.")
    return notes


MOST_VARIANTS = 12
"""Every variant runs two chains, and every pair of variants is compared."""


def swap_variants(request: SwapRequest, spans: Sequence[Span]) -> tuple[Variant, ...]:
    """The variants that a request asks for, the prompt as typed first; variants with the same text are one."""
    validate_spans(request.prompt, spans)
    prompt, targets, roles = request.prompt, _targets(request, spans), _roles(request)
    variants = [Variant(AS_TYPED, prompt, tuple(spans))] if request.include_original else []
    variants += [with_pronouns(prompt, spans, targets, name, roles) for name in request.pronouns]
    if request.groups:
        replaced = group_spans(prompt, targets, request.category)
        for group, pronouns in zip(request.groups, _group_pronouns(request), strict=True):
            variants.append(with_group(prompt, spans, targets, replaced, group, pronouns, roles))
    by_text: dict[str, Variant] = {}
    for variant in variants:
        first = by_text.setdefault(variant.prompt, variant)
        if first.label == AS_TYPED and variant is not first:
            # What was typed is one of the variants asked for: its label says which.
            by_text[variant.prompt] = replace(first, label=f"{AS_TYPED} ({variant.label})")
    if len(by_text) < 2:
        raise ServiceError(
            "There are not two different variants to compare; choose pronouns or groups to put in place."
        )
    if len(by_text) > MOST_VARIANTS:
        raise ServiceError(f"There are {len(by_text)} variants; compare at most {MOST_VARIANTS} at once.")
    return tuple(by_text.values())


def _targets(request: SwapRequest, spans: Sequence[Span]) -> list[Span]:
    masked = [span for span in spans if span.masked]
    if request.targets is None:
        return masked
    chosen = [span for span in masked if span.start in request.targets]
    if missing := sorted(set(request.targets) - {span.start for span in chosen}):
        raise ServiceError(f"No masked span begins at character {missing[0] + 1}; choose among the masked ones.")
    return chosen


def _group_pronouns(request: SwapRequest) -> tuple[str | None, ...]:
    if not request.group_pronouns:
        return (None,) * len(request.groups)
    if len(request.group_pronouns) != len(request.groups):
        raise ServiceError(
            f"There are {len(request.groups)} groups and pronouns for {len(request.group_pronouns)}; give each group "
            "its pronouns, or none."
        )
    return request.group_pronouns


def _roles(request: SwapRequest) -> dict[int, Role]:
    starts = {pronoun.start for pronoun in find_pronouns(request.prompt)}
    for start, role in request.roles:
        if role not in ROLES:
            raise ServiceError(f"A pronoun cannot be {role!r}; choose {', '.join(ROLES)}.")
        if start not in starts:
            raise ServiceError(f"No pronoun begins at character {start + 1}; choose one that does.")
    return {start: cast(Role, role) for start, role in request.roles}
