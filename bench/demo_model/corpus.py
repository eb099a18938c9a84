"""Reading of the story corpora from a data folder, split into training and held-out documents."""

from __future__ import annotations

import csv
import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
HELD_OUT_SHARE = 0.03
SOURCES = ("tinystories", "storybooks", "fairytaleqa", "onestopenglish", "books")
_PASSAGE_CHARACTERS = 1200


@dataclass(frozen=True)
class Source:
    """Documents of one corpus."""

    name: str
    licence: str
    training: tuple[str, ...]
    held_out: tuple[str, ...]


def passages(text: str) -> list[str]:
    """Splits a long text between paragraphs into passages of about a thousand characters."""
    parts: list[str] = []
    current = ""
    for paragraph in text.split("\n\n"):
        if current and len(current) + len(paragraph) > _PASSAGE_CHARACTERS:
            parts.append(current)
            current = ""
        current = f"{current}\n\n{paragraph.strip()}" if current else paragraph.strip()
    return [*parts, current] if current else parts


def _read_text(path: Path) -> str:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def _read_lines(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _split(name: str, licence: str, documents: list[list[str]], seed: int) -> Source:
    """Splits by document, so that passages of one story never fall on both sides."""
    random.Random(f"{name}-{seed}").shuffle(documents)
    held = max(1, round(HELD_OUT_SHARE * len(documents)))
    flat = [[text for document in part for text in document] for part in (documents[held:], documents[:held])]
    return Source(name, licence, tuple(flat[0]), tuple(flat[1]))


def read_sources(data: Path, seed: int) -> list[Source]:
    """Reads the story corpora."""
    corpus = data / "corpus"
    recased = _read_text(corpus / "tinystories" / "tinystories_recased.txt.gz")
    stories = [[text.strip()] for text in recased.split(END_OF_TEXT) if text.strip()]
    books = [passages(row["text"]) for row in _read_lines(corpus / "storybooks" / "storybooks_en.jsonl.gz")]
    tales = [passages(row["text"]) for row in _read_lines(corpus / "fairytaleqa" / "stories.jsonl.gz")]
    news = [
        passages(row["text"].replace("\n", "\n\n")) for row in _read_lines(corpus / "onestopenglish" / "texts.jsonl.gz")
    ]
    novels = [passages(_read_text(path)) for path in sorted((corpus / "books").glob("*.txt.gz"))]
    return [
        _split("tinystories", "CDLA-Sharing-1.0", stories, seed),
        _split("storybooks", "CC BY", books, seed),
        _split("fairytaleqa", "Apache-2.0", tales, seed),
        _split("onestopenglish", "CC BY-SA 4.0", news, seed),
        _split("books", "public domain", novels, seed),
    ]


def attribution_rows(data: Path) -> list[tuple[str, str, str, str]]:
    """Returns title, author, licence and publisher of every storybook and of every book."""
    rows = _read_lines(data / "corpus" / "storybooks" / "storybooks_en.jsonl.gz")
    storybooks = {(row["title"], row["author"], row["license"], row["source"]) for row in rows}
    with (data / "corpus" / "books" / "index.csv").open(encoding="utf-8", newline="") as file:
        books = {(row["title"], row["author"], row["licence"], row["source"]) for row in csv.DictReader(file)}
    return sorted(storybooks) + sorted(books)
