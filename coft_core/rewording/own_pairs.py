"""Substitutions that a reviewer writes herself, such as ``"Muslim = Christian; he = she"``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coft_core.errors import InvalidInputError
from coft_core.rewording.counterfactuals import Substitution, shown_changes
from coft_core.rewording.pronouns import FORMS, PRONOUN_SETS, Pronoun, PronounSet, find_pronouns
from coft_core.rewording.text import reword
from coft_core.rewording.vocabulary import lexicon_words
from coft_core.types import Span

Pairs = tuple[tuple[str, str], ...]
"""Words with what takes their place."""


def parse_pairs(written: str) -> Pairs:
    """The pairs of one substitution: ``old = new``, several with a semicolon between them.

    Raises:
        InvalidInputError: A pair has no equals sign, or one of its sides is empty.
    """
    found = []
    for pair in written.split(";"):
        old, sign, new = (part.strip() for part in pair.partition("="))
        if not (old and sign and new):
            raise InvalidInputError(
                f"The substitution {written.strip()!r} cannot be read; write it as “old = new”, and several with “;” "
                "between them."
            )
        found.append((old, new))
    return tuple(found)


def substituted(text: str, spans: Sequence[Span], pairs: Pairs) -> Substitution | None:
    """A prompt with pairs of words substituted, wherever they stand outside spans that are kept visible.

    A pronoun stands for its whole set where both sides are pronouns: ``he = she`` also changes "his". The plural of a
    word that the lexicons know is substituted by a plural. Of several pairs that fit a place the first one counts.

    Args:
        text: The prompt.
        spans: Its spans.
        pairs: The pairs.

    Returns:
        The reworded prompt; None if nothing in it fits.
    """
    kept = [span for span in spans if span.kept]
    found: dict[Span, str] = {}
    sets: dict[Pronoun, PronounSet] = {}
    for old, new in pairs:
        source, wanted = _pronouns(old), _pronouns(new)
        if source is not None and wanted is not None:
            pronouns = (p for p in find_pronouns(text) if source in p.sets and not any(p.meets(s) for s in kept))
            sets = {**dict.fromkeys(pronouns, wanted), **sets}
            continue
        for span, word in _occurrences(text, old, new):
            if all(span.end <= other.start or other.end <= span.start for other in (*kept, *found)):
                found[span] = word
    reworded = reword(text, spans, found, sets)
    return None if reworded.text == text else Substitution(shown_changes(reworded.replacements), reworded.text)


def _pronouns(word: str) -> PronounSet | None:
    """The set that a pronoun belongs to; "her" is one of she, "his" one of he."""
    return next((name for name in PRONOUN_SETS if word.lower() in FORMS[name].values()), None)


def _occurrences(text: str, old: str, new: str) -> list[tuple[Span, str]]:
    """Where a word or its plural stands, with what takes its place."""
    words = lexicon_words()
    forms = {old.lower(): new}
    if words.kind(old) is not None:
        forms.setdefault(words.plural(old).lower(), words.plural(new))
    pattern = "|".join(sorted(map(re.escape, forms), key=len, reverse=True))
    places = re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.IGNORECASE)
    return [(Span(place.start(), place.end(), "other"), forms[place.group().lower()]) for place in places]
