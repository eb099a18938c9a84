"""Named entities of a trained spaCy pipeline: people, nationalities and religions, places."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import spacy
from spacy.language import Language
from spacy.tokens import Span as EntitySpan
from spacy.util import is_package

from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError
from coft_core.masking.tokens import encodable

AUTO: Final = "auto"
"""Choose an installed English pipeline, else none."""

EMBEDDED: Final = "embedded"
"""Choose the pipeline that comes with the program."""

# The transformer comes last: on a CPU it is too slow for detection while somebody types.
_INSTALLABLE = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm", "en_core_web_trf")
_LABELS = ("PERSON", "NORP", "GPE")
_UNUSED = ["tagger", "parser", "attribute_ruler", "lemmatizer"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A named entity: character offsets into the text as typed, and spaCy's label."""

    start: int
    end: int
    label: str


class EntityPipeline:
    """A trained pipeline that names entities; unchanging after construction."""

    def __init__(self, name_or_path: str) -> None:
        """Load the pipeline.

        Args:
            name_or_path: An installed spaCy package or a folder that ``Language.to_disk`` wrote.

        Raises:
            InvalidInputError: It cannot be loaded, or it finds no entities.
        """
        self._nlp = _load(name_or_path)
        meta = self._nlp.meta
        self.version: Final = f"{meta['lang']}_{meta['name']} {meta['version']}+{_digest(self._nlp)[:12]}"
        """Name and version as the pipeline states them, and a digest of what was loaded."""

    @classmethod
    def choose(cls, name_or_path: str | None) -> EntityPipeline | None:
        """The pipeline by name, or with :data:`AUTO` the first that is there.

        Args:
            name_or_path: A package, a folder, :data:`EMBEDDED`, :data:`AUTO`, or None for no pipeline.

        Returns:
            The pipeline, or None when none was asked for or, with :data:`AUTO`, none is there.

        Raises:
            InvalidInputError: The chosen pipeline cannot be loaded, or it finds no entities.
        """
        if name_or_path is None:
            return None
        if name_or_path == EMBEDDED:
            return cls(str(assets_path("pipelines", "en_coft_ner")))
        if name_or_path != AUTO:
            return cls(name_or_path)
        return next((cls(name) for name in _INSTALLABLE if is_package(name)), None)

    def entities(self, text: str) -> Iterator[Entity]:
        """Find people (``PERSON``), nationalities and religions (``NORP``) and places (``GPE``).

        Args:
            text: Any text.

        Yields:
            Entities without a leading article and a trailing possessive.

        Raises:
            InvalidInputError: The text is longer than the pipeline takes.
        """
        if len(text) > self._nlp.max_length:
            raise InvalidInputError(
                f"The text has {len(text)} characters and the pipeline {self.version} takes at most "
                f"{self._nlp.max_length}; shorten the text."
            )
        for entity in self._nlp(encodable(text)).ents:
            trimmed = _trimmed(entity)
            if entity.label_ in _LABELS and trimmed.text.strip():
                yield Entity(trimmed.start_char, trimmed.end_char, entity.label_)


def _load(name_or_path: str) -> Language:
    try:
        nlp = spacy.load(Path(name_or_path) if Path(name_or_path).is_dir() else name_or_path, exclude=_UNUSED)
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
