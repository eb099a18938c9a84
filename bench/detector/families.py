"""Families of words in training texts: from the lexicons where a term is clear, from its neighbours where that is safe.

Words whose family nothing says reliably (an ambiguous term without a telling neighbour, a capitalised word in a text
whose names are not labelled) have no label: they count neither for nor against a family.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bench.detector.labels import GROUP, PERSON, PLACE, Labelled
from bench.detector.running_text import word_lists
from coft_core.text.lexicon import Lexicons, TokenPattern
from coft_core.text.matching import Hit, LexicalMatches, LexiconMatcher

NONE = "NONE"
_ENTITY_FAMILIES = {PERSON: "NAME", GROUP: "NATIONALITY", PLACE: "NATIONALITY"}
_ADJECTIVE_RULES = frozenset(("person", "group", "predicative", "singular_noun", "onset"))
_LEAST_SEEN, _LEAST_ALONE, _MOST_SPEAKING = 30, 0.6, 0.003

Range = tuple[int, int]


def nouns_of_things(texts: Iterable[str]) -> frozenset[str]:
    """Nouns that name no person: words that follow an article, end their phrase, and never speak."""
    lexicons, lists = Lexicons.load(), word_lists()
    after_article, ending, speaking, seen = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for text in texts:
        words = text.lower().replace(".", " .").replace(",", " ,").split()
        for before, word, after in zip(words, words[1:], words[2:], strict=False):
            if not word.isalpha():
                continue
            seen[word] += 1
            speaking[word] += after in lists["speaking"]
            if before in ("the", "a", "an"):
                after_article[word] += 1
                ending[word] += after in lists["phrase_ends"]
    listed = {word for e in lexicons.entries for term in (e.term, *e.inflections) for word in term.lower().split()}
    persons = lexicons.rules.word_lists["person"] | lexicons.rules.word_lists["modifier"]
    return frozenset(
        word
        for word, count in after_article.items()
        if count >= _LEAST_SEEN
        and ending[word] >= _LEAST_ALONE * count
        and speaking[word] <= _MOST_SPEAKING * seen[word]
        and word not in listed
        and word not in persons
    )


class FamilyLabeller:
    """Labels words with the family that they name or reveal; unchanging after construction."""

    def __init__(self, things: frozenset[str] = frozenset()) -> None:
        """Load the shipped lexicons."""
        lexicons = Lexicons.load()
        self._matcher = LexiconMatcher(lexicons)
        self._things = things
        self._persons = lexicons.rules.word_lists["person"]
        self._people = lexicons.rules.people_details

    def ambiguous(self, text: str) -> Iterator[str]:
        """The ambiguous terms of a text, in lower case."""
        for hit in self._matcher.candidates(text).hits:
            if hit.record.context:
                yield getattr(hit.record, "term", "").lower()

    def label(self, text: Labelled, known: Sequence[tuple[int, int, str]] = (), named: bool = True) -> Labelled:
        """Add families to a text."""
        matches = self._matcher.candidates(text.text)
        families = list(known)
        undecided: list[Range] = [] if known else list(text.unknown)
        for hit, start, end in _in_order(matches):
            if any(a < end and start < b for a, b, _ in families):
                continue
            family = self._family(matches, hit, named)
            if family is None:
                undecided.append((start, end))
            elif family != NONE or hit.record.context:
                families.append((start, end, family))
        for start, end, label in text.entities:
            families += [(a, b, _ENTITY_FAMILIES[label]) for a, b in _free(text.text, start, end, families)]
        if not named:
            undecided += _capitalised(matches)
        return replace(text, families=tuple(sorted(families)), undecided=tuple(sorted(undecided)))

    def _family(self, matches: LexicalMatches, hit: Hit, named: bool) -> str | None:
        """The family of a term here, :data:`NONE`, or None if nothing tells."""
        record, lowers = hit.record, matches.view.lowers
        following = lowers[hit.end] if hit.end < len(lowers) else ""
        if not record.context:
            return record.family.upper()
        if isinstance(record, TokenPattern):
            return record.family.upper() if hit.in_rule else NONE
        if record.family == "name":
            return NONE if named else None
        if "title" in record.context:
            return record.family.upper() if hit.in_rule else NONE
        if not _ADJECTIVE_RULES.intersection(record.context):
            return record.family.upper() if hit.in_rule else None
        if hit.in_rule and (following in self._persons or self._begins_person(matches, hit.end)):
            return record.family.upper()
        return NONE if not hit.in_rule and following in self._things else None

    def _begins_person(self, matches: LexicalMatches, index: int) -> bool:
        """Whether a word for a person, such as "man", begins at a token."""
        return any(hit.start == index and hit.record.detail in self._people for hit in matches.hits)


def _in_order(matches: LexicalMatches) -> Iterator[tuple[Hit, int, int]]:
    """Terms with their characters: unambiguous ones first, longer ones first."""
    for hit in sorted(matches.hits, key=lambda hit: (bool(hit.record.context), hit.start - hit.end, hit.start)):
        yield hit, matches.view.starts[hit.start], matches.view.ends[hit.end - 1]


def _free(text: str, start: int, end: int, taken: Sequence[tuple[int, int, str]]) -> Iterator[Range]:
    """The words of a range that nothing has labelled with a family."""
    position = start
    for word in text[start:end].split(" "):
        if not any(a < position + len(word) and position < b and family != NONE for a, b, family in taken):
            yield position, position + len(word)
        position += len(word) + 1


def _capitalised(matches: LexicalMatches) -> Iterator[Range]:
    view = matches.view
    for word, opens, start, end in zip(view.words, view.opens_sentence, view.starts, view.ends, strict=True):
        if word[:1].isupper() and not opens and word != "I":
            yield start, end
