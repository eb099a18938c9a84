"""Words put back into running text."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from bench.detector.corpora import TaggedSentence


@lru_cache(maxsize=1)
def word_lists() -> dict[str, frozenset[str]]:
    """The lists of ``words.json``."""
    written = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
    return {name: frozenset(words.split()) for name, words in written.items()}


def running_text(sentence: TaggedSentence) -> tuple[str, list[int], list[int]]:
    """The text of a sentence, and the start and end of each word: original if the corpus has it, else by rule."""
    return _located(sentence) or _joined(sentence.words)


def _located(sentence: TaggedSentence) -> tuple[str, list[int], list[int]] | None:
    """The original text with the offsets of its words, if the corpus has it."""
    starts, ends, position = list[int](), list[int](), 0
    for word in sentence.words:
        start = sentence.text.find(word, position)
        if start < 0:
            return None
        position = start + len(word)
        starts.append(start)
        ends.append(position)
    return sentence.text, starts, ends


def _joined(words: tuple[str, ...]) -> tuple[str, list[int], list[int]]:
    """The words as running text, with the offsets of each."""
    text, starts, ends, quoted = "", list[int](), list[int](), False
    before, after = word_lists()["no_space_before"], word_lists()["no_space_after"]
    glue = True
    for word in words:
        closing = word == '"' and quoted
        if not (glue or word in before or closing):
            text += " "
        starts.append(len(text))
        text += word
        ends.append(len(text))
        glue = word in after or (word == '"' and not quoted)
        quoted ^= word == '"'
    return text, starts, ends
