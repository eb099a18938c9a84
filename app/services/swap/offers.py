"""Words of the lexicons that could take a span's place, as a page offers them."""

from __future__ import annotations

from app.services.views.swaps import SwapOffer
from coft_core.rewording.vocabulary import LexiconWords


class SwapWords(LexiconWords):
    """The words of the shipped lexicons, offered by kind."""

    def offers(self, category: str, text: str = "") -> tuple[SwapOffer, ...]:
        """Words of a family by kind, those of the text's own kind first.

        Args:
            category: The family.
            text: The words that would be replaced; they are not offered.
        """
        found = self.kinds(category)
        lower = text.lower()
        own = next((detail for detail, terms in found.items() if lower in map(str.lower, terms)), None)
        if own is None and self.is_plural(text):
            own = self.kind(text)
        ordered = sorted(found, key=lambda detail: (detail != own, detail))
        return tuple(
            SwapOffer(detail, tuple(term for term in found[detail] if term.lower() != lower)) for detail in ordered
        )
