"""The toxicity scorer that comes with the program: a logistic model on hashed words of windows, and its word lists.

Groups of people and pronouns are read as placeholders, one for all, so that a window gets the same features whichever
listed group it is about. A second reading has placeholders for hostile words too, so that what is learnt of an insult
behind "you are" holds for every listed one. Function words, groups, pronouns, "you" and negations say nothing by
themselves: only runs of words that have another word in them are features.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix

from coft_core.assets import assets_path
from coft_core.errors import ModelLoadError

WINDOW = 40
"""Words of a window at most."""
STRIDE = 20
"""Words after which the next window of a long sentence begins."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|\n+")
_WORD = re.compile(r"'s\b|[^\W_]+(?:'(?!s\b)[^\W_]+)*")
_SAME = {"an": "a"}
"""Words read as another one, so that the article before an insult does not say with what letter it begins."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The words of several texts' different windows as they are first met, and where each text's windows are there."""

    words: tuple[tuple[str, ...], ...]
    texts: tuple[tuple[int, ...], ...]


def words_of(sentence: str) -> tuple[str, ...]:
    """The words of a sentence in lower case: a possessive ending is a word, ``an`` is ``a``, a number is ``0``."""
    words = _WORD.findall(sentence.lower().replace("’", "'"))
    return tuple("0" if word.isdigit() else _SAME.get(word, word) for word in words)


def windows_of(sentence: str) -> list[tuple[str, ...]]:
    """The windows of a sentence; a sentence without words has one without words."""
    words = words_of(sentence)
    last = max(len(words) - WINDOW, 0)
    starts = [*range(0, last, STRIDE), last]
    return [words[start : start + WINDOW] for start in starts]


def read(texts: Sequence[str]) -> Windows:
    """Cut texts into windows.

    Candidates for the next token differ in the last sentence alone: what they share is cut once, and kept once.
    """
    shared, begin = _shared_sentences(texts)
    places: dict[tuple[str, ...], int] = {}
    known: dict[str, tuple[int, ...]] = {}

    def placed(sentence: str) -> tuple[int, ...]:
        if sentence not in known:
            known[sentence] = tuple(places.setdefault(words, len(places)) for words in windows_of(sentence))
        return known[sentence]

    first = [place for sentence in shared for place in placed(sentence)]
    rows = [
        (*first, *(place for sentence in _SENTENCE_END.split(text[begin:]) for place in placed(sentence)))
        for text in texts
    ]
    return Windows(tuple(places), tuple(rows))


def _shared_sentences(texts: Sequence[str]) -> tuple[list[str], int]:
    """The whole sentences that all texts begin with, and the character at which the next one begins."""
    first, last = min(texts, default=""), max(texts, default="")
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ends = [match for match in _SENTENCE_END.finditer(first, 0, length) if match.end() < length]
    return (_SENTENCE_END.split(first[: ends[-1].end()])[:-1], ends[-1].end()) if ends else ([], 0)


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
    """Hashes of all runs of ``length`` neighbouring parts that have one owner."""
    count = len(parts) - length + 1
    if count <= 0:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    starts = np.flatnonzero(owners[:count] == owners[length - 1 :])
    folded = parts[starts]
    for offset in range(1, length):
        folded = joined(folded, parts[starts + offset])
    return folded, starts


def piece_hashes(words: Sequence[str]) -> tuple[Hashes, Places]:
    """Hashes of the pieces of words: runs of three to five characters, with a mark at both margins of the word."""
    cut = [word[:LONGEST_WORD] for word in words]
    text = "".join(f"|{word}|" for word in cut)
    letters = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    owners = np.repeat(np.arange(len(cut)), [len(word) + 2 for word in cut])
    runs = [sequence_hashes(letters, owners, length) for length in PIECE_LENGTHS]
    hashes = np.concatenate([each for each, _ in runs])
    places = owners[np.concatenate([starts for _, starts in runs])]
    order = np.argsort(places, kind="stable")
    return hashes[order], places[order]


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
    """Listed words and phrases, known by their hashes alone."""

    hashes: Hashes
    kinds: _Kinds

    @classmethod
    def of(cls, terms: Mapping[str, Iterable[Sequence[str]]]) -> WordLists:
        """Lists from terms."""
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
            listed = self.lookup(hashes)
            hit, starts = listed[listed > 0], starts[listed > 0]
            for offset in range(length):
                kinds[starts + offset] = hit
        return kinds


def feature_matrix(windows: Sequence[Sequence[str]], lists: WordLists) -> Any:
    """Which features the words of each window have, zeros and ones, ``(N, FEATURES)`` sparse by rows."""
    vocabulary = {word: place for place, word in enumerate(dict.fromkeys(w for window in windows for w in window))}
    flat = np.array([vocabulary[word] for window in windows for word in window], dtype=np.int64)  # (T,)
    owners = np.repeat(np.arange(len(windows)), [len(window) for window in windows])  # (T,)
    parts = word_hashes(list(vocabulary))[flat]  # (T,)
    kinds = lists.marked(parts, owners)
    kept = ~_repeated(owners, kinds, _FOLDED)
    cells = [
        *_runs(parts, owners, kinds, _FOLDED, (1, 2, 3), ~np.isin(kinds, _HARMLESS)),
        *_runs(parts, owners, kinds, _NAMED, (2, 3, 4), kinds >= _FIRST_HOSTILE),
        _pieces(list(vocabulary), flat, owners, kinds),
        _list_signs(owners[kept], kinds[kept], len(windows)),
    ]
    rows = np.concatenate([row for row, _ in cells])
    columns = np.concatenate([column for _, column in cells])
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
    values, owners_left, told = values[~repeated], owners[~repeated], np.cumsum([0, *telling[~repeated]])
    cells: list[_Cells] = []
    for length in lengths:
        hashes, starts = sequence_hashes(values, owners_left, length)
        kept = told[starts + length] > told[starts]
        cells.append((owners_left[starts[kept]], (hashes[kept] % np.uint64(RUN_FEATURES)).astype(np.int64)))
    return cells


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
    owners_kept, words = owners[kept], flat[kept]
    counts = bounds[words + 1] - bounds[words]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = hashes[np.repeat(bounds[words], counts) + within]
    return np.repeat(owners_kept, counts), RUN_FEATURES + (chosen % np.uint64(PIECE_FEATURES)).astype(np.int64)


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


SHIPPED = assets_path("scorer", "embedded.npz")
FORMAT = 2


@dataclass(frozen=True, eq=False)
class EmbeddedScorer:
    """A logistic model that judges a text by its most toxic window.

    A window is a sentence, or a part of a long one. So a text's score never falls
    when it goes on, as long as its sentences stay as they are.
    """

    name: str
    version: str
    lists: WordLists
    weights: npt.NDArray[np.float32]
    bias: float

    def score(self, texts: Sequence[str]) -> list[float]:
        """Probability that each text is toxic."""
        return [1.0 / (1.0 + float(np.exp(-logit))) for logit in self.logits(texts)]

    def logits(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Log-odds that each text is toxic: those of its most toxic window, ``(N,)``."""
        if not texts:
            return np.empty(0)
        windows = read(texts)
        features = feature_matrix(windows.words, self.lists) @ self.weights.astype(np.float64) + self.bias  # (windows,)
        flat = np.concatenate([features[list(places)] for places in windows.texts])
        starts = np.cumsum([0, *(len(places) for places in windows.texts[:-1])])
        highest: npt.NDArray[np.float64] = np.maximum.reduceat(flat, starts)
        return highest

    def to_bytes(self) -> bytes:
        """The scorer's file, in NumPy's compressed form; weights are rounded to 16 bits."""
        header = json.dumps({"format": FORMAT, "bias": self.bias, "kinds": KINDS})
        file = io.BytesIO()
        np.savez_compressed(
            file,
            header=np.array(header),
            weights=self.weights.astype(np.float16),
            list_hashes=self.lists.hashes,
            list_kinds=self.lists.kinds,
        )
        return file.getvalue()

    def save(self, path: Path) -> EmbeddedScorer:
        """Write the file and return what :func:`load_embedded` reads from it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.to_bytes())
        return load_embedded(path)


def load_embedded(path: Path = SHIPPED) -> EmbeddedScorer:
    """Read the scorer's file."""
    try:
        content = path.read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header: dict[str, Any] = json.loads(str(file["header"]))
            lists = WordLists(file["list_hashes"].astype(np.uint64), file["list_kinds"].astype(np.uint8))
            weights = file["weights"].astype(np.float32)
        bias = float(header["bias"])
        told = (header["format"], tuple(header["kinds"]), weights.shape)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ModelLoadError(f"The embedded toxicity scorer at {path} cannot be read ({error}).") from error
    if told != (FORMAT, KINDS, (FEATURES,)):
        raise ModelLoadError(
            f"The embedded toxicity scorer at {path} is of format {told[0]} and this program reads format {FORMAT}; "
            "train it again with python -m bench.toxicity_scorer."
        )
    return EmbeddedScorer("embedded", hashlib.sha256(content).hexdigest(), lists, weights, bias)
