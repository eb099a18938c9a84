"""Words of the lexicons that could take a span's place, and their plurals."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from app.services.views.swaps import SwapOffer
from coft_core.masking.inflection import regular_plural
from coft_core.masking.lexicon import FALSE_FRIEND, Lexicons

NOT_OFFERED = ("slur", "pronouns", "neopronouns")
"""Kinds of words that are marked in prompts and are no groups to compare."""


class SwapWords:
    """What the shipped lexicons know of words; read once, when first needed."""

    def offers(self, category: str, text: str = "") -> tuple[SwapOffer, ...]:
        """Words of a family by kind, those of the text's own kind first.

        Args:
            category: The family.
            text: The words that would be replaced; they are not offered.
        """
        found = self._terms[category]
        lower = text.lower()
        own = next((detail for detail, terms in found.items() if lower in map(str.lower, terms)), None)
        if own is None and self.is_plural(text):
            own = self._details.get(self._singular[lower].lower())
        ordered = sorted(found, key=lambda detail: (detail != own, detail))
        return tuple(
            SwapOffer(detail, tuple(term for term in found[detail] if term.lower() != lower)) for detail in ordered
        )

    def is_plural(self, text: str) -> bool:
        """Whether words are the plural of a term, and no term themselves."""
        return text.lower() in self._singular and text.lower() not in self._plural

    def plural(self, text: str) -> str:
        """The plural of words: as the lexicons have it, else by the regular spelling.

        Plurals stay as they are, and so do terms that have none there, such as "elderly".
        """
        if self.is_plural(text):
            return text
        known = self._plural.get(text.lower())
        return regular_plural(text) if known is None else known or text

    @cached_property
    def _lexicons(self) -> Lexicons:
        return Lexicons.load()

    @cached_property
    def _terms(self) -> defaultdict[str, dict[str, list[str]]]:
        found: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
        for entry in self._lexicons.entries:
            if entry.family != FALSE_FRIEND and entry.detail not in NOT_OFFERED:
                found[entry.family].setdefault(entry.detail, []).append(entry.term)
        return found

    @cached_property
    def _details(self) -> dict[str, str]:
        return {e.term.lower(): e.detail for e in self._lexicons.entries if e.family != FALSE_FRIEND}

    @cached_property
    def _plural(self) -> dict[str, str]:
        """Plural by term in lower case; a term without a plural of its own stands for itself."""
        return {
            entry.term.lower(): next(iter(entry.inflections), "")
            for entry in self._lexicons.entries
            if entry.family != FALSE_FRIEND
        }

    @cached_property
    def _singular(self) -> dict[str, str]:
        """Term by plural in lower case."""
        return {
            form.lower(): entry.term
            for entry in self._lexicons.entries
            if entry.family != FALSE_FRIEND
            for form in entry.inflections
        }
