"""Reading benchmarks in the formats of their authors, from a folder or through a hub, with errors that say where."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLError
from threading import Lock
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from cachetools import TTLCache, cached

from coft_core.errors import CoftError

HUB_SECONDS = 5.0
"""How long a hub may take to answer at all."""

HUB_REMEMBERED = 60.0
"""Seconds for which is known whether a hub answers."""


class DataError(CoftError, ValueError):
    """A file of a benchmark is missing or damaged; the text names file and line and says what to do."""


class HubUnreachableError(DataError):
    """The hub does not answer; the text says what to do."""

    def __init__(self, read: str) -> None:
        """Say it of what is read from the hub: "StereoSet is"."""
        super().__init__(
            f"{read} read from a hub, which cannot be reached; connect to the network, set HF_HUB_OFFLINE=1 to take "
            "what was downloaded before, or name a folder with the files (--data, or COFT_DATA)."
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a file."""

    file: str
    number: int
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        """A field that has to be a text, which may be empty."""
        value = self.value(name)
        if not isinstance(value, str):
            raise self.error(f"the field {name!r} is {value!r:.60} and has to be a text")
        return value

    def value(self, name: str) -> Any:
        """A field."""
        if name not in self.values or self.values[name] is None:
            raise self.error(f"the field {name!r} is missing")
        return self.values[name]

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        """A field that has to be one of several texts."""
        value = self.text(name)
        if value not in allowed:
            raise self.error(f"the field {name!r} is {value!r:.60} and has to be one of {', '.join(allowed)}")
        return value

    def amount(self, name: str) -> float:
        """A field that has to be a finite number, or a text that is one."""
        value = self.value(name)
        try:
            amount = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            amount = float("nan")
        if not math.isfinite(amount):
            raise self.error(f"the field {name!r} is {value!r:.60} and has to be a number")
        return amount

    def whole(self, name: str) -> int:
        """A field that has to be a whole number, or a text that is one, such as ``"4"`` or ``"4.0"``."""
        amount = self.amount(name)
        if amount != int(amount):
            raise self.error(f"the field {name!r} is {amount} and has to be a whole number")
        return int(amount)

    def error(self, reason: str) -> DataError:
        """What is wrong here, as an error that can be raised."""
        return DataError(f"{self.file}, line {self.number}: {reason}; take the file from its publisher again.")


@dataclass(frozen=True, slots=True)
class Release:
    """A published state of a file, known by its digest."""

    name: str
    sha256: str


@dataclass(frozen=True)
class DataFolder:
    """A folder with benchmark files; each suite looks in its own folder inside, and then in the folder itself."""

    path: Path
    read: dict[str, str] = field(default_factory=dict)

    def find(self, suite: str, *names: str) -> Path | None:
        """The first file of these names that is there, compressed (``.gz``) or not; None without one."""
        for folder in (self.path / suite, self.path):
            for name in names:
                for file in (folder / name, folder / f"{name}.gz"):
                    if file.is_file():
                        return file
        return None

    def content(self, suite: str, *names: str) -> tuple[str, str]:
        """Name and text of the first file of these names."""
        file = self.find(suite, *names)
        if file is None:
            raise DataError(
                f"There is no file {' or '.join(names)} in {self.path / suite} or {self.path}; download it from its "
                "publisher, or name the folder that has it (--data, or COFT_DATA)."
            )
        try:
            data = file.read_bytes()
            data = gzip.decompress(data) if file.suffix == ".gz" else data
            text = data.decode("utf-8-sig")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise DataError(f"{file.name} cannot be read ({error}); take the file from its publisher again.") from error
        if not text.strip():
            raise DataError(f"{file.name} is empty; take the file from its publisher again.")
        self.read[file.name.removesuffix(".gz")] = hashlib.sha256(data).hexdigest()
        return file.name, text

    def json(self, suite: str, *names: str) -> tuple[str, Any]:
        """Name and content of a JSON document."""
        name, text = self.content(suite, *names)
        try:
            return name, json.loads(text)
        except ValueError as error:
            raise DataError(f"{name} is no JSON ({error}); take the file from its publisher again.") from error

    def json_lines(self, suite: str, *names: str) -> Iterator[Line]:
        """The records of a file with one JSON object a line."""
        name, text = self.content(suite, *names)
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except ValueError as error:
                raise DataError(
                    f"{name}, line {number}: this is no JSON ({error}); take the file from its publisher again."
                ) from error
            if not isinstance(values, dict):
                raise DataError(f"{name}, line {number}: this is no object; take the file from its publisher again.")
            yield Line(name, number, values)

    def table(self, suite: str, *names: str, delimiter: str = ",", fields: Sequence[str] = ()) -> Iterator[Line]:
        """The records of a file with a header and values between delimiters."""
        name, text = self.content(suite, *names)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            header = next(reader)
            if missing := [column for column in fields if column not in header]:
                raise DataError(
                    f"{name} has no column {missing[0]!r}; its columns are {', '.join(header)}; take the file from "
                    "its publisher again."
                )
            begin = reader.line_num + 1
            for row in reader:
                if row and len(row) != len(header):
                    raise DataError(
                        f"{name}, line {begin}: there are {len(row)} values and {len(header)} columns; take the file "
                        "from its publisher again."
                    )
                if row:
                    yield Line(name, begin, dict(zip(header, row, strict=True)))
                begin = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{name}, line {reader.line_num}: {error}; take the file again.") from error

    def lines(self, suite: str, *names: str) -> list[str]:
        """The lines of a plain text."""
        text = self.content(suite, *names)[1]
        # Marks that some call line breaks, such as U+2028, may stand in a line.
        return text.replace("\r\n", "\n").removesuffix("\n").split("\n")

    def release(self, known: Sequence[Release]) -> str:
        """What was read, in words: a known release, or that it is none."""
        by_digest = {release.sha256: release.name for release in known}
        named = [by_digest.get(digest) for digest in self.read.values()]
        if named and all(named):
            return ", ".join(dict.fromkeys(name for name in named if name))
        return "not a known release of the whole set: figures may not compare with published ones"


@dataclass(frozen=True, slots=True)
class HubSplit:
    """A part of a data set on a hub, as ``datasets.load_dataset`` takes it."""

    name: str
    config: str | None
    split: str


@cached(TTLCache(maxsize=4, ttl=HUB_REMEMBERED), lock=Lock())
def hub_answers(address: str) -> bool:
    """Whether a hub answers within a few seconds, whatever it answers; remembered for a minute."""
    try:
        with urlopen(Request(address, method="HEAD"), timeout=HUB_SECONDS):
            return True
    except HTTPError:
        return True
    except URLError as error:
        # Somebody answers whose certificate is checked by the package's own rules.
        return isinstance(error.reason, SSLError)
    except OSError:
        return False


def hub_lines(part: HubSplit) -> list[Line]:
    """The records of a data set on a hub; ``number`` counts them from 1.

    A hub that does not answer at once is not asked again and again, as the package would for minutes.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            "Reading from a hub needs the package datasets; install requirements-evaluation.txt, or name a folder "
            "with the files (--data, or COFT_DATA)."
        ) from error
    if not (datasets.config.HF_HUB_OFFLINE or hub_answers(datasets.config.HF_ENDPOINT)):
        raise HubUnreachableError(f"The data set {part.name} is")
    try:
        rows = datasets.load_dataset(part.name, part.config, split=part.split)
    # A data set that is a program raises RuntimeError: those are no longer run.
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"The data set {part.name} cannot be had from the hub ({error}); name a folder with its files instead "
            "(--data, or COFT_DATA)."
        ) from error
    return [Line(f"{part.name} ({part.split})", number, dict(row)) for number, row in enumerate(rows, 1)]
