"""Sentences in each language: one catalogue a language, with the same messages and placeholders."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError

LANGUAGES = {"en": "English", "de": "Deutsch"}
"""Languages of formal reports, each by its own name."""

MOST_PLACES = 6
"""Of small probabilities; those that need more are given as less than the least."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The messages of a language."""

    language: str
    messages: Mapping[str, str]

    def say(self, name: str, /, **values: object) -> str:
        """A message with its placeholders filled in."""
        return self.messages[name].format(**values)

    def counted(self, name: str, number: int, /, **values: object) -> str:
        """A message that has a form for one (``_one``) and another for every other number (``_many``)."""
        return self.say(f"{name}_{'one' if number == 1 else 'many'}", number=self.whole(number), **values)

    def number(self, value: float, digits: int = 2) -> str:
        """A number with fixed digits; a positive one never reads as zero."""
        text = f"{value:,.{digits}f}"
        least = 10.0**-digits
        return self._localised(f"<{least:.{digits}f}" if value > 0 and float(text.replace(",", "")) == 0 else text)

    def probability(self, value: float) -> str:
        """A probability: two places, or two significant digits where it is less than one in ten."""
        if value == 0 or value >= 0.1:
            return self.number(value)
        return self.number(value, min(MOST_PLACES, 1 - math.floor(math.log10(value))))

    def whole(self, value: int) -> str:
        """A whole number with its thousands apart."""
        return self._localised(f"{value:,}")

    def percent(self, value: float) -> str:
        """A share in percent, with one digit."""
        return f"{self.number(100 * value, 1)} %"

    def factor(self, ratio: float) -> str:
        """How many times: one digit below ten, none above."""
        return self.number(ratio, 1 if ratio < 9.95 else 0)

    def listed(self, items: Sequence[str]) -> str:
        """Items in a sentence, the last one joined by a word."""
        if len(items) < 2:
            return "".join(items)
        return f"{', '.join(items[:-1])} {self.say('words.and')} {items[-1]}"

    def quoted(self, text: str) -> str:
        """A text in the language's quotation marks."""
        return self.say("words.quoted", text=text)

    def stored(self, sentence: str) -> tuple[str, str]:
        """A sentence that was stored in English, as this language says it, with the language that it is in then.

        Numbers in it are written as the language does. A sentence that no message has stays as it was stored.
        """
        for name, pattern in _stored_sentences():
            if (found := pattern.fullmatch(sentence)) is not None:
                values = {key: self._stored_value(value) for key, value in found.groupdict().items()}
                return self.say(name, **values), self.language
        return sentence, STORED

    def _stored_value(self, text: str) -> str:
        if _NUMBER.fullmatch(text):
            return self._localised(text)
        if _STEPS.fullmatch(text) is None:
            return text
        later = self.say("warnings.and_later")
        return text.replace("and later", later).replace(" and ", f" {self.say('words.and')} ")

    def _localised(self, text: str) -> str:
        marks = {",": self.messages["words.thousands"], ".": self.messages["words.decimal"]}
        return "".join(marks.get(char, char) for char in text)


STORED = "en"
"""Language in which sentences are stored with sessions."""

_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?")
_STEPS = re.compile(r"[\d\N{EN DASH}, ]+(and (later|[\d\N{EN DASH}, ]+))*")
_PLACEHOLDER = re.compile(r"\\\{(\w+)\\\}")


@cache
def _stored_sentences() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The messages by which stored sentences are known; a placeholder stands for any text."""
    known = catalogue(STORED).messages
    return tuple(
        (name, re.compile(_PLACEHOLDER.sub(r"(?P<\1>.+?)", re.escape(text)), re.DOTALL))
        for name, text in known.items()
        if name.startswith("warnings.")
    )


@cache
def catalogue(language: str) -> Catalogue:
    """The messages of a language."""
    if language not in LANGUAGES:
        raise InvalidInputError(f"There is no report in the language {language!r}; choose {', '.join(LANGUAGES)}.")
    data = tomllib.loads(assets_path("reports", "messages", f"{language}.toml").read_text("utf-8"))
    return Catalogue(
        language, {f"{section}.{name}": text for section, texts in data.items() for name, text in texts.items()}
    )
