"""The variants of an attribute swap: which spans are replaced by what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from app.shared.errors import ServiceError
from app.shared.exchanges import AS_TYPED, Variant, group_spans, with_group, with_pronouns
from app.shared.files import RowProblem, all_records, read_csv
from app.swap.types import SwapOutcome, SwapPronoun, SwapRequest, SwapTarget, SwapTargets
from coft_core.controls.groups import Group, group_of, members, paraphrased, reading_of, wordings
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


Exchange = tuple[str | None, str | None]
"""A group's word and the pronouns that are put in place; the prompt as typed has neither."""


def _exchanges(request: SwapRequest) -> list[Exchange]:
    """What a request asks for, the prompt as typed first."""
    typed: list[Exchange] = [(None, None)] if request.include_original else []
    groups = zip(request.groups, _group_pronouns(request), strict=True)
    return [*typed, *((None, name) for name in request.pronouns), *groups]


def _made(
    request: SwapRequest, spans: Sequence[Span], targets: Sequence[Span], roles: Mapping[int, Role], exchange: Exchange
) -> Variant:
    """The request's prompt with an exchange made."""
    word, pronouns = exchange
    if word is not None:
        replaced = group_spans(request.prompt, targets, request.category)
        return with_group(request.prompt, spans, targets, replaced, word, pronouns, roles)
    if pronouns is not None:
        return with_pronouns(request.prompt, spans, targets, pronouns, roles)
    return Variant(AS_TYPED, request.prompt, tuple(spans))


def _exchanged(request: SwapRequest, spans: Sequence[Span]) -> dict[str, tuple[Variant, Exchange]]:
    """The variants by their texts, with how they are made; those with the same text are one."""
    validate_spans(request.prompt, spans)
    targets, roles = _targets(request, spans), _roles(request)
    by_text: dict[str, tuple[Variant, Exchange]] = {}
    for exchange in _exchanges(request):
        variant = _made(request, spans, targets, roles, exchange)
        first, _ = by_text.setdefault(variant.prompt, (variant, exchange))
        if first.label == AS_TYPED and variant is not first:
            # What was typed is one of the variants asked for: its label says which.
            by_text[variant.prompt] = replace(first, label=f"{AS_TYPED} ({variant.label})"), exchange
    return by_text


def swap_variants(request: SwapRequest, spans: Sequence[Span]) -> tuple[Variant, ...]:
    """The variants that a request asks for, the prompt as typed first; variants with the same text are one."""
    by_text = _exchanged(request, spans)
    for text in request.paraphrases:
        paraphrased(request.prompt, spans, text)  # refuses one that lacks a marked word before anything runs
    if len(by_text) < 2:
        raise ServiceError(
            "There are not two different variants to compare; choose pronouns or groups to put in place."
        )
    if len(by_text) > MOST_VARIANTS:
        raise ServiceError(f"There are {len(by_text)} variants; compare at most {MOST_VARIANTS} at once.")
    return tuple(variant for variant, _ in by_text.values())


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """A group of a comparison: its variants by their words, how the first is made, and all words that stand for it."""

    name: str
    variants: dict[str, Variant]
    exchange: Exchange
    words: tuple[str, ...]


def compared_groups(request: SwapRequest, spans: Sequence[Span]) -> tuple[ComparedGroup, ...]:
    """The groups that the variants belong to, each with as many words as there are to be controls."""
    targets, found = _targets(request, spans), {}
    replaced = group_spans(request.prompt, targets, request.category) if request.groups else []
    typed = tuple(dict.fromkeys(request.prompt[span.start : span.end] for span in replaced))
    reading = reading_of(request.prompt, replaced[0], spans) if replaced else "any"
    given = [Group(name, words) for name, words in request.members]
    for variant, exchange in _exchanged(request, spans).values():
        word, pronouns = exchange
        words = typed if exchange == (None, None) else (word,) if word else ()
        group = group_of(words, reading, given) if words else Group(pronouns or AS_TYPED, ())
        # One list with two sets of pronouns is two groups.
        apart = any(name == group.name and other != pronouns for name, other in found)
        name = variant.label if apart else group.name
        _, variants, _ = found.setdefault((name, pronouns), (group, {}, exchange))
        variants[", ".join(words) or group.name] = variant
    return tuple(
        ComparedGroup(name, variants, way, members(group, tuple(variants), request.settings.controls, request.prompt))
        for (name, _), (group, variants, way) in found.items()
    )


@dataclass(frozen=True, slots=True)
class ControlVariant:
    """A variant with another word for a group, or another wording of the group's first one."""

    group: int
    word: str
    variant: Variant
    is_wording: bool


def control_variants(request: SwapRequest, spans: Sequence[Span]) -> Iterator[ControlVariant]:
    """Everything that controls run: each group's words, and wordings of its first variant."""
    targets, roles = _targets(request, spans), _roles(request)
    for place, group in enumerate(compared_groups(request, spans)):
        for word in group.words:
            made = group.variants.get(word) or _made(request, spans, targets, roles, (word, group.exchange[1]))
            yield ControlVariant(place, word, made, is_wording=False)
        first = next(iter(group.variants.values()))
        for label, made in _wordings(request, spans, first, group.exchange):
            yield ControlVariant(place, label, made, is_wording=True)


def _wordings(
    request: SwapRequest, spans: Sequence[Span], first: Variant, exchange: Exchange
) -> Iterator[tuple[str, Variant]]:
    """Other wordings of a variant: the reviewer's with the exchange made, else those by rules."""
    for text in request.paraphrases:
        moved = dict(zip(spans, paraphrased(request.prompt, spans, text), strict=True))
        targets = [moved[span] for span in _targets(request, spans)]
        yield text, _made(replace(request, prompt=text), tuple(moved.values()), targets, {}, exchange)
    if not request.paraphrases:
        for label, made in wordings(first.prompt, first.spans, request.settings.controls).items():
            yield label, Variant(label, made.text, made.spans)


LIST_COLUMNS = ("group", "word", "paraphrase")


def words_from(text: str, name: str) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]:
    """Words by group, and paraphrases, from CSV text with the columns group and word, or paraphrase, or all three."""
    members: dict[str, list[str]] = {}
    paraphrases = []
    for line, row in all_records(read_csv(text, name, LIST_COLUMNS), name):
        if isinstance(row, RowProblem):
            raise ServiceError(f"Line {line} of {name}: {row.column} {row.message}.")
        group, word, paraphrase = (row.get(column, "").strip() for column in LIST_COLUMNS)
        if bool(group) is not bool(word):
            raise ServiceError(f"Line {line} of {name} has a group without a word or a word without a group; add it.")
        if word:
            members.setdefault(group, []).append(word)
        if paraphrase:
            paraphrases.append(paraphrase)
    if not members and not paraphrases:
        raise ServiceError(f"{name} has neither words nor paraphrases; name the columns {', '.join(LIST_COLUMNS)}.")
    return tuple((group, tuple(dict.fromkeys(words))) for group, words in members.items()), tuple(paraphrases)


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
