"""Lexicons: terms and token patterns by attribute family, and the context rules that ambiguous ones need.

``"black driver"`` names a race and ``"black coffee"`` does not. What tells them apart is data: a rule lists
sequences of token classes that stand before or after the word. The README beside the lexicons describes the files.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from spacy.matcher import Matcher
from spacy.vocab import Vocab

from coft_core.assets import assets_path
from coft_core.errors import LexiconError
from coft_core.text.tokens import TokenView, regular_plural
from coft_core.types import FAMILIES

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


FALSE_FRIEND = "none"
"""The ``family`` of a record that is never a hit and shields the words that it covers."""


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """One term of a lexicon.

    Attributes:
        term: The term as written in running text; a space also stands for a hyphen.
        family: One of :data:`coft_core.types.FAMILIES`, or :data:`FALSE_FRIEND`.
        detail: What kind of term it is, e.g. ``"pronouns"``.
        source: Where the term is from, e.g. ``"curated"``.
        case: ``"any"``; ``"capital"``: words that begin with a capital in the term do so in the text;
            ``"exact"``: only as written.
        match: ``"exact"``, or ``"lemma"``: the plural is a hit too.
        forms: Further inflected forms; for ``"lemma"`` they replace the regular plural.
        context: Names of context rules of which one must hold; empty if every occurrence is a hit.
    """

    term: str
    family: str
    detail: str = ""
    source: str = "curated"
    case: Literal["any", "capital", "exact"] = "any"
    match: Literal["exact", "lemma"] = "exact"
    forms: tuple[str, ...] = ()
    context: tuple[str, ...] = ()

    @property
    def inflections(self) -> tuple[str, ...]:
        """Every inflected surface form other than the term itself."""
        if self.match == "lemma" and not self.forms:
            return (regular_plural(self.term),)
        return self.forms


@dataclass(frozen=True, slots=True)
class TokenPattern:
    """A pattern of tokens, such as an age in years.

    Attributes:
        pattern: JSON text of one spaCy ``Matcher`` pattern over words without compound hyphens.
        family: As in :class:`LexiconEntry`.
        detail: As in :class:`LexiconEntry`.
        source: As in :class:`LexiconEntry`.
        context: As in :class:`LexiconEntry`.
    """

    pattern: str
    family: str
    detail: str = ""
    source: str = "curated"
    context: tuple[str, ...] = ()


_FIELDS = ("term", "family", "detail", "source", "case", "match", "forms", "context")
_REQUIRED = ("term", "family")
_CASES = ("any", "capital", "exact")
_MATCHES = ("exact", "lemma")


def read_lexicon(path: Path, rules: ContextRules) -> Iterator[LexiconEntry | TokenPattern]:
    """Read one lexicon file.

    Args:
        path: A CSV file with a header, or a JSONL file with one object a line; UTF-8.
        rules: The rules that the ``context`` field may name.

    Yields:
        The file's entries and patterns.

    Raises:
        LexiconError: The file is missing or malformed; names the file, the line and the field.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise LexiconError(f"{path.name}: a lexicon must be a .csv or .jsonl file; rename or convert it.")
    lines = read_text(path)
    for line, record in _csv_records(path, lines) if suffix == ".csv" else _jsonl_records(path, lines):
        yield _parse_record(_Row(path, line, record), rules)


def read_text(path: Path) -> str:
    """Read a UTF-8 file.

    Args:
        path: The file.

    Returns:
        Its text, without a byte-order mark and with the line ends that it has.

    Raises:
        LexiconError: It cannot be read or is not UTF-8.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LexiconError(f"{path}: the lexicon file cannot be read ({reason}); check the path.") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LexiconError(f"{path.name}, line {line}: the text is not UTF-8; save the file as UTF-8.") from error


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_fields(path, 1, header, _FIELDS)
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) > len(header):
                raise LexiconError(
                    f"{path.name}, line {reader.line_num}, field {len(header) + 1}: the line has {len(row)} "
                    f"cells and the header {len(header)}; quote cells that hold a comma."
                )
            yield reader.line_num, dict(zip(header, row, strict=False))
    except csv.Error as error:
        raise LexiconError(f"{path.name}, line {reader.line_num}: not valid CSV ({error}).") from error


def _jsonl_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except json.JSONDecodeError as error:
            raise LexiconError(f"{path.name}, line {line}: not valid JSON ({error.msg}).") from error
        if not isinstance(record, dict):
            raise LexiconError(f"{path.name}, line {line}: expected a JSON object, one a line.")
        _check_fields(path, line, record, (*_FIELDS, "pattern"))
        yield line, record


def _check_fields(path: Path, line: int, names: Iterable[str], known: tuple[str, ...]) -> None:
    present = list(names)
    for name in present:
        if name not in known:
            raise LexiconError(
                f"{path.name}, line {line}, field {name!r}: unknown field; the fields are {', '.join(known)}."
            )
    for name in _REQUIRED:
        if name not in present and not (name == "term" and "pattern" in present):
            raise LexiconError(f"{path.name}, line {line}, field {name!r}: missing; add it.")


@dataclass(frozen=True, slots=True)
class _Row:
    """One record as read, with what an error must name."""

    path: Path
    line: int
    fields: Mapping[str, Any]

    def fail(self, name: str, problem: str) -> LexiconError:
        return LexiconError(f"{self.path.name}, line {self.line}, field {name!r}: {problem}.")

    def cell(self, name: str, default: str = "", allowed: tuple[str, ...] = ()) -> str:
        value = self.fields.get(name) or default
        if not isinstance(value, str):
            raise self.fail(name, f"expected text, found {type(value).__name__}")
        value = value.strip() or default
        if allowed and value not in allowed:
            raise self.fail(name, f"{value!r} is unknown; use one of {', '.join(allowed)}")
        return value

    def context(self, rules: ContextRules) -> tuple[str, ...]:
        names = tuple(self.cell("context").replace("|", " ").split())
        for name in names:
            if name not in rules.rules:
                raise self.fail("context", f"{name!r} is unknown; the rules are {', '.join(sorted(rules.rules))}")
        return names


def _parse_record(row: _Row, rules: ContextRules) -> LexiconEntry | TokenPattern:
    family = row.cell("family", allowed=(*FAMILIES, FALSE_FRIEND))
    detail, source, context = row.cell("detail"), row.cell("source", "curated"), row.context(rules)
    if "pattern" in row.fields:
        problem = _pattern_problem(row.fields["pattern"])
        if problem:
            raise row.fail("pattern", f"not a token pattern ({problem})")
        return TokenPattern(json.dumps(row.fields["pattern"]), family, detail, source, context)
    term = row.cell("term")
    if not any(char.isalnum() for char in term):
        raise row.fail("term", "empty; write the term")
    return LexiconEntry(
        term=term,
        family=family,
        detail=detail,
        source=source,
        case=cast("Literal['any', 'capital', 'exact']", row.cell("case", "any", _CASES)),
        match=cast("Literal['exact', 'lemma']", row.cell("match", "exact", _MATCHES)),
        forms=tuple(form.strip() for form in row.cell("forms").split("|") if form.strip()),
        context=context,
    )


def _pattern_problem(pattern: object) -> str:
    """What spaCy finds wrong with a token pattern, in one line; empty if nothing."""
    if not isinstance(pattern, list) or not pattern:
        return "expected a non-empty list of objects"
    try:
        Matcher(Vocab(), validate=True).add("pattern", [pattern])
    except (ValueError, TypeError, re.error) as error:
        return " ".join(str(error).split())
    return ""


_MANIFEST = "lexicons.json"


@dataclass(frozen=True, slots=True)
class Lexicons:
    """A set of lexicons with the context rules that they use.

    Attributes:
        entries: Terms, in the order of the files.
        patterns: Token patterns, in the order of the files.
        rules: Context rules.
        version: Version of the shipped lexicons, e.g. ``"1.0"``; ``"custom"`` without them.
    """

    entries: tuple[LexiconEntry, ...]
    patterns: tuple[TokenPattern, ...] = ()
    rules: ContextRules = field(default_factory=ContextRules)
    version: str = "custom"

    @classmethod
    def load(cls, paths: Iterable[str | Path] = (), *, shipped: bool = True) -> Lexicons:
        """Read lexicon files.

        Args:
            paths: CSV or JSONL files of a reviewer, read after the shipped ones; the shipped README says how
                they are written.
            shipped: Whether to include the shipped lexicons; their context rules are there in any case.

        Returns:
            The lexicons.

        Raises:
            LexiconError: A file is missing or malformed; names the file, the line and the field.
        """
        manifest = _read_manifest(assets_path("lexicons", _MANIFEST))
        rules = _read_rules(assets_path("lexicons", manifest.contexts))
        own = [assets_path("lexicons", name) for name in manifest.files] if shipped else []
        records = [record for path in (*own, *map(Path, paths)) for record in read_lexicon(path, rules)]
        return cls(
            entries=tuple(record for record in records if isinstance(record, LexiconEntry)),
            patterns=tuple(record for record in records if isinstance(record, TokenPattern)),
            rules=rules,
            version=manifest.version if shipped else "custom",
        )

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the terms and rules, whatever their order and files."""
        lists = sorted((name, tuple(sorted(words))) for name, words in self.rules.word_lists.items())
        rules = sorted((name, _stable(astuple(rule))) for name, rule in self.rules.rules.items())
        details = sorted(self.rules.people_details), sorted(self.rules.plural_people_details)
        content = [
            sorted(map(astuple, self.entries)),
            sorted(map(astuple, self.patterns)),
            lists,
            rules,
            details,
        ]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode("ascii")).hexdigest()

    def counts(self) -> dict[str, int]:
        """Number of entries and patterns per family, false friends left out."""
        records: tuple[LexiconEntry | TokenPattern, ...] = (*self.entries, *self.patterns)
        families = [record.family for record in records]
        return {family: families.count(family) for family in FAMILIES}


@dataclass(frozen=True, slots=True)
class _Manifest:
    version: str
    contexts: str
    files: tuple[str, ...]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise LexiconError(f"{path.name}, line {error.lineno}: not valid JSON ({error.msg}).") from error
    if not isinstance(value, dict):
        raise LexiconError(f"{path.name}, line 1: expected one JSON object.")
    return value


def _read_manifest(path: Path) -> _Manifest:
    data = _read_json(path)
    for name, kind in (("version", str), ("contexts", str), ("files", list)):
        if not isinstance(data.get(name), kind):
            raise LexiconError(f"{path.name}, line 1, field {name!r}: missing or not a {kind.__name__}.")
    return _Manifest(data["version"], data["contexts"], tuple(map(str, data["files"])))


def _read_rules(path: Path) -> ContextRules:
    try:
        return parse_context_rules(_read_json(path))
    except ValueError as error:
        if isinstance(error, LexiconError):
            raise
        raise LexiconError(f"{path.name}: {error}.") from error


def _stable(value: object) -> object:
    """Sets as sorted lists, so that the digest does not depend on hash order."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_stable(item) for item in value]
    return value
