"""Protected-attribute lexicons: the shipped ones, and those of a reviewer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from coft_core.assets import assets_path
from coft_core.errors import LexiconError
from coft_core.masking.context import ContextRules, parse_context_rules
from coft_core.masking.lexicon_files import read_lexicon, read_text
from coft_core.masking.lexicon_records import FALSE_FRIEND, LexiconEntry, TokenPattern
from coft_core.types import FAMILIES

__all__ = ["FALSE_FRIEND", "LexiconEntry", "Lexicons", "TokenPattern"]

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
