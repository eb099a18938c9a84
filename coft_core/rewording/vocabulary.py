"""What the shipped lexicons know of words: their kind, their forms, and who is a person."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property, lru_cache

from coft_core.masking.inflection import regular_plural
from coft_core.masking.lexicon import FALSE_FRIEND, LexiconEntry, Lexicons

NOT_GROUPS = ("slur", "pronouns", "neopronouns")
"""Kinds of words that are marked in prompts and are no groups to compare."""
_COMPARED = ("er", "est")


class LexiconWords:
    """The words of the shipped lexicons, read once, when first needed; letter case and hyphens do not count."""

    def kinds(self, family: str) -> dict[str, tuple[str, ...]]:
        """Terms of a family by kind, in the order of the lexicon; without kinds that are no groups."""
        return {detail: tuple(terms) for detail, terms in self._terms[family].items()}

    def kind(self, text: str) -> str | None:
        """The kind of a term or of one of its forms; None for other words."""
        entry = self._entry(text)
        return None if entry is None else entry.detail

    def base(self, text: str) -> str:
        """The term that words are the plural, the comparative or the superlative of; other words stay as they are."""
        key = _key(text)
        return self._plurals.get(key) or (text if key in self._entries else self._compared.get(key, (text, 0))[0])

    def is_plural(self, text: str) -> bool:
        """Whether words are the plural of a term."""
        return _key(text) in self._plurals

    def plural(self, text: str) -> str:
        """The plural of words: as the lexicons have it, else by the regular spelling.

        Plurals stay as they are, and so do terms that have none there, such as "elderly".
        """
        if self.is_plural(text):
            return text
        entry = self._entries.get(_key(text))
        if entry is None:
            return regular_plural(text)
        plurals = [form for form in entry.inflections if _is_plural(form)]
        if not plurals and _key(f"{text}s") in self._plurals:
            plurals = [f"{text}s"]
        return plurals[0] if plurals else text

    def inflected(self, text: str, like: str) -> str:
        """A term in the form that other words have: the plural of a plural, the superlative of a superlative.

        Args:
            text: The term.
            like: Words whose form it gets; a term that lacks the form stays as it is.
        """
        if self.is_plural(like):
            return self.plural(text)
        if _key(like) in self._entries or _key(like) not in self._compared:
            return text
        place = self._compared[_key(like)][1]
        entry = self._entries.get(_key(text))
        forms = () if entry is None else entry.inflections
        return forms[place] if place < len(forms) else text

    def is_person(self, text: str) -> bool:
        """Whether a single word names a person or several: "woman", "teenagers", "Americans"."""
        entry = self._entry(text)
        if entry is None:
            return False
        rules = self._lexicons.rules
        return entry.detail in rules.people_details or (
            self.is_plural(text) and entry.detail in rules.plural_people_details
        )

    def names_group(self, text: str) -> bool:
        """Whether "the" makes an adjective the name of a group: "the blind"."""
        entry = self._entry(text)
        return entry is not None and "group" in entry.context

    def _entry(self, text: str) -> LexiconEntry | None:
        return self._entries.get(_key(self.base(text)))

    @cached_property
    def _lexicons(self) -> Lexicons:
        return Lexicons.load()

    @cached_property
    def _own(self) -> tuple[LexiconEntry, ...]:
        return tuple(entry for entry in self._lexicons.entries if entry.family != FALSE_FRIEND)

    @cached_property
    def _terms(self) -> defaultdict[str, dict[str, list[str]]]:
        found: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
        for entry in self._own:
            if entry.detail not in NOT_GROUPS:
                found[entry.family].setdefault(entry.detail, []).append(entry.term)
        return found

    @cached_property
    def _entries(self) -> dict[str, LexiconEntry]:
        """Entry by term; the last one of a term that is listed twice."""
        return {_key(entry.term): entry for entry in self._own}

    @cached_property
    def _plurals(self) -> dict[str, str]:
        """Term by plural, also of terms whose plural is listed as a term of its own: "black", "blacks"."""
        listed = {
            _key(entry.term): singular.term
            for entry in self._own
            if (singular := self._entries.get(_key(entry.term)[:-1])) is not None
            and entry.term.endswith("s")
            and singular.family == entry.family
        }
        forms = {_key(form): entry.term for entry in self._own for form in entry.inflections if _is_plural(form)}
        return {**{form: term for form, term in forms.items() if form not in self._entries}, **listed}

    @cached_property
    def _compared(self) -> dict[str, tuple[str, int]]:
        """Term by comparative or superlative, with the form's place among the term's forms."""
        return {
            _key(form): (entry.term, place)
            for entry in self._own
            for place, form in enumerate(entry.inflections)
            if not _is_plural(form)
        }


@lru_cache(maxsize=1)
def lexicon_words() -> LexiconWords:
    """The words of the shipped lexicons, read once."""
    return LexiconWords()


def _is_plural(form: str) -> bool:
    return not form.endswith(_COMPARED)


def _key(text: str) -> str:
    return text.lower().replace("-", " ")
