"""Context rules: which neighbours make an ambiguous word name an attribute of a person.

``"black driver"`` names a race and ``"black coffee"`` does not. What tells them apart is data: a rule lists
sequences of token classes that stand before or after the word. This module reads and evaluates them; the
README beside the lexicons describes the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coft_core.masking.inflection import regular_plural
from coft_core.masking.tokens import TokenView

_STEP = re.compile(r"(?P<negated>!?)(?P<classes>@?[a-z_]+(?:\|@?[a-z_]+)*)(?P<times>[?*]?)")

_SHAPES: Mapping[str, Callable[[str], bool]] = {
    "@capital": lambda word: word[:1].isupper() and (len(word) == 1 or not word.isupper()),
    "@shouted": lambda word: len(word) > 1 and word.isalpha() and word.isupper(),
    "@number": lambda word: word[:1].isdigit(),
    "@punctuation": lambda word: not any(char.isalnum() for char in word),
}
_BORDERS = ("@border",)
LABELS = ("@identity", "@people", "@pronoun", "@name")
"""Classes that a lexicon gives to the words that its entries cover."""


@dataclass(frozen=True, slots=True)
class Step:
    """One item of a sequence: a token of one of the classes, or of none of them if negated."""

    classes: frozenset[str]
    negated: bool = False
    times: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """Neighbours that must stand before and after a term, both in reading order."""

    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextRule:
    """Holds where one of ``any_of`` holds (or it is empty) and none of ``none_of``."""

    any_of: tuple[Condition, ...] = ()
    none_of: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextRules:
    """The word lists and rules of a lexicon folder.

    Attributes:
        word_lists: Lower-case words by class name.
        rules: Rules by the name that a lexicon's ``context`` column uses.
        people_details: Details of entries that always denote people.
        plural_people_details: Details of entries that denote people when in the plural (``"Americans"``).
    """

    word_lists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rules: Mapping[str, ContextRule] = field(default_factory=dict)
    people_details: frozenset[str] = frozenset()
    plural_people_details: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TokenClasses:
    """A text's tokens with the classes that context rules ask for.

    Attributes:
        view: The tokens.
        labels: Per token, the classes of :data:`LABELS` that lexicon entries covering it give.
        word_lists: Lower-case words by class name.
    """

    view: TokenView
    labels: Sequence[frozenset[str]]
    word_lists: Mapping[str, frozenset[str]]

    def holds(self, rule: ContextRule, start: int, end: int) -> bool:
        """Whether a rule holds around tokens ``start`` to ``end`` (exclusive)."""
        met = not rule.any_of or any(self._met(condition, start, end) for condition in rule.any_of)
        return met and not any(self._met(condition, start, end) for condition in rule.none_of)

    def _met(self, condition: Condition, start: int, end: int) -> bool:
        return self._walk(condition.before[::-1], start - 1, -1) and self._walk(condition.after, end, 1)

    def _walk(self, steps: Sequence[Step], index: int, direction: int) -> bool:
        """Match steps against the tokens from ``index`` on, backtracking over optional ones."""
        if not steps:
            return True
        step, rest = steps[0], steps[1:]
        if step.classes.issubset(_BORDERS):
            return self._at_border(index, direction) is not step.negated and self._walk(rest, index, direction)
        if step.times and self._walk(rest, index, direction):
            return True
        if self._out_of_reach(index, direction) or self._in_classes(step.classes, index) is step.negated:
            return False
        return self._walk(steps if step.times == "*" else rest, index + direction, direction)

    def _out_of_reach(self, index: int, direction: int) -> bool:
        if not 0 <= index < len(self.view):
            return True
        return self.view.opens_paragraph[index if direction > 0 else index + 1]

    def _at_border(self, index: int, direction: int) -> bool:
        if not 0 <= index < len(self.view):
            return True
        if direction > 0:
            return self.view.opens_sentence[index] or _SHAPES["@punctuation"](self.view.words[index])
        return self.view.opens_sentence[index + 1]

    def _in_classes(self, classes: frozenset[str], index: int) -> bool:
        word, lower, labels = self.view.words[index], self.view.lowers[index], self.labels[index]
        return any(
            _SHAPES[name](word)
            if name in _SHAPES
            else name in labels or lower in self.word_lists.get(name, frozenset())
            for name in classes
        )


def parse_context_rules(data: Mapping[str, Any]) -> ContextRules:
    """Read context rules from decoded JSON.

    Args:
        data: An object with ``word_lists``, ``rules``, ``people_details`` and ``plural_people_details``.

    Returns:
        The rules.

    Raises:
        ValueError: Names the list, rule or step that is malformed.
    """
    lists = {name: _parse_words(name, value) for name, value in _object(data, "word_lists").items()}
    rules = {name: _parse_rule(name, value, lists) for name, value in _object(data, "rules").items()}
    return ContextRules(
        word_lists=lists,
        rules=rules,
        people_details=_strings("people_details", data.get("people_details", [])),
        plural_people_details=_strings("plural_people_details", data.get("plural_people_details", [])),
    )


def _object(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be an object, not {type(value).__name__}")
    return value


def _strings(name: str, value: object) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} must be a list of strings")
    return frozenset(value)


def _parse_words(name: str, value: object) -> frozenset[str]:
    """Words of a list given as strings of space-separated words; ``{"plurals": [...]}`` adds plurals."""
    if isinstance(value, dict):
        words = _words(name, value.get("words", []))
        singular = _words(name, value.get("plurals", []))
        return words | singular | frozenset(regular_plural(word) for word in singular)
    return _words(name, value)


def _words(name: str, value: object) -> frozenset[str]:
    return frozenset(word.lower() for line in _strings(f"word list {name!r}", value) for word in line.split())


def _parse_rule(name: str, value: object, lists: Mapping[str, frozenset[str]]) -> ContextRule:
    if not isinstance(value, dict) or not {"any", "none"}.issuperset(value):
        raise ValueError(f"rule {name!r} must be an object with the lists 'any' and 'none'")
    sides: dict[str, tuple[Condition, ...]] = {}
    for side in ("any", "none"):
        conditions = value.get(side, [])
        if not isinstance(conditions, list):
            raise ValueError(f"rule {name!r}: {side!r} must be a list")
        sides[side] = tuple(_parse_condition(name, item, lists) for item in conditions)
    return ContextRule(any_of=sides["any"], none_of=sides["none"])


def _parse_condition(name: str, value: object, lists: Mapping[str, frozenset[str]]) -> Condition:
    if not isinstance(value, dict) or not value or not {"before", "after"}.issuperset(value):
        raise ValueError(f"rule {name!r}: a condition must be an object with 'before', 'after' or both")
    before, after = (_parse_steps(name, value.get(side, ""), lists) for side in ("before", "after"))
    return Condition(before=before, after=after)


def _parse_steps(name: str, value: object, lists: Mapping[str, frozenset[str]]) -> tuple[Step, ...]:
    if not isinstance(value, str):
        raise ValueError(f"rule {name!r}: steps must be one string, e.g. 'person_subject adverb* copula'")
    steps = []
    for text in value.split():
        match = _STEP.fullmatch(text)
        if match is None:
            raise ValueError(f"rule {name!r}: step {text!r} is malformed")
        classes = frozenset(match["classes"].split("|"))
        unknown = sorted(classes - lists.keys() - set(_SHAPES) - set(LABELS) - set(_BORDERS))
        if unknown:
            raise ValueError(f"rule {name!r}: step {text!r} names an unknown class {unknown[0]!r}")
        steps.append(Step(classes=classes, negated=bool(match["negated"]), times=match["times"]))
    return tuple(steps)
