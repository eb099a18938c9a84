"""Changes of a text, and what they make of it and of its spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coft_core.types import Span


@dataclass(frozen=True, slots=True)
class Replacement:
    """One change of a prompt.

    Attributes:
        start: First character in the prompt as typed.
        end: One past the last.
        before: What stood there.
        after: What stands there now.
        kind: ``span``, ``pronoun``, ``verb`` or ``article``.
        role: Role of a pronoun; empty otherwise.
        sure: Whether a pronoun's role is beyond doubt.
    """

    start: int
    end: int
    before: str
    after: str
    kind: str
    role: str = ""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class RewordedText:
    """A text after replacements.

    Attributes:
        text: The text.
        spans: The spans that were given, where they are now; those that now cover the same characters are one, and
            those whose words are gone are left out.
        replacements: What was changed, in reading order.
        notes: What should be checked, one sentence each.
    """

    text: str
    spans: tuple[Span, ...]
    replacements: tuple[Replacement, ...]
    notes: tuple[str, ...] = ()


def apply_replacements(text: str, spans: Sequence[Span], changes: Sequence[Replacement]) -> RewordedText:
    """Change a text and move its spans along.

    Args:
        text: The text.
        spans: Its spans; one that holds a change, or is part of one, covers what the change became.
        changes: Disjoint changes.
    """
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
    if not touched:
        return replace(span, start=start, end=end)
    # What stands there now was put there on purpose; no detector has judged it.
    return replace(span, start=start, end=end, source="user", score=None)


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
