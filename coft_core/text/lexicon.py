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
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError, ValidationInfo
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
_BORDER = "@border"
LABELS = ("@identity", "@people", "@pronoun", "@name")
"""Classes that a lexicon gives to the words that its entries cover."""

CLASSES = frozenset((*_SHAPES, *LABELS, _BORDER))
"""What rules can name beside the word lists."""


_CONFIG = ConfigDict(extra="forbid", str_strip_whitespace=True)


@dataclass(frozen=True, slots=True)
class SequenceItem:
    """One item of a sequence: a token of one of the classes, or of none of them if negated."""

    classes: tuple[str, ...]
    negated: bool = False
    times: str = ""


def _steps(value: str) -> tuple[SequenceItem, ...]:
    """Items written one after the other, such as ``!@name|title article?``."""
    items = []
    for text in value.split():
        match = _STEP.fullmatch(text)
        if match is None:
            raise ValueError(f"step {text!r} is malformed")
        items.append(
            SequenceItem(tuple(sorted(set(match["classes"].split("|")))), bool(match["negated"]), match["times"])
        )
    return tuple(items)


def _word_list(value: Any) -> frozenset[str]:
    """Words of a list given as strings of space-separated words; ``{"plurals": [...]}`` adds plurals."""
    parts = value if isinstance(value, dict) else {"words": value}
    words, singular = (" ".join(parts.get(part, ())).lower().split() for part in ("words", "plurals"))
    return frozenset((*words, *singular, *map(regular_plural, singular)))


Steps = Annotated[tuple[SequenceItem, ...], BeforeValidator(_steps)]
Words = Annotated[frozenset[str], BeforeValidator(_word_list)]


@dataclass(frozen=True, slots=True)
class Condition:
    """Neighbours that have to be before and after a term, both in reading order."""

    __pydantic_config__ = _CONFIG

    before: Steps = ()
    after: Steps = ()


@dataclass(frozen=True, slots=True)
class ContextRule:
    """Holds where one of ``any`` holds (or it is empty) and none of ``none``."""

    __pydantic_config__ = _CONFIG

    any: tuple[Condition, ...] = ()
    none: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextRules:
    """The word lists and rules of a lexicon folder."""

    word_lists: Mapping[str, Words] = field(default_factory=dict)
    rules: Mapping[str, ContextRule] = field(default_factory=dict)
    people_details: frozenset[str] = frozenset()
    plural_people_details: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TokenClasses:
    """A text's tokens, and for each the classes of :data:`LABELS` that lexicon entries covering it give."""

    view: TokenView
    labels: Sequence[frozenset[str]]
    word_lists: Mapping[str, frozenset[str]]

    def holds(self, rule: ContextRule, start: int, end: int) -> bool:
        """Whether a rule holds around tokens ``start`` to ``end`` (exclusive)."""
        met = not rule.any or any(self._met(condition, start, end) for condition in rule.any)
        return met and not any(self._met(condition, start, end) for condition in rule.none)

    def _met(self, condition: Condition, start: int, end: int) -> bool:
        return self._walk(condition.before[::-1], start - 1, -1) and self._walk(condition.after, end, 1)

    def _walk(self, steps: Sequence[SequenceItem], index: int, direction: int) -> bool:
        """Match steps against the tokens from ``index`` on, backtracking over optional ones."""
        if not steps:
            return True
        step, rest = steps[0], steps[1:]
        if step.classes == (_BORDER,):
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

    def _in_classes(self, classes: Sequence[str], index: int) -> bool:
        word, lower, labels = self.view.words[index], self.view.lowers[index], self.labels[index]
        return any(
            _SHAPES[name](word)
            if name in _SHAPES
            else name in labels or lower in self.word_lists.get(name, frozenset())
            for name in classes
        )


FALSE_FRIEND = "none"
"""The ``family`` of a record that is never a hit and shields the words that it covers."""


def _family(value: str) -> str:
    if value not in (*FAMILIES, FALSE_FRIEND):
        raise ValueError(f"{value!r} is unknown; use one of {', '.join((*FAMILIES, FALSE_FRIEND))}")
    return value


def _term(value: str) -> str:
    if not any(char.isalnum() for char in value):
        raise ValueError("empty; write the term")
    return value


def _parts(value: object) -> object:
    """Parts of a cell, separated by signs or by white space."""
    return tuple(value.replace("|", " ").split()) if isinstance(value, str) else value


def _forms(value: object) -> object:
    return tuple(form.strip() for form in value.split("|") if form.strip()) if isinstance(value, str) else value


def _known(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Names of the rules that are there."""
    rules = info.context or {}
    if unknown := [name for name in names if name not in rules]:
        raise ValueError(f"{unknown[0]!r} is unknown; the rules are {', '.join(sorted(rules))}")
    return names


def _pattern(value: object) -> str:
    """A token pattern as JSON, if spaCy finds nothing wrong with it."""
    if not isinstance(value, list) or not value:
        raise ValueError("not a token pattern (expected a non-empty list of objects)")
    try:
        Matcher(Vocab(), validate=True).add("pattern", [value])
    except (ValueError, TypeError, re.error) as error:
        raise ValueError(f"not a token pattern ({' '.join(str(error).split())})") from error
    return json.dumps(value)


Family = Annotated[str, AfterValidator(_family)]
RuleNames = Annotated[tuple[str, ...], BeforeValidator(_parts), AfterValidator(_known)]


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """One term of a lexicon."""

    __pydantic_config__ = _CONFIG

    term: Annotated[str, AfterValidator(_term)]
    family: Family
    detail: str = ""
    source: str = "curated"
    case: Literal["any", "capital", "exact"] = "any"
    match: Literal["exact", "lemma"] = "exact"
    forms: Annotated[tuple[str, ...], BeforeValidator(_forms)] = ()
    context: RuleNames = ()

    @property
    def inflections(self) -> tuple[str, ...]:
        """Every inflected surface form other than the term itself."""
        if self.match == "lemma" and not self.forms:
            return (regular_plural(self.term),)
        return self.forms


@dataclass(frozen=True, slots=True)
class TokenPattern:
    """A pattern of tokens, such as an age in years; the other fields are as in :class:`LexiconEntry`."""

    __pydantic_config__ = _CONFIG

    pattern: Annotated[str, BeforeValidator(_pattern)]
    family: Family
    detail: str = ""
    source: str = "curated"
    context: RuleNames = ()


_RULES, _ENTRY, _TOKENS = TypeAdapter(ContextRules), TypeAdapter(LexiconEntry), TypeAdapter(TokenPattern)


def _error(path: Path, line: int, problem: str, name: str | None = None) -> LexiconError:
    where = "" if name is None else f", field {name!r}"
    return LexiconError(f"{path.name}, line {line}{where}: {problem}.")


def read_lexicon(path: Path, rules: ContextRules) -> Iterator[LexiconEntry | TokenPattern]:
    """Read one lexicon file: a CSV file with a header, or a JSONL file with one object a line; UTF-8.

    Its ``context`` field may name the given rules.
    """
    readers = {".csv": _csv_records, ".jsonl": _jsonl_records}
    if path.suffix.lower() not in readers:
        raise LexiconError(f"{path.name}: a lexicon must be a .csv or .jsonl file; rename or convert it.")
    for line, record in readers[path.suffix.lower()](path, _read_text(path)):
        given = {name: value for name, value in record.items() if not isinstance(value, str) or value.strip()}
        adapter = _TOKENS if "pattern" in record else _ENTRY
        try:
            yield adapter.validate_python(given, context=rules.rules)
        except ValidationError as error:
            found = error.errors(include_url=False)[0]
            raise _error(path, line, found["msg"].removeprefix("Value error, "), str(found["loc"][0])) from error


def _read_text(path: Path) -> str:
    """A UTF-8 file without its byte-order mark, with the line ends that it has."""
    try:
        raw = path.read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LexiconError(f"{path}: the lexicon file cannot be read ({reason}); check the path.") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _error(path, line, "the text is not UTF-8; save the file as UTF-8") from error


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="behind the last column", strict=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        if missing := [name for name in ("term", "family") if name not in reader.fieldnames]:
            raise _error(path, 1, "missing; add it", missing[0])
        for row in reader:
            if any(filter(None, row.values())):
                yield reader.line_num, {name: cell for name, cell in row.items() if cell is not None}
    except csv.Error as error:
        raise _error(path, reader.reader.line_num, f"not valid CSV ({error})") from error


def _jsonl_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except json.JSONDecodeError as error:
            raise _error(path, line, f"not valid JSON ({error.msg})") from error
        if not isinstance(record, dict):
            raise _error(path, line, "expected a JSON object, one a line")
        yield line, record


@dataclass(frozen=True, slots=True)
class Lexicons:
    """A set of lexicons with the context rules that they use."""

    entries: tuple[LexiconEntry, ...]
    patterns: tuple[TokenPattern, ...] = ()
    rules: ContextRules = field(default_factory=ContextRules)
    version: str = "custom"

    @classmethod
    def load(cls, paths: Iterable[str | Path] = (), *, shipped: bool = True) -> Lexicons:
        """Read lexicon files."""
        manifest = json.loads(_read_text(assets_path("lexicons", "lexicons.json")))
        rules = _RULES.validate_json(_read_text(assets_path("lexicons", manifest["contexts"])))
        files = [assets_path("lexicons", name) for name in manifest["files"]] if shipped else []
        records = [record for path in (*files, *map(Path, paths)) for record in read_lexicon(path, rules)]
        return cls(
            entries=tuple(record for record in records if isinstance(record, LexiconEntry)),
            patterns=tuple(record for record in records if isinstance(record, TokenPattern)),
            rules=rules,
            version=manifest["version"] if shipped else "custom",
        )

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the terms and rules, whatever their order and files."""
        rules = self.rules
        content = [
            sorted(map(astuple, self.entries)),
            sorted(map(astuple, self.patterns)),
            sorted((name, sorted(words)) for name, words in rules.word_lists.items()),
            sorted((name, astuple(rule)) for name, rule in rules.rules.items()),
            [sorted(rules.people_details), sorted(rules.plural_people_details)],
        ]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode("ascii")).hexdigest()
