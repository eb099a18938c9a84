"""The swap page's form: what the browser sends as a request, and what can be chosen for a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from app.services.errors import ServiceError
from app.services.views import FAMILY_NAMES, AuditSettings, Span
from app.services.views.swaps import SwapOffer, SwapRequest, SwapTargets, SwapVariant
from app.ui.presenters_format import plural
from app.ui.presenters_session import Message

PRONOUNS = ("she", "he", "they")
LETTERS = "ABCDEFGHIJKL"
"""What variants are called in charts and tables, in their order."""

ROLE_NAMES = {
    "subject": "a subject: “she saw it”",
    "object": "an object: “it saw her”",
    "possessive": "before a noun: “her book”",
    "possessive_pronoun": "without a noun: “it is his”",
    "reflexive": "reflexive: “saw herself”",
}
KINDS = {
    "span": "replaced",
    "pronoun": "pronoun replaced",
    "verb": "verb that must agree",
    "article": "article that must agree",
}


def swap_request(
    given: Mapping[str, Any], spans: tuple[Span, ...], targets: SwapTargets, settings: AuditSettings
) -> SwapRequest:
    """The browser's form as a request; spans and pronouns are named as :func:`named` does.

    Args:
        given: ``prompt``, ``pronouns``, ``groups`` (each with ``text`` and ``with``), ``category``, ``left`` (spans
            that are left as they are), ``roles`` by pronoun, ``original``, and once it runs ``length`` and ``answer``
            (counted from 1).
        spans: The prompt's spans.
        targets: What of it can be replaced.
        settings: Settings of the policy.

    Raises:
        ServiceError: A number is missing.
    """
    left, roles = set(given["left"]), dict(given["roles"])
    groups = [item for item in given["groups"] if str(item["text"]).strip()]
    starts = tuple(span.start for span, name in named(targets.spans) if name not in left)
    pronouns = {name: item for item, name in named(targets.pronouns)}
    return SwapRequest(
        prompt=str(given["prompt"]),
        settings=settings,
        spans=spans,
        pronouns=tuple(name for name in PRONOUNS if name in given["pronouns"]) if targets.has_pronoun else (),
        groups=tuple(str(item["text"]).strip() for item in groups),
        group_pronouns=tuple(str(item["with"]) or None if targets.has_pronoun else None for item in groups),
        category=category_of(given["category"], targets),
        targets=starts,
        roles=tuple((pronouns[name].start, str(role)) for name, role in roles.items() if name in pronouns),
        include_original=bool(given["original"]),
        max_new_tokens=_whole(given.get("length", 1), "length of the chains"),
        answer_step=_whole(given.get("answer", 1), "compared token") - 1,
    )


def named(items: Sequence[Any]) -> list[tuple[Any, str]]:
    """Items of a prompt with names that outlive edits elsewhere in it: the text, and which of those with this text."""
    seen: dict[str, int] = {}
    found = []
    for item in items:
        number = seen[item.text] = seen.get(item.text, 0) + 1
        found.append((item, f"{item.text}#{number}"))
    return found


def category_of(asked: object, targets: SwapTargets) -> str | None:
    """The family that groups replace: the asked-for one if the prompt has it, else its first."""
    return str(asked) if asked in targets.families else next(iter(targets.families), None)


def offered_for(targets: SwapTargets, category: str | None) -> str:
    """The words that suggestions should resemble: the first of the family that groups replace."""
    return next((item.text for item in targets.spans if item.category == category and not item.pronoun), "")


def form_message(
    targets: SwapTargets,
    category: str | None,
    offers: Sequence[SwapOffer],
    variants: Sequence[SwapVariant] | str,
) -> Message:
    """What can be chosen, and the variants as chosen, or why there are none."""
    refusal = next_step(targets, variants) if isinstance(variants, str) else ""
    made = () if isinstance(variants, str) else variants
    return {
        "kind": "look",
        "targets": [
            {"name": name, "text": item.text, "family": FAMILY_NAMES.get(item.category, item.category),
             "key": item.category, "at": item.start + 1, "pronoun": item.pronoun}
            for item, name in named(targets.spans)
        ],
        "hasPronoun": targets.has_pronoun,
        "families": [[key, FAMILY_NAMES.get(key, key)] for key in targets.families],
        "category": category or "",
        "pronouns": [
            {"name": name, "text": item.text, "at": item.start + 1, "role": item.role, "sure": item.sure,
             "roles": [[role, ROLE_NAMES[role]] for role in item.roles]}
            for item, name in named(targets.pronouns)
            if len(item.roles) > 1
        ],
        "offers": [{"detail": offer.detail, "terms": list(offer.terms)} for offer in offers],
        "variants": variants_html(made) if made else "",
        "count": len(made),
        "refusal": refusal,
    }  # fmt: skip


def next_step(targets: SwapTargets, refusal: str) -> str:
    """What to do next where there are no variants yet: a hint while nothing is chosen, else the refusal."""
    if not targets.spans:
        return "Nothing in this prompt is masked: select words in it and mark them, then choose what takes their place."
    if not refusal.startswith("There are not two"):
        return refusal
    words = [f"“{item.text}”" for item in targets.spans if not item.pronoun]
    if words and not targets.has_pronoun:
        return f"Choose at least one group to put in place of {' and '.join(dict.fromkeys(words))}."
    return "Choose pronouns or groups to put in place, so that there are two different variants."


def variants_html(variants: Sequence[SwapVariant]) -> str:
    """The variants as text, with every replacement marked, and what should be checked in them."""
    rows = "".join(_variant(letter, item) for letter, item in zip(LETTERS, variants, strict=False))
    return f'<ol class="variants">{rows}</ol>'


def variant_name(letter: str, label: str) -> str:
    """A variant's letter and label, as markup."""
    return f'<span class="letter">{letter}</span> {escape(label)}'


def _variant(letter: str, variant: SwapVariant) -> str:
    changes = plural(len(variant.replacements), "change") if variant.replacements else "nothing changed"
    notes = "".join(f"<li>{escape(note)}</li>" for note in variant.notes)
    return (
        f'<li><p class="who">{variant_name(letter, variant.label)}<span class="hint tnum">{changes}</span></p>'
        f'<p class="text">{marked_text(variant)}</p>{f"<ul class=check>{notes}</ul>" if notes else ""}</li>'
    )


def marked_text(variant: SwapVariant) -> str:
    """A variant's text with every replacement marked, and what stood there for those who cannot see the mark."""
    pieces, cursor, shift = [], 0, 0
    for change in sorted(variant.replacements, key=lambda item: item.start):
        start = change.start + shift
        end = start + len(change.after)
        shift += len(change.after) - (change.end - change.start)
        doubt = "" if change.sure else " unsure"
        asks = "" if change.sure else '<span class="doubt" aria-hidden="true">?</span>'
        said = f"{KINDS[change.kind]}: was “{change.before}”" + ("" if change.sure else ", to be checked")
        pieces.append(escape(variant.prompt[cursor:start]))
        pieces.append(
            f'<mark class="swapped {change.kind}{doubt}" title="{escape(said)}">{escape(variant.prompt[start:end])}'
            f'{asks}<span class="vh"> ({escape(said)})</span></mark>'
        )
        cursor = end
    return "".join(pieces) + escape(variant.prompt[cursor:])


def _whole(given: object, name: str) -> int:
    text = str(given).strip()
    if not text.isdigit() or int(text) < 1:
        raise ServiceError(f"The {name} is a whole number from 1; correct it.")
    return int(text)
