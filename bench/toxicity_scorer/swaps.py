"""Ordinary sentences retold about a group of people, or about "you", in place of a pronoun.

In published text a named group is rare, and in the written sentences every second one is insulted. Without these
sentences a scorer would learn that naming a group, or speaking to someone, is toxic by itself.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from bench.toxicity_scorer.sentences import Sentence
from bench.toxicity_scorer.words import Choices

_PLURAL = re.compile(r"\b([Tt]hey|[Ww]e)\b(?!')")
_SINGULAR = re.compile(r"\b([Hh]e|[Ss]he)\b(?!')")
_SINGULAR_VERB = re.compile(r"\b([Hh]e|[Ss]he) (is|was|has|had|could|would|will|can|should|did|might|must|\w+ed)\b")
_OF_YOU = {"is": "are", "was": "were", "has": "have"}
_YOU_SHARE = 0.4


def retold(sentences: Sequence[Sentence], choices: Choices, seed: int) -> list[Sentence]:
    """Those of the sentences that have a pronoun to replace, retold; each once, labels unchanged."""
    rng = random.Random(f"{seed} retold")
    texts = [_retold(sentence.text, choices, rng) for sentence in sentences]
    pairs = zip(sentences, texts, strict=True)
    return [replace(sentence, text=text, kind=f"{sentence.kind}, retold") for sentence, text in pairs if text]


def _retold(text: str, choices: Choices, rng: random.Random) -> str:
    people, you = choices.draw_people(rng), rng.random() < _YOU_SHARE
    if _PLURAL.search(text):
        return _swapped(_PLURAL, text, "you" if you else people.many)
    if you:
        found = _SINGULAR_VERB.search(text)
        if found is None:
            return ""
        verb = _OF_YOU.get(found[2], found[2])
        return text[: found.start()] + _as(f"you {verb}", found[1]) + text[found.end() :]
    return _swapped(_SINGULAR, text, people.one) if _SINGULAR.search(text) else ""


def _swapped(pattern: re.Pattern[str], text: str, words: str) -> str:
    return pattern.sub(lambda match: _as(words, match[0]), text, count=1)


def _as(words: str, old: str) -> str:
    """Words that begin with a capital where the old ones did."""
    return words[:1].upper() + words[1:] if old[:1].isupper() else words
