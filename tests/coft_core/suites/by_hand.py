"""Data folders and outcomes that are written down by hand or drawn by lot, and figures by key and part."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coft_core.suites.base import Figure, Item, Likelihood, Outcome, Scored, Suite, Written
from coft_core.suites.files import DataFolder


def folder(path: Path, suite: str, **files: Any) -> DataFolder:
    """A data folder with files of one suite; two underscores in a name stand for a dot, one for a hyphen.

    A text is written as it is, a list as one JSON record a line, bytes compressed.
    """
    (path / suite).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        file = path / suite / name.replace("__", ".").replace("_", "-")
        if isinstance(content, bytes):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(content))
        else:
            lines = content if isinstance(content, str) else "".join(f"{json.dumps(row)}\n" for row in content)
            file.write_text(lines, encoding="utf-8")
    return DataFolder(path)


def items_of(suite: Suite, path: Path, *records: Mapping[str, Any]) -> list[Item]:
    """The items of a suite whose file has these records; a table has the columns of the first one."""
    file = path / suite.folder / suite.files[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".csv":
        with file.open("w", encoding="utf-8", newline="") as table:
            writer = csv.DictWriter(table, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
    else:
        file.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return suite.items(DataFolder(path))


def likelihood(log_p: float, tokens: int = 1, **more: Any) -> Likelihood:
    """A text of so many nats, of which nothing is refused unless told."""
    return Likelihood(tokens, log_p, **{"floored": log_p, **more})


def scored(*log_p: float, tokens: Sequence[int] = (), refused: Sequence[int] = (), masked: int = 0) -> Scored:
    """An answer to choices with these log-likelihoods, of one token each unless told; some places refuse a token."""
    texts = enumerate(zip(tokens or [1] * len(log_p), log_p, strict=True))
    return Scored(tuple(likelihood(p, n, refused=int(i in refused)) for i, (n, p) in texts), masked)


def outcome(item: Item, *answers: Scored, seed: int = 0) -> Outcome:
    """An item with these answers, one an ask."""
    assert len(answers) == len(item.asks)
    return Outcome(item.id, item.unit, item.facts, answers, seed=seed)


def chosen(item: Item, *values: float | Likelihood) -> Outcome:
    """An item of choices with the log-likelihood of each."""
    return outcome(item, Scored(tuple(v if isinstance(v, Likelihood) else likelihood(v) for v in values)))


def decided(facts: Mapping[str, Any], yes: float, no: float, item: str) -> Outcome:
    """The outcome of a yes or no question."""
    return Outcome(item, item, facts, (scored(yes, no),))


def drawn(items: Iterable[Item], seed: int) -> list[Outcome]:
    """Outcomes of a model that draws every log-likelihood by lot."""
    lots = np.random.default_rng(seed)
    return [outcome(item, *(scored(*lots.normal(-20, 4, len(ask.texts))) for ask in item.asks)) for item in items]


def written(item: Item, text: str, finished: str = "stop", tokens: int = 5, **more: Any) -> Outcome:
    """An item that asks for writing, with what was written."""
    return Outcome(item.id, item.unit, item.facts, (Written(text, tokens, finished),), **more)


def wrote(text: str, *, unit: str, empty: tuple[int, ...] = (), tokens: int = 4, **more: Any) -> Outcome:
    """The outcome of an ask for a continuation, of a policy that certifies unless ``certified`` is None."""
    answer = Written(text, tokens, "length", empty, more.pop("certified", 0.5))
    return Outcome(unit, unit, more.pop("facts", {}), (answer,), **more)


def by_key(made: Iterable[Figure]) -> dict[str, Figure]:
    """Figures of the whole by their keys; those of parts by key and part."""
    figures = list(made)
    found = {figure.key if not figure.part else f"{figure.key}/{figure.part}": figure for figure in figures}
    assert len(found) == len(figures)
    return found


def values(figures: Iterable[Figure], part: str = "") -> dict[str, float | None]:
    """Values of a part by key."""
    return {figure.key: figure.value for figure in figures if figure.part == part}
