"""Finds the terms of lexicons in tokens: spaCy's matchers, then false friends, then the context.

What an ambiguous term means is decided by its context rules, or, where there is a trained pipeline, by the probability
that the pipeline gives in this context; a rule that holds then lowers the bar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spacy.matcher import Matcher, PhraseMatcher

from coft_core.text.lexicon import FALSE_FRIEND, LexiconEntry, Lexicons, TokenClasses, TokenPattern
from coft_core.text.merging import disjoint
from coft_core.text.tokens import TokenView, english_tokenizer, view_tokens

Judge = Callable[[int, int], float]
"""The probability that the words between two character offsets name or reveal a protected attribute."""

RULE_SCORE: Final = 0.9
"""Score of an ambiguous term that a context rule alone accepts: about the rules' precision (see ``bench/detector``)."""

BAR: Final = 0.8
"""Probability from which an ambiguous term is a hit though no context rule holds."""

BAR_APPEARANCE: Final = 0.5
"""The same for appearance, whose words ("short", "heavy") the pipeline rates too low where they describe a person."""

BAR_WITH_RULE: Final = 0.1
"""The same where a context rule holds."""

_VETO = "not_"


@dataclass(frozen=True, slots=True)
class Hit:
    """A term found in a text."""

    start: int
    end: int
    record: LexiconEntry | TokenPattern
    inflected: bool = False
    score: float = 1.0
    in_rule: bool = True


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """What the lexicons find in one text."""

    view: TokenView
    hits: tuple[Hit, ...]
    shielded: tuple[tuple[int, int], ...]


class LexiconMatcher:
    """Matches lexicons against texts; unchanging after construction."""

    def __init__(self, lexicons: Lexicons) -> None:
        """Compile the lexicons."""
        self._nlp = english_tokenizer()
        self._rules = lexicons.rules
        self._patterns = lexicons.patterns
        self._surfaces = [
            (entry, surface, place > 0)
            for entry in lexicons.entries
            for place, surface in enumerate((entry.term, *entry.inflections))
        ]
        self._folded = PhraseMatcher(self._nlp.vocab, attr="LOWER")
        self._literal = PhraseMatcher(self._nlp.vocab, attr="ORTH")
        self._shapes = Matcher(self._nlp.vocab)
        for index, (entry, surface, _) in enumerate(self._surfaces):
            matcher = self._literal if entry.case == "exact" else self._folded
            matcher.add(f"s{index}", [view_tokens(self._nlp, surface).doc(self._nlp)])
        for index, pattern in enumerate(self._patterns):
            self._shapes.add(f"p{index}", [json.loads(pattern.pattern)], greedy="LONGEST")

    def match(self, text: str, judge: Judge | None = None) -> LexicalMatches:
        """Find the lexicons' terms in a text: of several that overlap the longest, then the first, then as listed.

        Ambiguous terms are judged in context; without a judge they are left to the context rules.
        """
        read = self.candidates(text)
        judged = (_judged(hit, read.view, judge) for hit in read.hits)
        hits = disjoint((hit for hit in judged if hit is not None), lambda hit: (hit.start, hit.end))
        return replace(read, hits=tuple(hits))

    def candidates(self, text: str) -> LexicalMatches:
        """Every occurrence outside false friends, overlapping ones too, with whether a context rule holds."""
        view = view_tokens(self._nlp, text)
        occurrences = list(self._find(view))
        shielded = tuple((hit.start, hit.end) for hit in occurrences if hit.record.family == FALSE_FRIEND)
        candidates = [
            hit
            for hit in occurrences
            if hit.record.family != FALSE_FRIEND
            and not any(start <= hit.start and hit.end <= end for start, end in shielded)
        ]
        classes = TokenClasses(view, self._labels(len(view), candidates), self._rules.word_lists)
        hits = tuple(hit if self._fits(classes, hit) else replace(hit, in_rule=False) for hit in candidates)
        return LexicalMatches(view, hits, shielded)

    def _find(self, view: TokenView) -> Iterator[Hit]:
        doc, strings = view.doc(self._nlp), self._nlp.vocab.strings
        for key, start, end in (*self._folded(doc), *self._literal(doc)):
            entry, surface, inflected = self._surfaces[int(strings[key][1:])]
            if entry.case != "capital" or _keeps_capitals(surface, view.words[start:end]):
                yield Hit(start, end, entry, inflected)
        for key, start, end in self._shapes(doc) if self._patterns else ():
            yield Hit(start, end, self._patterns[int(strings[key][1:])])

    def _labels(self, length: int, hits: Iterable[Hit]) -> Sequence[frozenset[str]]:
        labels: list[set[str]] = [set() for _ in range(length)]
        for hit in hits:
            record = hit.record
            names = {"@identity", "@name"} if record.family == "name" else {"@identity"}
            if record.detail == "pronouns":
                names = {"@pronoun"}
            elif record.detail in self._rules.people_details or (
                hit.inflected and record.detail in self._rules.plural_people_details
            ):
                names.add("@people")
            for index in range(hit.start, hit.end):
                labels[index] |= names
        return [frozenset(names) for names in labels]

    def _fits(self, classes: TokenClasses, hit: Hit) -> bool:
        names = hit.record.context
        return not names or any(classes.holds(self._rules.rules[name], hit.start, hit.end) for name in names)


def _judged(hit: Hit, view: TokenView, judge: Judge | None) -> Hit | None:
    """The hit with its score, or None if its context says that it is none."""
    if not hit.record.context:
        return hit
    vetoed_only = all(name.startswith(_VETO) for name in hit.record.context)
    # The pipeline rates single words, and a name low whose word has another meaning ("Rose"); its rule is surer.
    named = hit.in_rule and hit.record.family == "name"
    if judge is None or vetoed_only or named or isinstance(hit.record, TokenPattern):
        return replace(hit, score=RULE_SCORE) if hit.in_rule else None
    score = judge(view.starts[hit.start], view.ends[hit.end - 1])
    bar = BAR_APPEARANCE if hit.record.family == "appearance" else BAR
    return replace(hit, score=score) if score >= (BAR_WITH_RULE if hit.in_rule else bar) else None


def _keeps_capitals(surface: str, words: Sequence[str]) -> bool:
    """Whether the words begin with a capital wherever those of the surface form do."""
    wanted = surface.replace("-", " ").split()
    return all(word[:1].isupper() for word, want in zip(words, wanted, strict=False) if want[:1].isupper())
