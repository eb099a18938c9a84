"""Reading benchmarks in the formats of their authors, from a folder or through a hub, with errors that say where."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLError
from threading import Lock
from typing import Annotated, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from cachetools import TTLCache, cached
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from coft_core.errors import CoftError

FETCHED = "fetched.json"
"""The file beside downloaded ones that says where they come from."""

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


def damaged(where: str, reason: str) -> DataError:
    """What is wrong with a publisher's file, as an error that can be raised."""
    return DataError(f"{where}{reason}; take the file from its publisher again.")


def uncompressed(file: Path) -> bytes:
    """The content of a file, that of a compressed one (``.gz``) as it was before."""
    try:
        data = file.read_bytes()
        return gzip.decompress(data) if file.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(file.name, f" cannot be read ({error})") from error


class Row(BaseModel):
    """A record as a suite needs it; numbers may be written as texts, and other fields are not looked at."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


Record = TypeVar("Record", bound=Row)
Text = Annotated[str, Field(min_length=1)]
Id = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]
"""A name or number of a record; empty where it has none."""

Flag = Annotated[int, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a file."""

    file: str
    number: int
    values: Mapping[str, Any]

    def read(self, model: type[Record]) -> Record:
        """The record as a model has it; the first thing that is wrong with it is named."""
        try:
            return model.model_validate(self.values)
        except ValidationError as error:
            raise self.error(_problem(error)) from error

    def error(self, reason: str) -> DataError:
        """What is wrong here, as an error that can be raised."""
        return damaged(f"{self.file}, line {self.number}: ", reason)


def _problem(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    name, reason = ".".join(map(str, found["loc"])), found["msg"].partition(", unable to")[0]
    if found["type"] == "missing" or found["input"] is None:
        return f"the field {name!r} is missing"
    reason = re.sub(r"^\w+ should ", "has to ", reason.removeprefix("Value error, "))
    return f"the field {name!r} is {found['input']!r:.60} and {reason}"


def listed(value: Any) -> Any:
    """Objects of which a hub has the fields apart, each with a list: as a list of objects."""
    if not isinstance(value, dict):
        return value
    return [dict(zip(value, each, strict=True)) for each in zip(*value.values(), strict=True)]


def entries(name: str, document: Any) -> list[Line]:
    """The records of a list in a JSON document."""
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise damaged(name, " has no list of records where there should be one")
    return [Line(name, number, entry) for number, entry in enumerate(document, 1)]


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
        data = uncompressed(file)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise damaged(file.name, f" cannot be read ({error})") from error
        if not text.strip():
            raise damaged(file.name, " is empty")
        self.read[file.name.removesuffix(".gz")] = hashlib.sha256(data).hexdigest()
        return file.name, text

    def json(self, suite: str, *names: str) -> tuple[str, Any]:
        """Name and content of a JSON document."""
        name, text = self.content(suite, *names)
        try:
            return name, json.loads(text)
        except ValueError as error:
            raise damaged(name, f" is no JSON ({error})") from error

    def json_lines(self, suite: str, *names: str) -> Iterator[Line]:
        """The records of a file with one JSON object a line."""
        name, text = self.content(suite, *names)
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except ValueError as error:
                raise Line(name, number, {}).error(f"this is no JSON ({error})") from error
            if not isinstance(values, dict):
                raise Line(name, number, {}).error("this is no object")
            yield Line(name, number, values)

    def table(self, suite: str, *names: str, delimiter: str = ",") -> Iterator[Line]:
        """The records of a file with a header and values between delimiters."""
        name, text = self.content(suite, *names)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            header = next(reader)
            begin = reader.line_num + 1
            for row in reader:
                if row and len(row) != len(header):
                    counts = f"there are {len(row)} values and {len(header)} columns"
                    raise Line(name, begin, {}).error(counts)
                if row:
                    yield Line(name, begin, dict(zip(header, row, strict=True)))
                begin = reader.line_num + 1
        except csv.Error as error:
            raise Line(name, reader.line_num, {}).error(str(error)) from error

    def lines(self, suite: str, *names: str) -> list[str]:
        """The lines of a plain text."""
        text = self.content(suite, *names)[1]
        # Marks that some call line breaks, such as U+2028, may stand in a line.
        return text.replace("\r\n", "\n").removesuffix("\n").split("\n")

    def fetched(self, suite: str) -> dict[str, dict[str, Any]]:
        """What was noted when files of a suite were downloaded, by their names."""
        record = self.path / suite / FETCHED
        if not record.is_file():
            return {}
        try:
            return TypeAdapter(dict[str, dict[str, Any]]).validate_json(record.read_bytes())
        except (OSError, ValidationError) as error:
            raise DataError(f"{record} cannot be read ({error}); delete it and download the files again.") from error

    def release(self, suite: str, known: Mapping[str, str]) -> str:
        """What was read, in words: releases by their sha256, those that were downloaded too, or that it is none."""
        noted = {each.get("sha256"): each.get("release") for each in self.fetched(suite).values()}
        named = [known.get(digest) or noted.get(digest) for digest in self.read.values()]
        if named and all(named):
            return ", ".join(dict.fromkeys(name for name in named if name))
        return "not a known release of the whole set: figures may not compare with published ones"


@dataclass(frozen=True, slots=True)
class HubSplit:
    """A part of a data set on a hub, as ``datasets.load_dataset`` takes it; ``file`` is its name in a folder."""

    name: str
    split: str
    config: str | None = None
    file: str = ""


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


def hub_lines(part: HubSplit, revision: str | None = None) -> list[Line]:
    """The records of a data set on a hub, in its newest revision unless told; ``number`` counts them from 1.

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
        rows = datasets.load_dataset(part.name, part.config, split=part.split, revision=revision)
    # A data set that is a program raises RuntimeError: those are no longer run.
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"The data set {part.name} cannot be had from the hub ({error}); name a folder with its files instead "
            "(--data, or COFT_DATA)."
        ) from error
    return [Line(f"{part.name} ({part.split})", number, dict(row)) for number, row in enumerate(rows, 1)]
