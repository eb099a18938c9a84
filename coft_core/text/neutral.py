"""A prompt rewritten by rules so that it says nothing of its sensitive attributes.

The rewriting of she and he as they, with the verbs that agree, is that of Sun, Webster, Shah, Wang and Johnson, "They,
Them, Theirs: Rewriting with Gender-Neutral English", 2021, and that of gendered nouns by neutral ones is the rule-based
part of Vanmassenhove, Emmery and Shterionov, "NeuTral Rewriter", EMNLP 2021. Neither treats other attributes; the rules
for those, and all tables, are this program's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from coft_core.text.agreement import (
    begins_phrase,
    find_pronouns,
    has_determiner,
    has_owner,
    intensified_start,
    is_compound_part,
    is_determined,
    joined_end,
    previous_word,
    standing,
    takes_an,
)
from coft_core.text.counterfactuals import GENDERED_FAMILIES
from coft_core.text.merging import overlap
from coft_core.text.rewording import Replacement, reword
from coft_core.text.vocabulary import GenderedWord, Hypernym, LexiconWords, lexicon_words, shipped_tables
from coft_core.types import Span

_AGE_PHRASE = re.compile(r"aged?\b.*|.*\b(?:old|of age)", re.IGNORECASE)
_PHRASE = re.compile(
    r"(?:in|on|of|with|without|from|at|out|over|under|above|below|confined|born)\b.* .*", re.IGNORECASE
)
"""Phrases that stand after a noun: "in a wheelchair", "of African descent"."""
_VERB_PHRASE = re.compile(r"(?:uses|gave|gives|giving|has|coming|came|assigned)\b.* .*", re.IGNORECASE)
_NO_PERSON = re.compile(
    r".*(?:hood|ness|ship|ism|ity|marriage|rights|pride|parade|flag|bar|teens|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ties)",
    re.IGNORECASE,
)
"""Words such as "childhood", "sixties" and "gay marriage", which are listed beside those for people and name none."""
_PEOPLE = ("person", "people")
_NUMERAL = re.compile(r".*\d.*")


@dataclass(frozen=True, slots=True)
class NeutralText:
    """A neutral rewriting."""

    text: str
    replacements: tuple[Replacement, ...]
    left: tuple[str, ...]
    merged: tuple[tuple[str, ...], ...] = ()


def neutral_text(text: str, spans: Sequence[Span]) -> NeutralText:
    """Rewrite the masked spans of a text neutrally.

    - She and he become they, and verbs right beside them agree.
    - Gendered words become those that say neither: "saleswoman", "salesperson".
    - Names become "the person", or "person A", "person B" where there are several; a title before one goes.
    - Adjectives before a noun are left out ("the Muslim man", "the person"); after a verb of being they become a phrase
      that does not say which ("is Muslim", "is of a certain religion").
    - Nouns become their hypernym: "Muslims", "people"; "mosque", "place of worship".

    Whether a word is an adjective or a noun is judged by the words beside it. Words that tell a gender follow where
    they are only suggested, if a masked span tells one; what is kept visible never changes.
    """
    rewriter = _Rewriter(text, spans, lexicon_words())
    reworded = reword(text, spans, rewriter.words, dict.fromkeys(rewriter.pronouns, "they"))
    return NeutralText(reworded.text, reworded.replacements, rewriter.left, rewriter.merged)


class _Rewriter:
    """What takes the place of each span of a text."""

    def __init__(self, text: str, spans: Sequence[Span], words: LexiconWords) -> None:
        self._text, self._words, self._tables = text, words, shipped_tables()
        visible = [span for span in spans if span.kept]
        pronouns = [p for p in find_pronouns(text) if p.sets != {"they"} and not any(map(p.meets, visible))]
        masked = [span for span in spans if span.masked]
        gendered = any(p.meets(span) for p in pronouns for span in masked) or any(map(self._tells_gender, masked))
        self._spans = sorted(s for s in spans if s.masked or (gendered and not s.kept and self._tells_gender(s)))
        self.pronouns = pronouns if gendered else []
        names = person_words(text, [span for span in self._spans if span.category == "name"], self._spans)
        self.words = dict(names)
        left: list[str] = []
        for span in self._spans:
            if any(p.meets(span) for p in self.pronouns) or any(overlap(span, run) for run in names):
                continue
            place, word = self._neutral(span)
            if word is None:
                left.append(text[span.start : span.end])
            else:
                self.words[place] = word
        self.left = tuple(dict.fromkeys(left))

    @property
    def merged(self) -> tuple[tuple[str, ...], ...]:
        """Different words of one family for which the same word stands now."""
        olds: dict[tuple[str, str], list[str]] = {}
        for span, word in sorted(self.words.items()):
            if span.category != "name":  # names become one word only where they are one person's
                base = self._words.base(self._text[span.start : span.end].strip())
                olds.setdefault((span.category, word), []).append(base)
        sets = [sorted(item.sets)[0] for item in self.pronouns if len(item.sets) == 1]
        groups = [dict.fromkeys(map(str.lower, words)) for words in olds.values()] + [dict.fromkeys(sets)]
        return tuple(tuple(group) for group in groups if len(group) > 1)

    def _gendered(self, span: Span) -> GenderedWord | None:
        gendered = self._tables.gendered_word(self._words.base(self._text[span.start : span.end]))
        return None if gendered is None or span.category not in GENDERED_FAMILIES else gendered[0]

    def _tells_gender(self, span: Span) -> bool:
        first = self._text[span.start : span.end].split()[0]
        named = span.category == "name" and self._words.name_gender(first) is not None
        return named or self._gendered(span) is not None

    def _neutral(self, span: Span) -> tuple[Span, str | None]:
        """The span that goes, with what was joined to it, and what takes its place; None if nothing is known."""
        old = self._text[span.start : span.end]
        word = self._gendered(span)
        if word is not None and word.neutral:
            plural = word.neutral_plural or self._words.plural(word.neutral)
            return span, plural if self._words.is_plural(old) else word.neutral
        hypernym = self._tables.hypernym(span.category, span.detail or self._words.kind(old))
        if hypernym is None or is_compound_part(self._text, span) or _VERB_PHRASE.fullmatch(old):
            return span, None
        if not hypernym.predicate:
            return span, self._noun(span, old, hypernym)
        how = standing(self._text, span, self._spans, self._words)
        start = intensified_start(self._text, span.start)
        if how == "attributive":
            return Span(start, joined_end(self._text, span.end) or span.end, span.category), ""
        aged = span.category == "age" and " " in old and _AGE_PHRASE.fullmatch(old) is not None
        after_noun = not has_determiner(self._text, span.start) and (aged or _PHRASE.fullmatch(old) is not None)
        if how == "predicative" or after_noun:
            return Span(start, span.end, span.category), hypernym.predicate
        return span, self._noun(span, old, hypernym)

    def _noun(self, span: Span, old: str, hypernym: Hypernym) -> str | None:
        """A hypernym in the number of the words that it replaces, with an article where the sentence needs one."""
        determined = has_determiner(self._text, span.start)
        if (last := old.split()[-1].lower()) in _PEOPLE or (" " in old and self._words.is_person(last)):
            return "people" if last == "people" or self._words.is_plural(last) else "person"
        no_person = _NO_PERSON.fullmatch(old) is not None or (_NUMERAL.fullmatch(old) is not None and not determined)
        if not hypernym.noun or (no_person and hypernym.noun == "person"):
            return None
        # "The blind" and "the elderly" are many people, and their words have no plural of their own.
        group = self._words.names_group(old) or (hypernym.noun == "person" and self._words.plural(old) == old)
        if group and previous_word(self._text, span.start) == "the":
            return "people"
        if self._words.is_plural(old):
            return hypernym.plural
        if not is_determined(self._text, span.start) and (hypernym.article or begins_phrase(self._text, span.start)):
            return f"{'an' if takes_an(hypernym.noun) else 'a'} {hypernym.noun}"
        return hypernym.noun


_SURNAMES = re.compile(r"(?:[^\S\n]+[A-Z][\w’-]+)*")
_GAP = re.compile(r"[^\S\n]+")


def person_words(text: str, names: Sequence[Span], spans: Sequence[Span]) -> dict[Span, str]:
    """What takes the place of a text's names, by the characters that go; ``spans`` has the titles beside them.

    A name goes with the title before it and the capitalised words after it. Two names that share a word are one person.
    """
    runs: list[Span] = []
    for span in sorted(names):
        if not runs or span.start >= runs[-1].end:
            runs.append(_run(text, span, spans))
    parts = {run: _GAP.split(text[run.start : run.end]) for run in runs}
    people: dict[str, int] = {}
    for named in parts.values():
        person = next((people[part] for part in named if part in people), len(set(people.values())))
        people.update(dict.fromkeys(named, person))
    if len(set(people.values())) == 1:
        return {run: "person" if has_owner(text, run.start) else "the person" for run in runs}
    letters = dict(enumerate(ascii_uppercase))
    return {run: f"person {letters.get(people[named[0]], people[named[0]] + 1)}" for run, named in parts.items()}


def _run(text: str, span: Span, spans: Sequence[Span]) -> Span:
    surnames = _SURNAMES.match(text, span.end)
    start = span.start
    for other in spans:
        title = other.detail == "titles" or text[other.start : other.end].rstrip(".") in ("Mr", "Mrs", "Ms", "Miss")
        if title and _GAP.fullmatch(text, other.end, span.start):
            start = other.start
    return Span(start, surnames.end() if surnames else span.end, span.category)
