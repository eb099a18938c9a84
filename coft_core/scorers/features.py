"""What the embedded scorer sees of a window of words: hashed words and pieces of words, and what its lists say of them.

Groups of people and pronouns are read as placeholders, one for all, so that a window gets the same features whichever
listed group it is about. A second reading has placeholders for hostile words too, so that what is learnt of an insult
behind "you are" holds for every listed one. Function words, groups, pronouns, "you" and negations say nothing by
themselves: only runs of words that have another word in them are features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix

from coft_core.scorers.hashing import Hashes, Places, phrase_hash, piece_hashes, sequence_hashes, word_hashes

FUNCTION, GROUP, PRONOUN, ADDRESS, NEGATION = "function", "group", "pronoun", "address", "negation"
HOSTILE_KINDS: Final = ("insult", "adjective", "dehumanising", "filth", "hostile", "harm", "profanity", "slur")
KINDS: Final = (FUNCTION, GROUP, PRONOUN, ADDRESS, NEGATION, *HOSTILE_KINDS)
"""Kinds of listed words, in the order of their numbers, which begin at 1; 0 is a word that no list has."""

PHRASE_WORDS: Final = 5
"""Words of a listed phrase at most."""
NEGATION_REACH: Final = 6
"""Words before a hostile one in which a negation counts as its own; a group is one word, however many it has."""
SIGNS: Final = ("present", "with address", "with a group", "negated", "not negated")
"""What is said of each hostile kind in a window."""

RUN_FEATURES: Final = 2**16
PIECE_FEATURES: Final = 2**15
LIST_FEATURES: Final = len(HOSTILE_KINDS) * len(SIGNS)
FEATURES: Final = RUN_FEATURES + PIECE_FEATURES + LIST_FEATURES

_FIRST_HOSTILE = len(KINDS) - len(HOSTILE_KINDS) + 1
_FOLDED = (KINDS.index(GROUP) + 1, KINDS.index(PRONOUN) + 1)
_NAMED = tuple(range(KINDS.index(GROUP) + 1, len(KINDS) + 1))
_HARMLESS = tuple(range(1, _FIRST_HOSTILE))
_PLACEHOLDERS = word_hashes([f"<{kind}>" for kind in ("", *KINDS)])

_Kinds = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class WordLists:
    """Listed words and phrases, known by their hashes alone.

    Attributes:
        hashes: Hashes of the terms, ascending, ``(L,)``.
        kinds: Number of each term's kind, ``(L,)``.
    """

    hashes: Hashes
    kinds: _Kinds

    @classmethod
    def of(cls, terms: Mapping[str, Iterable[Sequence[str]]]) -> WordLists:
        """Lists from terms.

        Args:
            terms: Terms as words, by kind. A term in several kinds is of the last one of :data:`KINDS`.
        """
        numbers = {phrase_hash(term): KINDS.index(kind) + 1 for kind in KINDS for term in terms.get(kind, ())}
        hashes = np.array(sorted(numbers), dtype=np.uint64)
        return cls(hashes, np.array([numbers[int(each)] for each in hashes], dtype=np.uint8))

    def lookup(self, hashes: Hashes) -> _Kinds:
        """Number of each hash's kind, 0 where no list has it."""
        if not len(self.hashes):
            return np.zeros(len(hashes), dtype=np.uint8)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.kinds[places], 0).astype(np.uint8)

    def marked(self, parts: Hashes, owners: Places) -> _Kinds:
        """Number of the kind of each word in its window, ``(T,)``.

        A word that several terms cover is of the longest one's kind, and of the earliest of those.
        """
        kinds = np.zeros(len(parts), dtype=np.uint8)
        for length in range(1, PHRASE_WORDS + 1):
            hashes, starts = sequence_hashes(parts, owners, length)
            found = self.lookup(hashes)
            hit, starts = found[found > 0], starts[found > 0]
            for offset in range(length):
                kinds[starts + offset] = hit
        return kinds


def feature_matrix(windows: Sequence[Sequence[str]], lists: WordLists) -> Any:
    """The features of windows.

    Args:
        windows: Words of each window.
        lists: The listed words.

    Returns:
        Which features each window has, zeros and ones, ``(N, FEATURES)`` sparse by rows.
    """
    vocabulary = {word: place for place, word in enumerate(dict.fromkeys(w for window in windows for w in window))}
    flat = np.array([vocabulary[word] for window in windows for word in window], dtype=np.int64)  # (T,)
    owners = np.repeat(np.arange(len(windows)), [len(window) for window in windows])  # (T,)
    parts = word_hashes(list(vocabulary))[flat]  # (T,)
    kinds = lists.marked(parts, owners)
    kept = ~_repeated(owners, kinds, _FOLDED)
    found = [
        *_runs(parts, owners, kinds, _FOLDED, (1, 2, 3), ~np.isin(kinds, _HARMLESS)),
        *_runs(parts, owners, kinds, _NAMED, (2, 3, 4), kinds >= _FIRST_HOSTILE),
        _pieces(list(vocabulary), flat, owners, kinds),
        _list_signs(owners[kept], kinds[kept], len(windows)),
    ]
    rows = np.concatenate([row for row, _ in found])
    columns = np.concatenate([column for _, column in found])
    matrix = coo_matrix((np.ones(len(rows), np.float32), (rows, columns)), (len(windows), FEATURES)).tocsr()
    matrix.data[:] = 1.0
    return matrix


_Cells = tuple[Places, Places]


def _runs(
    parts: Hashes,
    owners: Places,
    kinds: _Kinds,
    folded: tuple[int, ...],
    lengths: tuple[int, ...],
    telling: npt.NDArray[np.bool_],
) -> list[_Cells]:
    """Runs of words with a ``telling`` one, in which neighbours of one of the ``folded`` kinds are one placeholder."""
    placed = np.isin(kinds, folded)
    values = np.where(placed, _PLACEHOLDERS[kinds], parts)
    repeated = _repeated(owners, kinds, folded)
    values, own, told = values[~repeated], owners[~repeated], np.cumsum([0, *telling[~repeated]])
    found: list[_Cells] = []
    for length in lengths:
        hashes, starts = sequence_hashes(values, own, length)
        kept = told[starts + length] > told[starts]
        found.append((own[starts[kept]], (hashes[kept] % np.uint64(RUN_FEATURES)).astype(np.int64)))
    return found


def _repeated(owners: Places, kinds: _Kinds, folded: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Which words are of one placeholder with the word before them, ``(T,)``."""
    repeated = np.zeros(len(kinds), dtype=bool)
    repeated[1:] = np.isin(kinds[1:], folded) & (kinds[1:] == kinds[:-1]) & (owners[1:] == owners[:-1])
    return repeated


def _pieces(vocabulary: list[str], flat: Places, owners: Places, kinds: _Kinds) -> _Cells:
    """Pieces of the words that are of no kind, or hostile."""
    hashes, places = piece_hashes(vocabulary)
    bounds = np.searchsorted(places, np.arange(len(vocabulary) + 1))
    kept = ~np.isin(kinds, _HARMLESS)
    own, words = owners[kept], flat[kept]
    counts = bounds[words + 1] - bounds[words]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = hashes[np.repeat(bounds[words], counts) + within]
    return np.repeat(own, counts), RUN_FEATURES + (chosen % np.uint64(PIECE_FEATURES)).astype(np.int64)


def _list_signs(owners: Places, kinds: _Kinds, count: int) -> _Cells:
    """What each window says with the hostile words of each kind."""
    has = np.zeros((count, len(KINDS) + 1), dtype=bool)
    has[owners, kinds] = True
    negated = np.zeros(len(kinds), dtype=bool)
    negation = kinds == KINDS.index(NEGATION) + 1
    for reach in range(1, NEGATION_REACH + 1):
        negated[reach:] |= negation[:-reach] & (owners[:-reach] == owners[reach:])
    sides = np.zeros((2, count, len(KINDS) + 1), dtype=bool)
    sides[negated.astype(np.int64), owners, kinds] = True
    present = has[:, _FIRST_HOSTILE:]  # (N, K)
    signs = np.stack(
        [
            present,
            present & has[:, [KINDS.index(ADDRESS) + 1]],
            present & has[:, [KINDS.index(GROUP) + 1]],
            sides[1][:, _FIRST_HOSTILE:],
            sides[0][:, _FIRST_HOSTILE:],
        ],
        axis=-1,
    )  # (N, K, signs)
    rows, columns = np.nonzero(signs.reshape(count, -1))
    return rows, RUN_FEATURES + PIECE_FEATURES + columns
