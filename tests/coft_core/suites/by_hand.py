"""Outcomes and data folders that are written down by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coft_core.suites.base import Figure, Item, Likelihood, Outcome, Scored, Written
from coft_core.suites.files import DataFolder


def folder(path: Path, suite: str, **files: Any) -> DataFolder:
    """A data folder with files of one suite; two underscores in a name stand for a dot, one for a hyphen.

    A text is written as it is, a list as one JSON record a line, bytes compressed.
    """
    (path / suite).mkdir(exist_ok=True)
    for name, content in files.items():
        file = path / suite / name.replace("__", ".").replace("_", "-")
        if isinstance(content, bytes):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(content))
        else:
            lines = content if isinstance(content, str) else "".join(f"{json.dumps(row)}\n" for row in content)
            file.write_text(lines, encoding="utf-8")
    return DataFolder(path)


def likelihood(log_p: float, tokens: int = 1, **more: Any) -> Likelihood:
    """A text of so many nats, of which nothing is refused unless told."""
    return Likelihood(tokens, log_p, **{"floored": log_p, **more})


def scored(item: Item, *log_p: float | Likelihood, seed: int = 0) -> Outcome:
    """An item of choices with the log-likelihood of each."""
    answers = tuple(value if isinstance(value, Likelihood) else likelihood(value) for value in log_p)
    return Outcome(item.id, item.unit, item.facts, (Scored(answers),), seed=seed)


def written(item: Item, text: str, finished: str = "stop", tokens: int = 5, **more: Any) -> Outcome:
    """An item that asks for writing, with what was written."""
    return Outcome(item.id, item.unit, item.facts, (Written(text, tokens, finished),), **more)


def by_key(made: Iterable[Figure]) -> dict[str, Figure]:
    """Figures of the whole by their keys; those of parts by key and part."""
    figures = list(made)
    found = {figure.key if not figure.part else f"{figure.key}/{figure.part}": figure for figure in figures}
    assert len(found) == len(figures)
    return found
