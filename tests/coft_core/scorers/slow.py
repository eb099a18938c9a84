"""The features of a window again, one at a time and in Python's own integers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

KINDS = (
    "function", "group", "pronoun", "address", "negation", "insult", "adjective", "dehumanising", "filth", "hostile",
    "harm", "profanity", "slur",
)  # fmt: skip
HARMLESS = KINDS[:5]
RUNS, PIECES = 65536, 32768
WIDTH = 2**64


def word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def join(left: int, right: int) -> int:
    z = (left * 0x9E3779B97F4A7C15 + right) % WIDTH
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WIDTH
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WIDTH
    return z ^ (z >> 31)


def chain(parts: Sequence[int]) -> int:
    folded = parts[0]
    for part in parts[1:]:
        folded = join(folded, part)
    return folded


def kinds_of(words: Sequence[str], terms: Mapping[tuple[str, ...], str]) -> list[str]:
    """The kind of the longest listed phrase over each word, of those the earliest; empty without one."""
    found = []
    for place in range(len(words)):
        covering = [
            (-length, start)
            for length in range(1, 6)
            for start in range(place - length + 1, place + 1)
            if start >= 0 and start + length <= len(words) and tuple(words[start : start + length]) in terms
        ]
        length, start = min(covering, default=(0, 0))
        found.append(terms[tuple(words[start : start - length])] if covering else "")
    return found


def columns(words: Sequence[str], terms: Mapping[tuple[str, ...], str]) -> set[int]:
    """Every feature that the window has."""
    kinds = kinds_of(words, terms)
    return runs(words, kinds) | pieces(words, kinds) | signs(kinds)


def runs(words: Sequence[str], kinds: Sequence[str]) -> set[int]:
    found = set()
    plain, named = ("group", "pronoun"), KINDS[1:]
    for folded, lengths, telling in ((plain, (1, 2, 3), ("", *KINDS[5:])), (named, (2, 3, 4), KINDS[5:])):
        sequence: list[tuple[int, str]] = []
        for place, (word, kind) in enumerate(zip(words, kinds, strict=True)):
            if kind not in folded:
                sequence.append((word_hash(word), kind))
            elif place == 0 or kinds[place - 1] != kind:
                sequence.append((word_hash(f"<{kind}>"), kind))
        for length in lengths:
            for start in range(len(sequence) - length + 1):
                run = sequence[start : start + length]
                if any(kind in telling for _, kind in run):
                    found.add(chain([value for value, _ in run]) % RUNS)
    return found


def pieces(words: Sequence[str], kinds: Sequence[str]) -> set[int]:
    found = set()
    for word, kind in zip(words, kinds, strict=True):
        marked = f"|{word[:40]}|"
        if kind not in HARMLESS:
            cuts = [marked[i : i + n] for n in (3, 4, 5) for i in range(len(marked) - n + 1)]
            found |= {RUNS + chain([ord(letter) for letter in cut]) % PIECES for cut in cuts}
    return found


def signs(marked: Sequence[str]) -> set[int]:
    found = set()
    plain = ("group", "pronoun")
    kinds = [own for place, own in enumerate(marked) if place == 0 or own not in plain or marked[place - 1] != own]
    for number, kind in enumerate(KINDS[5:]):
        places = [place for place, own in enumerate(kinds) if own == kind]
        negated = ["negation" in kinds[max(place - 6, 0) : place] for place in places]
        said = (bool(places), "address" in kinds, "group" in kinds, any(negated), not all(negated))
        found |= {RUNS + PIECES + 5 * number + i for i, sign in enumerate(said) if sign and places}
    return found
