"""What a trained spaCy pipeline finds: people, nationalities and religions, places, and words of any family in context.

Every pipeline finds named entities. The embedded one also gives each word the probability of each attribute family
(component ``families``), which judges ambiguous words, and finds words that no lexicon lists.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Token
from spacy.tokens import Span as EntitySpan

from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError
from coft_core.text.tokens import encodable

AUTO: Final = "auto"
"""The default: choose the pipeline that comes with the program."""

FAMILIES_PIPE: Final = "families"
"""Name of the component that gives every word the probability of each attribute family."""

EMBEDDED: Final = "embedded"
"""Choose the pipeline that comes with the program."""

ALONE: Final = 0.95
"""Probability from which a word of a family is marked though no lexicon lists it."""

_CAPITALISED_FAMILIES = ("NAME", "NATIONALITY", "RACE", "RELIGION")
_LABELS = ("PERSON", "NORP", "GPE")
_UNUSED = ["tagger", "parser", "attribute_ruler", "lemmatizer"]


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that a pipeline found."""

    start: int
    end: int
    label: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Recognized:
    """What a pipeline makes of one text."""

    entities: tuple[Entity, ...]
    _starts: npt.NDArray[np.int64]  # (N,)
    _ends: npt.NDArray[np.int64]  # (N,)
    _sensitive: npt.NDArray[np.float32]  # (N,)

    def probability(self, start: int, end: int) -> float:
        """Mean probability that the words between two characters name or reveal an attribute; 0 without a word."""
        words = (self._starts < end) & (self._ends > start)  # (N,)
        return float(self._sensitive[words].mean()) if words.any() else 0.0


class EntityPipeline:
    """A trained pipeline that names entities; unchanging after construction."""

    def __init__(self, name_or_path: str) -> None:
        """Load an installed spaCy package, or a folder that ``Language.to_disk`` wrote."""
        self._nlp = _load(name_or_path)
        meta = self._nlp.meta
        self.version: Final = f"{meta['lang']}_{meta['name']} {meta['version']}+{_digest(self._nlp)}"
        """Name and version as the pipeline states them, and a digest of what was loaded."""

    @classmethod
    def choose(cls, name_or_path: str | None) -> EntityPipeline | None:
        """The pipeline by name: a package, a folder, :data:`AUTO` or :data:`EMBEDDED`, or None for no pipeline."""
        if name_or_path is None:
            return None
        embedded = name_or_path in (AUTO, EMBEDDED)
        return cls(str(assets_path("pipelines", "en_coft_ner")) if embedded else name_or_path)

    def read(self, text: str) -> Recognized:
        """What the pipeline makes of a text.

        People (``PERSON``), nationalities and religions (``NORP``) and places (``GPE``) come without a leading article
        and a trailing possessive, and, if the pipeline classifies words, with those of a family.
        """
        if len(text) > self._nlp.max_length:
            raise InvalidInputError(
                f"The text has {len(text)} characters and the pipeline {self.version} takes at most "
                f"{self._nlp.max_length}; shorten the text."
            )
        document = self._nlp(encodable(text))
        chances = self._family_chances(document)
        starts = np.array([token.idx for token in document], dtype=np.int64)
        ends = np.array([token.idx + len(token) for token in document], dtype=np.int64)
        sensitive = np.zeros(len(document), dtype=np.float32) if chances is None else 1 - chances[:, 0]
        entities = list(_named(document, None if chances is None else sensitive))
        if chances is not None:
            entities += _of_families(document, chances, self._family_labels)
        return Recognized(tuple(sorted(entities, key=lambda entity: entity.start)), starts, ends, sensitive)

    @property
    def judges(self) -> bool:
        """Whether it gives every word a probability for each family, as :meth:`Recognized.probability` says."""
        return FAMILIES_PIPE in self._nlp.component_names

    @property
    def _family_labels(self) -> Sequence[str]:
        return cast("Sequence[str]", cast("Any", self._nlp.get_pipe(FAMILIES_PIPE)).labels)

    def _family_chances(self, document: Doc) -> npt.NDArray[np.float32] | None:
        """Probability of each label for each word, (N, L), the label of no family first; None without the component."""
        if not self.judges:
            return None
        component = cast("Any", self._nlp.get_pipe(FAMILIES_PIPE))
        (chances,) = component.model.predict([document])
        return np.asarray(chances, dtype=np.float32)


def _load(name_or_path: str) -> Language:
    try:
        place = Path(name_or_path) if Path(name_or_path).is_dir() else name_or_path
        # The families are asked for their probabilities; running the component would only keep the likeliest label.
        nlp = spacy.load(place, exclude=_UNUSED, disable=[FAMILIES_PIPE])
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InvalidInputError(
            f"The spaCy pipeline {name_or_path!r} cannot be loaded: it is neither an installed package nor a "
            "folder with a saved pipeline that fits this spaCy; install it, correct the name, or choose none."
        ) from error
    if not any("doc.ents" in nlp.get_pipe_meta(pipe).assigns for pipe in nlp.pipe_names):
        raise InvalidInputError(
            f"The spaCy pipeline {name_or_path!r} finds no named entities; choose one with an entity recogniser."
        )
    return nlp


def _digest(nlp: Language) -> str:
    """SHA-256 (hexadecimal) of the files that the pipeline was loaded from, without the texts beside them."""
    digest = hashlib.sha256()
    root = nlp.path
    files = sorted((path.relative_to(root).as_posix(), path) for path in root.rglob("*") if path.is_file())
    for name, path in files:
        if path.suffix not in (".md", ".pyc") and not path.name.startswith((".", "LICENSE", "README")):
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _trimmed(entity: EntitySpan) -> EntitySpan:
    start, end = entity.start, entity.end
    while end - start > 1 and entity.doc[end - 1].text in ("'s", "\u2019s", "'", "\u2019"):
        end -= 1
    while end - start > 1 and entity.doc[start].lower_ in ("the", "a", "an"):
        start += 1
    return entity.doc[start:end]


def _named(document: Doc, sensitive: npt.NDArray[np.float32] | None) -> Iterator[Entity]:
    for entity in document.ents:
        trimmed = _trimmed(entity)
        if entity.label_ in _LABELS and trimmed.text.strip():
            score = None if sensitive is None else float(sensitive[trimmed.start : trimmed.end].mean())
            yield Entity(trimmed.start_char, trimmed.end_char, entity.label_, score)


def _of_families(document: Doc, chances: npt.NDArray[np.float32], labels: Sequence[str]) -> Iterator[Entity]:
    """Runs of words of one family outside named entities, each word surer than :data:`ALONE`."""
    named = {index for entity in document.ents for index in range(entity.start, entity.end)}
    best = [
        "" if index in named or row[0] > 1 - ALONE else _family_of(document[index], labels[int(row.argmax())])
        for index, row in enumerate(chances)
    ]
    for label, run in itertools.groupby(range(len(document)), key=best.__getitem__):
        if label:
            first, *rest = run
            piece = document[first : (rest or [first])[-1] + 1]
            score = float(1 - chances[piece.start : piece.end, 0].mean())
            yield Entity(piece.start_char, piece.end_char, label, score)


def _family_of(word: Token, label: str) -> str:
    """The label of a word that no lexicon lists; empty for numbers and signs.

    A capitalised word that is not listed is most likely a group or a place, whatever family it is taken for.
    """
    if not word.text[0].isalpha() or word.like_num:
        return ""
    capital = word.text[0].isupper() and not word.is_sent_start and word.i > 0
    return "NATIONALITY" if capital and label not in _CAPITALISED_FAMILIES else label
