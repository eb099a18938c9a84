"""The words of the program's pages, explained once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import yaml
from markupsafe import Markup

from coft_core.assets import assets_path


@dataclass(frozen=True, slots=True)
class Term:
    """A word and what it means."""

    name: str
    says: str
    also: tuple[str, ...]

    @property
    def key(self) -> str:
        """What a label of the word names it by."""
        return self.name.lower().replace(" ", "-").replace("'", "")

    @property
    def names(self) -> tuple[str, ...]:
        """All its forms in small letters."""
        return tuple(name.lower() for name in (self.name, *self.also))


GLOSSARY = tuple(
    Term(name, entry["says"], tuple(entry.get("also", ())))
    for name, entry in yaml.safe_load(assets_path("glossary.yaml").read_text("utf-8")).items()
)

_BY_NAME = {name: term for term in GLOSSARY for name in term.names}
_OF_SEVERAL_PARTS = re.compile(
    r"\b(?:" + "|".join(re.escape(entry.name) for entry in GLOSSARY if " " in entry.name) + r")\b", re.IGNORECASE
)


def term(text: str) -> Markup:
    """A label that opens its explanation where the glossary has one, and the label alone where it has none."""
    found = _BY_NAME.get(text.strip().lower())
    if found is None:
        return Markup(text) if isinstance(text, Markup) else Markup(escape(text))
    return _opener(found, text)


def explained_titles(titles: Iterable[str]) -> Markup:
    """A line under a table whose titles sort its rows: those that the glossary has open their explanations there."""
    words = {title: found for title in titles if (found := _BY_NAME.get(title.strip().lower()))}
    if not words:
        return Markup()
    # Its title is a button by the same name, which sorts.
    openers = [_opener(found, title, f"{title}, what it means") for title, found in words.items()]
    return Markup('<p class="hint explained">Explained: {}.</p>').format(Markup(", ").join(openers))


def explained(text: str) -> Markup:
    """A sentence in which the first mention of each word of several parts, such as impact ratio, opens it."""
    seen: set[str] = set()

    def opened(mention: re.Match[str]) -> str:
        found = _BY_NAME[mention[0].lower()]
        if found.key in seen:
            return str(escape(mention[0]))
        seen.add(found.key)
        return str(_opener(found, mention[0]))

    parts = _OF_SEVERAL_PARTS.split(text)
    mentions = [*_OF_SEVERAL_PARTS.finditer(text)]
    rest = [str(escape(part)) for part in parts]
    between = [*(opened(mention) for mention in mentions), ""]
    return Markup("".join(part + opener for part, opener in zip(rest, between, strict=True)))


def _opener(found: Term, text: str, spoken: str = "") -> Markup:
    name = Markup(' aria-label="{}"').format(spoken) if spoken else ""
    return Markup('<button type="button" class="term" data-explains="{}"{}>{}</button>').format(found.key, name, text)
