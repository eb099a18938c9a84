"""Tokens of a text as the lexicons see them, each with its place in the text exactly as typed.

Words are folded (compatibility forms, accents, zero-width characters, typographic apostrophes); whitespace
and the hyphens inside compounds are left out, so that ``"African-American"`` and ``"African  American"`` are
the same two words. The text itself is never normalised: offsets stay those typed.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import spacy
from spacy.language import Language
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc
from spacy.util import compile_infix_regex

from coft_core.errors import InvalidInputError

_SURROGATES = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with lone surrogates replaced one for one, for readers that cannot encode them; offsets stay."""
    return _SURROGATES.sub("\ufffd", text)


def surrogate_problem(text: str) -> str:
    """What is wrong with a text that holds a lone surrogate, as the rest of a sentence about it; empty if none does."""
    match = _SURROGATES.search(text)
    if match is None:
        return ""
    code = f"U+{ord(match.group()):04X}"
    return (
        f"holds half of a character ({code}, a lone surrogate) at character {match.start() + 1}, which no model can "
        "read; delete it or type it again"
    )


def require_encodable(text: str, what: str = "A text that the model is to read") -> None:
    """Refuse a text with a lone surrogate."""
    if problem := surrogate_problem(text):
        raise InvalidInputError(f"{what} {problem}.")


_SIBILANT_ENDINGS = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"


def regular_plural(term: str) -> str:
    """The plural of a term by the regular spelling of its last word: ``"single mother"``, ``"single mothers"``."""
    lower = term.lower()
    if lower.endswith("y") and len(term) > 1 and lower[-2] not in _VOWELS:
        return term[:-1] + "ies"
    if lower.endswith(_SIBILANT_ENDINGS):
        return term + "es"
    return term + "s"


HYPHENS = "-\u2010\u2011\u2012\u2013\u2212\u00ad"
_APOSTROPHES = str.maketrans("\u2018\u2019\u02bc\u0060\u00b4\uff07", "'" * 6)
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x85\u2028\u2029]")
_SENTENCE_BORDERS = frozenset((*".!?:;\u2026\"'([{*\u2022-\u2013\u2014\u201c\u201d\u00ab\u00bb>|", "...", "--"))


@dataclass(frozen=True, slots=True)
class TokenView:
    """The words of one text, in order; all tuples have one item per word."""

    words: tuple[str, ...]
    lowers: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    opens_sentence: tuple[bool, ...]
    opens_paragraph: tuple[bool, ...]

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    def doc(self, nlp: Language) -> Doc:
        """The words as a spaCy document, for spaCy's matchers; its offsets are not those of the text."""
        return Doc(nlp.vocab, words=list(self.words))


def english_tokenizer() -> Language:
    """A blank English pipeline that also splits compounds at typographic hyphens and before digits."""
    nlp = spacy.blank("en")
    infixes = [*(nlp.Defaults.infixes or ()), rf"(?<=[^\W_])[{HYPHENS}](?=[^\W_])"]
    # The tokenizer object is the pipeline's own: setting its rule changes this pipeline only.
    cast("Tokenizer", nlp.tokenizer).infix_finditer = compile_infix_regex(infixes).finditer
    return nlp


@lru_cache(maxsize=65536)
def fold(word: str) -> str:
    """Fold one word for lookup: no accents, no invisible characters, plain apostrophes; letter case stays."""
    if word.isascii():
        return word.translate(_APOSTROPHES)
    decomposed = unicodedata.normalize("NFKD", word.translate(_APOSTROPHES))
    kept = (char for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFC", "".join(kept)).translate(_APOSTROPHES)


def view_tokens(nlp: Language, text: str) -> TokenView:
    """The words of a text by a pipeline of :func:`english_tokenizer`, with their offsets into it."""
    pieces = ((fold(token.text), token.idx, token.idx + len(token.text)) for token in nlp.tokenizer(encodable(text)))
    read = [(word, a, b) for word, a, b in pieces if word and not word.isspace() and not _joins(text, a, b)]
    words, starts, ends = [word for word, _, _ in read], [start for _, start, _ in read], [end for _, _, end in read]
    gaps = (text[a:b] for a, b in zip([0, *ends], starts, strict=False))
    breaks = [len(_LINE_BREAK.findall(gap)) for gap in gaps]
    previous = ["", *words]
    return TokenView(
        words=tuple(words),
        lowers=tuple(word.lower() for word in words),
        starts=tuple(starts),
        ends=tuple(ends),
        opens_sentence=tuple(i == 0 or breaks[i] > 0 or previous[i] in _SENTENCE_BORDERS for i in range(len(words))),
        opens_paragraph=tuple(i == 0 or breaks[i] > 1 for i in range(len(words))),
    )


def is_hyphen(text: str) -> bool:
    """Whether the text is one hyphen or dash as used inside compounds."""
    return len(text) == 1 and text in HYPHENS


def _joins(text: str, start: int, end: int) -> bool:
    """Whether the token at these offsets is a hyphen with a word character on both sides."""
    inside = start > 0 and end < len(text) and text[start - 1].isalnum() and text[end].isalnum()
    return inside and is_hyphen(text[start:end])
