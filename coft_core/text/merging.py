"""Which spans count where several meet, and which hints are masked in a text that names no attribute outright.

The reviewer's spans win, overlapping ones merge, and kept and suggested ones are never masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from coft_core.errors import InvalidInputError
from coft_core.text.tokens import fold
from coft_core.types import KNOWN_FAMILIES, PROXY_FAMILIES, Span

_SOURCES = ("user", "list", "lexicon", "pipeline")


def overlap(left: Span, right: Span) -> bool:
    """Whether two spans share a character."""
    return left.start < right.end and right.start < left.end


Item = TypeVar("Item")


def disjoint(items: Iterable[Item], place: Callable[[Item], tuple[int, int]]) -> list[Item]:
    """Of items that overlap the longest, then the first, then the one given first; in the order of their places."""
    chosen: list[Item] = []
    taken: set[int] = set()
    for item in sorted(items, key=lambda item: (place(item)[0] - place(item)[1], place(item)[0])):
        covered = range(*place(item))
        if taken.isdisjoint(covered):
            taken.update(covered)
            chosen.append(item)
    return sorted(chosen, key=place)


def validate_spans(text: str, spans: Iterable[Span]) -> None:
    """Check that every span lies in the text, has a known category and source, and a score that is a share."""
    for number, span in enumerate(spans, start=1):
        if problem := _problem(span, len(text)):
            raise InvalidInputError(f"Span {number} ([{span.start}, {span.end}), {span.category!r}) {problem}.")


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge overlapping spans; spans that only touch stay apart.

    The merged span covers the union. Everything else about it is the winner's: the reviewer's span before one of
    a user list, that before a detected one, then the longer, then the one that starts first, then the lexicon's;
    also whether it is kept or suggested.
    """
    merged: list[list[Span]] = []
    end = -1
    for span in sorted(spans):
        if merged and span.start < end:
            merged[-1].append(span)
            end = max(end, span.end)
        else:
            merged.append([span])
            end = span.end
    return tuple(_union(group) for group in merged)


def cut_spans(spans: Iterable[Span], holes: Iterable[Span], text: str | None = None) -> tuple[Span, ...]:
    """Take the characters of ``holes`` out of spans; with the text, what remains of one loses white space around it."""
    borders = merge_spans(holes)
    remains: list[Span] = []
    for span in spans:
        inner = [hole for hole in borders if overlap(hole, span)]
        remains += _remains(span, inner, text) if inner else [span]
    return tuple(sorted(remains))


def resolve_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Settle which characters are masked, which are kept and which are only suggested.

    A masked span of the reviewer (``source == "user"``) replaces every detected masked span that it overlaps, and every
    kept span of a user list. Any other kept span protects the characters that it covers: masked spans are cut around
    it. Suggested spans give way: they are cut around everything masked or kept, so one that is covered vanishes. Masked
    spans that overlap merge, and so do kept ones and suggested ones. A span that is kept is not a suggestion, whatever
    it says. The result can be resolved again: ``resolve_spans(resolve_spans(x)) == resolve_spans(x)``.
    """
    given = list(spans)
    chosen = merge_spans(span for span in given if span.masked and span.source == "user")
    visible = (s for s in given if s.kept and not (s.source == "list" and any(overlap(s, mine) for mine in chosen)))
    kept = merge_spans(replace(span, suggested=False) for span in visible)
    others = (span for span in given if span.masked and span.source != "user")
    free = merge_spans(span for span in others if not any(overlap(span, mine) for mine in chosen))
    masked = cut_spans((*chosen, *free), kept)
    offered = merge_spans(span for span in given if span.suggested and not span.kept)
    return tuple(sorted((*kept, *masked, *cut_spans(offered, (*kept, *masked)))))


def _problem(span: Span, length: int) -> str:
    if span.start < 0:
        return f"starts before the text; offsets count characters from 0 to {length}"
    if span.end <= span.start:
        return "is empty; its end must be greater than its start"
    if span.end > length:
        return f"ends after the text, which has {length} characters"
    if span.category not in KNOWN_FAMILIES:
        return f"has an unknown category; use one of {', '.join(KNOWN_FAMILIES)}"
    if span.source not in _SOURCES:
        return f"has an unknown source {span.source!r}; use one of {', '.join(_SOURCES)}"
    if span.score is not None and not 0 <= span.score <= 1:
        return f"has the score {span.score}; give a number from 0 to 1, or none"
    return ""


def _rank(span: Span) -> tuple[int, int, int, bool, Span]:
    decided = {"user": 0, "list": 1}.get(span.source, 2)
    return (decided, span.start - span.end, span.start, span.source != "lexicon", span)


def _union(group: Sequence[Span]) -> Span:
    winner = min(group, key=_rank)
    return replace(winner, start=min(s.start for s in group), end=max(s.end for s in group))


def _remains(span: Span, holes: Sequence[Span], text: str | None) -> list[Span]:
    pieces = []
    starts = [span.start, *(hole.end for hole in holes)]
    ends = [*(hole.start for hole in holes), span.end]
    for start, end in zip(starts, ends, strict=True):
        if text is not None:
            piece = text[max(start, 0) : max(end, 0)]
            end -= len(piece) - len(piece.rstrip())
            start += len(piece) - len(piece.lstrip())
        if start < end:
            pieces.append(replace(span, start=start, end=end))
    return pieces


HINT_DETAILS: Final = frozenset(("skin and face", "hair", "religious adjectives", "states of mind"))
"""Kinds of term that only hint, although their family is a protected one ("freckled", "devout", "crazy")."""

_STRONGEST_FIRST: Final = ("socioeconomic", "name", "family", "")
_PRONOUNS: Final = "pronouns"


def only_hints(family: str, detail: str) -> bool:
    """Whether a term of a family and kind hints at an attribute and does not say it."""
    return family in PROXY_FAMILIES or detail in HINT_DETAILS


def settle_hints(spans: Sequence[Span], text: str) -> list[Span]:
    """Mask the hints of a text that says no attribute outright.

    Of several kinds of hint the strongest is masked: income before a first name, a name before a family role, a role
    before anything else. Pronouns say nothing outright here, since they agree with whoever is meant. Beside another
    word for gender ("woman") no hint is masked but a name, which would give back what the mask of that word hides.
    Names stay visible where more than one person is named beside words for gender, pronouns included, or more than two
    without any: nothing else would keep them apart. The spans are what a detector found, every hint suggested.
    """
    hints = [span for span in spans if span.suggested and only_hints(span.category, span.detail)]
    outright = {span.category for span in spans if span.masked and span.detail != _PRONOUNS}
    if not hints or outright - {"gender"}:
        return list(spans)
    kind = min(map(_kind, hints), key=_STRONGEST_FIRST.index)
    chosen = [span for span in hints if _kind(span) == kind]
    gendered = any(span.masked and span.category == "gender" for span in spans)
    if _people(chosen, text) > (1 if gendered else 2) if kind == "name" else outright:
        return list(spans)
    return [replace(span, suggested=False) if span in chosen else span for span in spans]


def _kind(span: Span) -> str:
    return span.category if span.category in PROXY_FAMILIES else ""


def _people(names: Sequence[Span], text: str) -> int:
    """Number of people that names tell apart: names that share a word are one person's."""
    people: list[set[str]] = []
    for span in names:
        words = {fold(word).lower() for word in text[span.start : span.end].replace("-", " ").split()}
        known = [person for person in people if person & words]
        people = [person for person in people if person not in known]
        people.append(words.union(*known))
    return len(people)
