"""The named-entity corpora of a data folder, read as they are: words, tags, source and document."""

from __future__ import annotations

import gzip
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DEV_SHARE, TEST_SHARE = 0.1, 0.15


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence of a corpus."""

    words: tuple[str, ...]
    layers: tuple[tuple[str, ...], ...]
    source: str
    split: str
    text: str = ""


def read_corpora(folder: Path) -> Iterator[TaggedSentence]:
    """Read every corpus.

    The official splits are kept. CrossNER's development part joins its very small training part. LitBank and
    re3d come without a split: a tenth of their documents, chosen by a hash of the name, is for development and
    another 15 % for testing.
    """
    for split in ("train", "dev", "test"):
        yield from _columns(folder / f"wnut17/{split}.conll", "wnut17", split)
        yield from _columns(folder / f"broad_twitter/{split}.conll", "broad_twitter", split)
        name = f"uner_english_ewt/{split}.iob2{'.gz' if split == 'train' else ''}"
        yield from _columns(folder / name, "uner_english_ewt", split, word=1, tags=(2,))
        for domain in ("ai", "literature", "music", "politics", "science"):
            part = "test" if split == "test" else "train"
            yield from _columns(folder / f"crossner/{domain}/{split}.txt", "crossner", part)
    for split in ("train", "test"):
        yield from _columns(folder / f"sec_filings/{split}.conll", "sec_filings", split, tags=(3,), separator=" ")
    yield from _columns(folder / "litbank/litbank_entities.tsv.gz", "litbank", None, tags=(1, 2, 3, 4, 5))
    for path in sorted((folder / "re3d").glob("*.conll")):
        yield from _columns(path, "re3d", None)


def _columns(
    path: Path, source: str, split: str | None, word: int = 0, tags: tuple[int, ...] = (1,), separator: str = "\t"
) -> Iterator[TaggedSentence]:
    document, text, rows = path.stem, "", list[list[str]]()
    for line in itertools.chain(_lines(path), [""]):
        if line.strip() and not line.startswith(("# ", "-DOCSTART-")):
            cells = line.split(separator)
            if cells[word]:
                rows.append(cells)
            continue
        if rows:
            layers = tuple(_tags(row[tag] if tag < len(row) else "O" for row in rows) for tag in tags)
            words = tuple(row[word] for row in rows)
            yield TaggedSentence(words, layers, source, split or _split_of(document), text)
            text, rows = "", []
        if line.startswith("# text ="):
            text = line.partition("=")[2].strip()
        if line.startswith(("# doc =", "# newdoc")):
            document = line.partition("=")[2].strip()


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def _tags(cells: Iterable[str]) -> tuple[str, ...]:
    return tuple(cell.strip() or "O" for cell in cells)


def _split_of(document: str) -> str:
    share = int(hashlib.sha256(document.encode()).hexdigest()[:8], 16) / 2**32
    return "dev" if share < DEV_SHARE else "test" if share < DEV_SHARE + TEST_SHARE else "train"
