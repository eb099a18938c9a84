"""The records of a lexicon: terms and token patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coft_core.masking.inflection import regular_plural

FALSE_FRIEND = "none"
"""The ``family`` of a record that is never a hit and shields the words that it covers."""


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """One term of a lexicon.

    Attributes:
        term: The term as written in running text; a space also stands for a hyphen.
        family: One of :data:`coft_core.types.FAMILIES`, or :data:`FALSE_FRIEND`.
        detail: What kind of term it is, e.g. ``"pronouns"``.
        source: Where the term is from, e.g. ``"curated"``.
        case: ``"any"``; ``"capital"``: words that begin with a capital in the term do so in the text;
            ``"exact"``: only as written.
        match: ``"exact"``, or ``"lemma"``: the plural is a hit too.
        forms: Further inflected forms; for ``"lemma"`` they replace the regular plural.
        context: Names of context rules of which one must hold; empty if every occurrence is a hit.
    """

    term: str
    family: str
    detail: str = ""
    source: str = "curated"
    case: Literal["any", "capital", "exact"] = "any"
    match: Literal["exact", "lemma"] = "exact"
    forms: tuple[str, ...] = ()
    context: tuple[str, ...] = ()

    @property
    def inflections(self) -> tuple[str, ...]:
        """Every inflected surface form other than the term itself."""
        if self.match == "lemma" and not self.forms:
            return (regular_plural(self.term),)
        return self.forms


@dataclass(frozen=True, slots=True)
class TokenPattern:
    """A pattern of tokens, such as an age in years.

    Attributes:
        pattern: JSON text of one spaCy ``Matcher`` pattern over words without compound hyphens.
        family: As in :class:`LexiconEntry`.
        detail: As in :class:`LexiconEntry`.
        source: As in :class:`LexiconEntry`.
        context: As in :class:`LexiconEntry`.
    """

    pattern: str
    family: str
    detail: str = ""
    source: str = "curated"
    context: tuple[str, ...] = ()
