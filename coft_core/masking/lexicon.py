"""Protected-attribute lexicons: data files read into frozen entries, with errors that name file, line and field."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from spacy.schemas import validate_token_pattern

from coft_core.assets import assets_path
from coft_core.errors import LexiconError
from coft_core.masking.context import ContextRules, parse_context_rules
from coft_core.masking.inflection import regular_plural
from coft_core.types import FAMILIES

FALSE_FRIEND = "none"
"""The ``family`` of an entry that is never a hit and shields the words that it covers."""

_MANIFEST = "lexicons.json"
_FIELDS = ("term", "family", "detail", "source", "case", "match", "forms", "context")
_REQUIRED = ("term", "family")
_CASES = ("any", "capital", "exact")
_MATCHES = ("exact", "lemma")


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """One term of a lexicon.

    Attributes:
        term: The term as written in running text; a space also stands for a hyphen.
        family: One of :data:`coft_core.types.FAMILIES`, or :data:`FALSE_FRIEND`.
        detail: What kind of term it is, e.g. ``"pronouns"``.
        source: Where the term is from, e.g. ``"curated"``.
        case: ``"any"``; ``"capital"``: as written or all in capitals; ``"exact"``: only as written.
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
    rules: ContextRules = ContextRules()
    version: str = "custom"

    @classmethod
    def load(cls, paths: Iterable[str | Path] = (), *, shipped: bool = True) -> Lexicons:
        """Read lexicon files.

        Args:
            paths: CSV or JSONL files of a reviewer, read after the shipped ones; the shipped README says how
                they are written.
            shipped: Whether to include the shipped lexicons; without them only the shipped context rules are read.

        Returns:
            The lexicons.

        Raises:
            LexiconError: A file is missing or malformed; names the file, the line and the field.
        """
        manifest = _read_json(assets_path("lexicons", _MANIFEST))
        rules = _read_rules(assets_path("lexicons", str(manifest["contexts"])))
        own = [assets_path("lexicons", name) for name in manifest["files"]] if shipped else []
        records = [record for path in (*own, *map(Path, paths)) for record in read_lexicon(path, rules)]
        return cls(
            entries=tuple(record for record in records if isinstance(record, LexiconEntry)),
            patterns=tuple(record for record in records if isinstance(record, TokenPattern)),
            rules=rules,
            version=str(manifest["version"]) if shipped else "custom",
        )

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the content: the same for the same terms and rules, however they were stored."""
        lists = sorted((name, tuple(sorted(words))) for name, words in self.rules.word_lists.items())
        rules = sorted((name, _stable(astuple(rule))) for name, rule in self.rules.rules.items())
        details = sorted(self.rules.people_details), sorted(self.rules.plural_people_details)
        content = [sorted(map(astuple, self.entries)), sorted(map(astuple, self.patterns)), lists, rules, details]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode("ascii")).hexdigest()

    def counts(self) -> dict[str, int]:
        """Number of entries and patterns per family, false friends left out."""
        families = [record.family for record in (*self.entries, *self.patterns)]
        return {family: families.count(family) for family in FAMILIES}


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
    lines = _read_text(path)
    for line, record in _csv_records(path, lines) if suffix == ".csv" else _jsonl_records(path, lines):
        yield _parse_record(path, line, record, rules)


def _read_text(path: Path) -> str:
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
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_fields(path, 1, header, _FIELDS)
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) > len(header):
                raise LexiconError(
                    f"{path.name}, line {reader.line_num}, field {len(header) + 1}: the line has {len(row)} cells "
                    f"and the header {len(header)}; quote cells that hold a comma."
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


def _parse_record(
    path: Path, line: int, record: Mapping[str, Any], rules: ContextRules
) -> LexiconEntry | TokenPattern:
    def fail(name: str, problem: str) -> LexiconError:
        return LexiconError(f"{path.name}, line {line}, field {name!r}: {problem}.")

    def cell(name: str, default: str = "", allowed: tuple[str, ...] = ()) -> str:
        value = record.get(name) or default
        if not isinstance(value, str):
            raise fail(name, f"expected text, found {type(value).__name__}")
        value = value.strip() or default
        if allowed and value not in allowed:
            raise fail(name, f"{value!r} is unknown; use one of {', '.join(allowed)}")
        return value

    family = cell("family", allowed=(*FAMILIES, FALSE_FRIEND))
    detail, source = cell("detail"), cell("source", "curated")
    context = tuple(cell("context").replace("|", " ").split())
    for name in context:
        if name not in rules.rules:
            raise fail("context", f"{name!r} is unknown; the rules are {', '.join(sorted(rules.rules))}")
    if "pattern" in record:
        problems = validate_token_pattern(cast("list[Any]", record["pattern"]))
        if problems or not record["pattern"]:
            raise fail("pattern", f"not a token pattern ({'; '.join(map(str, problems)) or 'it is empty'})")
        return TokenPattern(json.dumps(record["pattern"]), family, detail, source, context)
    term = cell("term")
    if not any(char.isalnum() for char in term):
        raise fail("term", "empty; write the term")
    return LexiconEntry(
        term=term,
        family=family,
        detail=detail,
        source=source,
        case=cast("Literal['any', 'capital', 'exact']", cell("case", "any", _CASES)),
        match=cast("Literal['exact', 'lemma']", cell("match", "exact", _MATCHES)),
        forms=tuple(form.strip() for form in cell("forms").split("|") if form.strip()),
        context=context,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise LexiconError(f"{path.name}, line {error.lineno}: not valid JSON ({error.msg}).") from error
    if not isinstance(value, dict):
        raise LexiconError(f"{path.name}, line 1: expected one JSON object.")
    return value


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
