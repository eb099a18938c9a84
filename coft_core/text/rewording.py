"""Replacing an attribute in a text: spans and pronouns, with the articles and verbs that must agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from coft_core.text.agreement import (
    Pronoun,
    PronounSet,
    Role,
    agreeing_edit,
    find_pronouns,
    form_of,
    may_need_a_verb,
    takes_an,
)
from coft_core.types import Span


@dataclass(frozen=True, slots=True)
class Replacement:
    """One change of the characters from ``start`` to ``end`` (exclusive) of a prompt as typed."""

    start: int
    end: int
    before: str
    after: str
    kind: str
    role: str = ""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class RewordedText:
    """A text after replacements."""

    text: str
    spans: tuple[Span, ...]
    replacements: tuple[Replacement, ...]
    notes: tuple[str, ...] = ()


def apply_replacements(text: str, spans: Sequence[Span], changes: Sequence[Replacement]) -> RewordedText:
    """Make disjoint changes in a text; a span that holds one, or is part of one, then covers what it became."""
    ordered = sorted(changes, key=lambda change: change.start)
    pieces, cursor = [], 0
    for change in ordered:
        pieces += [text[cursor : change.start], change.after]
        cursor = change.end
    merged: dict[tuple[int, int], Span] = {}
    for span in (_moved(span, ordered) for span in spans):
        if span.start < span.end:
            merged.setdefault((span.start, span.end), span)
    return RewordedText("".join([*pieces, text[cursor:]]), tuple(merged.values()), tuple(ordered))


def apart(changes: Iterable[Replacement]) -> list[Replacement]:
    """The changes without those that meet an earlier one; what was asked for comes before what follows from it."""
    kept: list[Replacement] = []
    for change in sorted(changes, key=lambda item: item.kind not in ("span", "pronoun")):
        if all(change.end <= other.start or other.end <= change.start for other in kept):
            kept.append(change)
    return kept


def _moved(span: Span, changes: Sequence[Replacement]) -> Span:
    touched = any(change.start < span.end and span.start < change.end for change in changes)
    start, end = _position(span.start, changes, opening=True), _position(span.end, changes, opening=False)
    moved = replace(span, start=start, end=end)
    # What stands there now was put there on purpose; no detector has judged it.
    return replace(moved, source="user", score=None) if touched else moved


def _position(at: int, changes: Sequence[Replacement], opening: bool) -> int:
    """Where a border of a span lies after the changes; inside a change it moves to that change's own border."""
    shift = 0
    for change in changes:
        if change.start > at or (change.start == at and not opening):
            break
        if at < change.end:
            return change.start + shift + (0 if opening else len(change.after))
        shift += len(change.after) - (change.end - change.start)
    return at + shift


_ARTICLE = re.compile(r"(?<!\w)(an?)(\s+[\"“‘'(]?)\Z", re.IGNORECASE)
_OPENS_SENTENCE = re.compile(r"(?:\A|[.!?…:]['\"”’)]*\s+|[\n\r]\s*)[\"“‘'(\[]*\Z")

_ROLE_NAMES: dict[Role, str] = {
    "subject": "a subject, as in “she saw”",
    "object": "an object, as in “saw her”",
    "possessive": "a possessive, as in “her book”",
    "possessive_pronoun": "standing for a noun, as in “the book is hers”",
    "reflexive": "reflexive, as in “saw herself”",
}


def reword(
    text: str, spans: Sequence[Span], words: Mapping[Span, str], pronouns: Mapping[Pronoun, PronounSet]
) -> RewordedText:
    """Replace spans by other words and pronouns by another set, with the articles and verbs that must agree.

    A word gets a capital where the one that it replaces opens a sentence, and capitals throughout where the whole text
    is written so; otherwise it stays as given. "A" or "an" right before it follows its sound. Verbs right beside a
    subject pronoun agree with its number. A span with a new word need not be one of ``spans``; an empty text takes its
    words out, with the white space after them.
    """
    changes = [_word_change(text, span, word) for span, word in words.items()]
    changes += _pronoun_changes(text, pronouns)
    return apply_replacements(text, spans, _with_articles(text, _capitals_moved(text, apart(changes)), words))


def swap_text(
    text: str,
    spans: Sequence[Span],
    words: Mapping[Span, str] | None = None,
    wanted: PronounSet | None = None,
    targets: Iterable[Span] = (),
    roles: Mapping[int, Role] | None = None,
) -> RewordedText:
    """Replace spans by other words, pronouns by another set, or both, as :func:`reword` does.

    With the pronouns of the target spans all others of their set change too, in the roles that they have, but for those
    in spans that are kept visible.
    """
    if wanted is None:
        return reword(text, spans, words or {}, {})
    known = roles or {}
    pronouns = [
        replace(item, role=known[item.start], sure=True) if item.start in known else item
        for item in find_pronouns(text)
    ]
    marked = [item for item in pronouns if any(item.meets(span) for span in targets)]
    sources = {name for item in marked for name in item.sets}
    changing = [
        item
        for item in pronouns
        if item.sets & sources and item.sets != {wanted} and not any(s.kept and item.meets(s) for s in spans)
    ]
    reworded = reword(text, spans, words or {}, dict.fromkeys(changing, wanted))
    return replace(reworded, notes=tuple(_notes(text, changing, marked, wanted)))


def opens_sentence(text: str, start: int) -> bool:
    """Whether a sentence begins at a place."""
    return _OPENS_SENTENCE.search(text, 0, start) is not None


def _word_change(text: str, span: Span, word: str) -> Replacement:
    end = span.end
    if not word:
        while end < len(text) and text[end] in " \t":
            end += 1
    return Replacement(span.start, end, text[span.start : end], _cased_word(word, text, span), "span")


def _pronoun_changes(text: str, changing: Mapping[Pronoun, PronounSet]) -> Iterator[Replacement]:
    for item, wanted in changing.items():
        old = text[item.start : item.end]
        yield Replacement(item.start, item.end, old, form_of(wanted, item.role, old), "pronoun", item.role, item.sure)
        if item.role == "subject" and ("they" in item.sets) is not (wanted == "they"):
            verb = agreeing_edit(text, item.start, item.end, plural=wanted == "they")
            if verb is not None:
                yield Replacement(verb.start, verb.end, text[verb.start : verb.end], verb.text, "verb")


def _capitals_moved(text: str, changes: Sequence[Replacement]) -> list[Replacement]:
    """The changes, with a capital on what opens a sentence once the words before it are taken out."""
    moved = {change.start: change for change in sorted(changes, key=lambda item: item.start)}
    for start, change in list(moved.items()):
        if change.after or not change.before[:1].isupper() or not opens_sentence(text, start):
            continue
        following = moved.get(change.end)
        if following is not None:
            moved[change.end] = replace(following, after=following.after[:1].upper() + following.after[1:])
        elif change.end < len(text):
            end = change.end + 1
            moved[start] = replace(change, end=end, before=text[start:end], after=text[change.end : end].upper())
    return list(moved.values())


def _with_articles(text: str, changes: Sequence[Replacement], words: Mapping[Span, str]) -> list[Replacement]:
    """The changes, and those of the articles right before changed words."""
    ordered = sorted(changes, key=lambda change: change.start)
    given = {span.start: word for span, word in words.items()}
    agreeing = list(ordered)
    for place, change in enumerate(ordered):
        if change.kind == "span":
            follows = apply_replacements(text, (), ordered[place:]).text[change.start :]
            # Capitals throughout are no abbreviation here, so the article goes by the word as spoken.
            follows = follows.lower() if _in_capitals(text) else follows
            agreeing += _article(text, change.start, given[change.start] or follows)
    return apart(agreeing)


def _article(text: str, start: int, word: str) -> list[Replacement]:
    article, wanted = _ARTICLE.search(text, 0, start), takes_an(word)
    if article is None or wanted is None:
        return []
    old, new = article.group(1), "an" if wanted else "a"
    if old[0].isupper():
        new = new.upper() if _in_capitals(text) else new.capitalize()
    return [] if new == old else [Replacement(article.start(1), article.end(1), old, new, "article")]


def _cased_word(word: str, text: str, span: Span) -> str:
    old = text[span.start : span.end]
    if _in_capitals(text) and len(text.strip()) > len(old):
        return word.upper()
    opens = old[:1].isupper() and opens_sentence(text, span.start)
    return word[:1].upper() + word[1:] if opens else word


def _in_capitals(text: str) -> bool:
    letters = [char for char in text if char.isalpha()]
    return all(char.isupper() for char in letters)


def _left_without_verb(text: str, item: Pronoun) -> bool:
    """Whether what may be a verb was not changed where "they" gave way to "she" or "he"."""
    unchanged = item.sets == {"they"} and agreeing_edit(text, item.start, item.end, plural=False) is None
    return item.role == "subject" and unchanged and may_need_a_verb(text, item.end)


def _notes(text: str, changing: Sequence[Pronoun], marked: Sequence[Pronoun], wanted: PronounSet) -> Iterator[str]:
    def named(item: Pronoun) -> str:
        return f"“{text[item.start : item.end]}” at character {item.start + 1}"

    if any(one.sets != other.sets for one, other in pairwise(marked)):
        listed = " and ".join(sorted({name for item in marked for name in item.sets}))
        yield f"The prompt has pronouns of {listed}; if they mean several people, choose which spans are replaced."
    for item in changing:
        if not item.sure:
            yield f"{named(item)} was read as {_ROLE_NAMES[item.role]}; if it is not, say what it is."
        if wanted != "they" and _left_without_verb(text, item):
            yield f"Check the verb after {named(item)}: it was left as it is."
    starts = {item.start for item in marked}
    if others := [named(item) for item in changing if item.start not in starts]:
        yield f"In no span that is replaced, and changed so that the pronouns agree: {', '.join(others)}."
    if any(item.role == "subject" and ("they" in item.sets) is not (wanted == "they") for item in changing):
        yield "Only verbs right beside a pronoun agree with it; check the others."
