"""Whether a text is in a language that the span detector does not read.

Lexicons and pipelines are English. A text in another script is told by its letters, one in another language of the
Latin script by the small words that every sentence needs. Words that English has too are left out of the other
languages' lists, one small word is never enough, and quotations are left out, so that short English prompts are not
told of. Languages that are not listed here, in Latin letters, pass for English.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from coft_core.assets import assets_path


def _words(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_LISTS = json.loads(assets_path("lexicons", "languages.json").read_text(encoding="utf-8"))
ENGLISH = _words(_LISTS["english"])
OTHERS = {name: _words(lines) for name, lines in _LISTS["others"].items()}
_SHARED = _words(_LISTS["shared"])
"""Words that English texts have as well, as words, in names of people and places, or in phrases."""

LEAST_HITS = 2
SCRIPT_SHARE = 0.3
"""Share of letters of another script above which a text counts as written in it."""
LEAST_LETTERS = 4

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_QUOTED = re.compile(r"“[^”]*”|«[^»]*»|„[^“”]*[“”]|\"[^\"]*\"")
_ADDRESS = re.compile(r"\S*(?:://|www\.|@)\S*")
_MARKERS = {
    name: frozenset(word for word in words - ENGLISH - _SHARED if len(word) > 1) for name, words in OTHERS.items()
}


def language_note(text: str) -> str:
    """One sentence if a text is in a language that the detector does not read; empty if it seems to be English."""
    language = other_language(text)
    if not language:
        return ""
    return f"This text seems to be {language}; sensitive words are found in English alone, so mark them yourself."


def other_language(text: str) -> str:
    """The language or script of a text, such as ``"in Spanish"``; empty for English and where there is too little."""
    script = _script(text)
    if script:
        return f"in {script} script"
    plain = _ADDRESS.sub(" ", unicodedata.normalize("NFC", text))
    # What is quoted may be in any language; a text that is all quotation is judged as it is.
    unquoted = _QUOTED.sub(" ", plain)
    kept = unquoted if _WORD.search(unquoted) else plain
    words = [word.lower().replace("’", "'") for word in _WORD.findall(kept)]
    hits = {name: [word for word in words if word in markers] for name, markers in _MARKERS.items()}
    best = max(hits, key=lambda name: len(hits[name]))
    if len(set(hits[best])) >= LEAST_HITS and len(hits[best]) > _only_english(words, best):
        return f"in {best}"
    return ""


def _only_english(words: list[str], name: str) -> int:
    """English small words of a text that the other language does not have."""
    return sum(word.split("'")[0] in ENGLISH - OTHERS[name] for word in words)


def _script(text: str) -> str:
    """The script of a text of which other letters than Latin ones make up a good part; empty otherwise."""
    scripts = Counter(_script_of(letter) for letter in text if letter.isalpha())
    others = {name: count for name, count in scripts.items() if name != "LATIN"}
    if sum(others.values()) < max(LEAST_LETTERS, SCRIPT_SHARE * scripts.total()):
        return ""
    name = max(others, key=lambda language: others[language])
    return {"CJK": "Chinese or Japanese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean"}.get(
        name, name.capitalize()
    )


def _script_of(letter: str) -> str:
    """The script of a letter by its name; symbols for mathematics and full width are Latin letters in another dress."""
    name = unicodedata.name(letter, "LATIN")
    plain = unicodedata.normalize("NFKD", letter)[:1]
    return "LATIN" if plain.isascii() or name in ("LATIN", "MICRO SIGN") else name.split()[0].partition("-")[0]
