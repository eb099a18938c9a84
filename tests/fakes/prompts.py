"""Spans of a prompt and its masked reading, without a detector or a tokenizer."""

from __future__ import annotations

import re

from app.shared.audits import AuditSettings, MaskPiece, MaskPreview
from coft_core.errors import InvalidInputError
from coft_core.text.masking import check_whitelist, keep_whitelisted
from coft_core.text.merging import cut_spans
from coft_core.types import FAMILIES, Span
from tests.fakes.data import LEXICON
from tests.fakes.user_lists import FakeUserLists

SENTINEL = "“<mask>” stands for every masked token: the tokenizer's mask token."
"""What the made-up models say of their sentinel."""


def found_spans(text: str, settings: AuditSettings, usual: tuple[str, ...], lists: FakeUserLists) -> tuple[Span, ...]:
    """Words of a small lexicon; ``usual`` are the families that are masked unless the settings say otherwise."""
    masked = usual if settings.masked_families is None else settings.masked_families
    if not text.strip():
        raise InvalidInputError("The prompt is empty: type the text that the model should continue.")
    found = []
    for match in re.finditer(r"\w+", text):
        if match.group().lower() in LEXICON:
            family, detail = LEXICON[match.group().lower()]
            score = 0.93 if family == "name" else 1.0
            source = "pipeline" if family == "name" else "lexicon"
            offered = family not in masked
            found.append(Span(match.start(), match.end(), family, source, detail, score=score, suggested=offered))
    kept = keep_whitelisted(text, found, check_whitelist(settings.whitelist))
    if settings.user_list_id is None:
        return kept
    own = lists.load(settings.user_list_id).find(text)
    return tuple(sorted((*own, *cut_spans(kept, own, text))))


def masked_reading(prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
    """The prompt with a sentinel, or a hint, for each masked span."""
    filler = settings.sentinel or "<mask>"
    if settings.mask_mode == "soft":
        filler = settings.mask_hint or "a person"
    pieces, cursor, masked = [], 0, 0
    for span in sorted(spans):
        if not span.masked:
            continue
        if span.start > cursor:
            pieces.append(MaskPiece(prompt[cursor : span.start], False))
        pieces.append(MaskPiece(filler, True))
        cursor, masked = span.end, masked + 1
    pieces.append(MaskPiece(prompt[cursor:], False))
    warnings = () if masked else ("Nothing is masked: both branches are equal, and the audit shows no effect.",)
    branches = ("factual", *(families_of(spans) if settings.mask_layout == "factorized" else ("masked",)))
    return MaskPreview(tuple(p for p in pieces if p.text), len(prompt.split()), masked, warnings, branches, SENTINEL)


def families_of(spans: tuple[Span, ...]) -> tuple[str, ...]:
    """Families that are masked, in their usual order."""
    named = {span.category for span in spans if span.masked}
    return tuple(family for family in FAMILIES if family in named)
