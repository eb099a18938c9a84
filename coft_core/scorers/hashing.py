"""Hashes of words, phrases and pieces of words, for many words at once.

All are 64 bits wide and the same on every machine. Words are hashed with BLAKE2b; what is made of several parts is
folded from left to right with the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

PIECE_LENGTHS = (3, 4, 5)
LONGEST_WORD = 40
"""Characters of a word that are read; what follows tells nothing more."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def word_hashes(words: Sequence[str]) -> Hashes:
    """Hash of each word, ``(N,)``."""
    digests = b"".join(hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def joined(left: Hashes, right: Hashes) -> Hashes:
    """Hash of a sequence that is continued by one more part; order matters."""
    mixed = left * _ODD + right
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def phrase_hash(words: Sequence[str]) -> int:
    """Hash of one or several words in sequence."""
    hashes = word_hashes(words)
    folded = hashes[:1]
    for place in range(1, len(words)):
        folded = joined(folded, hashes[place : place + 1])
    return int(folded[0])


def sequence_hashes(parts: Hashes, owners: Places, length: int) -> tuple[Hashes, Places]:
    """Hashes of all runs of ``length`` neighbouring parts that have one owner.

    Args:
        parts: Hashes of the parts in their order, ``(T,)``.
        owners: What each belongs to, ascending, ``(T,)``.
        length: How many parts make a run.

    Returns:
        Hash of each run, and the place of its first part.
    """
    count = len(parts) - length + 1
    if count <= 0:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    starts = np.flatnonzero(owners[:count] == owners[length - 1 :])
    folded = parts[starts]
    for offset in range(1, length):
        folded = joined(folded, parts[starts + offset])
    return folded, starts


def piece_hashes(words: Sequence[str]) -> tuple[Hashes, Places]:
    """Hashes of the pieces of words: runs of three to five characters, with a mark at both margins of the word.

    Returns:
        Hash of each piece, and the place of its word in ``words``; the words are in ascending order.
    """
    cut = [word[:LONGEST_WORD] for word in words]
    text = "".join(f"|{word}|" for word in cut)
    letters = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    owners = np.repeat(np.arange(len(cut)), [len(word) + 2 for word in cut])
    found = [sequence_hashes(letters, owners, length) for length in PIECE_LENGTHS]
    hashes = np.concatenate([each for each, _ in found])
    places = owners[np.concatenate([starts for _, starts in found])]
    order = np.argsort(places, kind="stable")
    return hashes[order], places[order]
