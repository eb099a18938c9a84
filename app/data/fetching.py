"""Downloads the published files of suites into the folder that they are read from, with digests and licences."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx

from app.evaluate.methods import suites_from
from app.shared.errors import ServiceError
from app.shared.files import write_bytes, write_text
from app.shared.operations import Tell
from app.shared.wiring import Services
from coft_core.suites.base import Suite
from coft_core.suites.files import FETCHED, DataError, DataFolder, HubSplit, hub_answers, hub_lines, uncompressed
from coft_core.suites.registry import SUITES
from coft_core.suites.sources import PublishedFile, Source

GITHUB = "https://raw.githubusercontent.com"
"""Where files of repositories are, by owner, name, revision and path."""

SECONDS = 60.0
"""How long a download may stand still."""

State = Literal["kept", "downloaded", "differs", "missing"]
AS_PUBLISHED = "digest as published"
AS_NOTED = "digest as noted when it was downloaded"
UNVERIFIED = "not verified: no digest is known, and this command did not download it"
"""How files were verified."""


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """What came of a file: ``said`` is how it was verified, or a sentence on what to do."""

    suite: str
    file: str
    state: State
    said: str


class UnavailableError(Exception):
    """A file cannot be had; the text is the reason, without a full stop."""


class SuiteFiles:
    """Downloads the files of suites."""

    def __init__(self, folder: str = "", suites: Sequence[Suite] = SUITES, github: str = GITHUB) -> None:
        """Remember the folder for requests that name none."""
        self._folder, self._suites, self._github = folder, suites, github

    @classmethod
    def wired(cls, services: Services) -> SuiteFiles:
        """All suites, in the folder that the settings name."""
        return cls(services.settings.data)

    def fetch(
        self, chosen: Sequence[str], data: str = "", force: bool = False, tell: Tell | None = None
    ) -> list[FetchedFile]:
        """Download what is not there; ``force`` also replaces what is not known to be the published file."""
        done: list[FetchedFile] = []
        for suite, folder, files in self._chosen(chosen, data):
            if tell is not None:
                tell(f"{suite.title}, {f'licence: {suite.licence}' if files else 'comes with the program'}")
            for file in files:
                found = _found(suite, file, folder)
                wanted = found.state == "missing" or (force and found.said != AS_PUBLISHED)
                if wanted and tell is not None:
                    tell(f"  {suite.source.place(file)}")
                done.append(self._fetched(suite, file, folder, found) if wanted else found)
        return done

    def found(self, chosen: Sequence[str], data: str = "") -> list[FetchedFile]:
        """What is there, verified, and where the rest is published."""
        return [_found(suite, file, folder) for suite, folder, files in self._chosen(chosen, data) for file in files]

    def _chosen(self, chosen: Sequence[str], data: str) -> Iterator[tuple[Suite, Path, tuple[PublishedFile, ...]]]:
        """Suites with their folders and files; a file that several suites read is given once."""
        if not (named := data or self._folder):
            raise ServiceError("Name the folder for the files (--data, or COFT_DATA).")
        root = Path(os.path.expanduser(named))
        try:
            usable = stat.S_ISDIR(root.stat().st_mode)
        except OSError as error:
            usable = isinstance(error, FileNotFoundError)
        if not usable:
            raise ServiceError(f"{named:.80} is not a folder; name one (--data, or COFT_DATA).")
        keys = suites_from(chosen, self._suites)
        given: set[Path] = set()
        for suite in (suite for suite in self._suites if suite.key in keys):
            folder, published = root / suite.folder, suite.source.published
            new = tuple(file for file in published if folder / file.name not in given)
            if new or not published:
                yield suite, folder, new
            given.update(folder / file.name for file in new)

    def _fetched(self, suite: Suite, file: PublishedFile, folder: Path, found: FetchedFile) -> FetchedFile:
        target, source = folder / file.name, suite.source
        try:
            content, revision = self._downloaded(source, file)
        except UnavailableError as error:
            return replace(found, said=f"{_by_hand(source, file, target)} ({error})")
        note = {
            "release": source.release(revision),
            "source": source.place(file),
            "revision": revision,
            "sha256": hashlib.sha256(content).hexdigest(),
            "verified": AS_PUBLISHED if file.digest else "no published digest is known; this one was noted",
            "licence": suite.licence,
            "citation": suite.citation,
            "downloaded": datetime.now(UTC).date().isoformat(),
        }
        try:
            # The note goes first, so that a file that is there can always be verified.
            notes = {**DataFolder(folder).fetched(""), file.name: note}
            write_text(folder / FETCHED, f"{json.dumps(notes, indent=2, ensure_ascii=False)}\n")
            write_bytes(target, content)
        except OSError as error:
            raise ServiceError(f"{target} cannot be written ({error.strerror}); name another folder.") from error
        return FetchedFile(suite.key, str(target), "downloaded", note["verified"])

    def _downloaded(self, source: Source, file: PublishedFile) -> tuple[bytes, str]:
        """Content and revision of a file."""
        if file.split is not None:
            return _from_hub(file.split)
        if source.site == "Kaggle":
            return _from_kaggle(source.repository, file.path)
        if not hub_answers(self._github):
            raise UnavailableError("GitHub cannot be reached")
        address = f"{self._github}/{source.repository}/{source.revision}/{quote(file.path)}"
        try:
            answer = httpx.get(address, follow_redirects=True, timeout=SECONDS).raise_for_status()
        except httpx.HTTPStatusError as error:
            raise UnavailableError(f"GitHub answers {error.response.status_code}") from error
        except httpx.HTTPError as error:
            raise UnavailableError(f"GitHub does not give it: {_line(error)}") from error
        if not file.fits(answer.content):
            raise UnavailableError("what GitHub gives has another digest, and was not kept")
        return answer.content, source.revision


def _by_hand(source: Source, file: PublishedFile, target: Path) -> str:
    return f"take {source.place(file)} and place it at {target}"


def _found(suite: Suite, file: PublishedFile, folder: Path) -> FetchedFile:
    """A file as it is there, with how it was verified."""
    own = DataFolder(folder)
    there, noted = own.find("", file.name), own.fetched("").get(file.name)
    if there is None:
        target = folder / file.name
        return FetchedFile(suite.key, str(target), "missing", _by_hand(suite.source, file, target))
    try:
        content = uncompressed(there)
    except DataError:
        content = b""
    if not file.digest and noted is None:
        return FetchedFile(suite.key, str(there), "kept", UNVERIFIED)
    if file.fits(content) if file.digest else noted and noted.get("sha256") == hashlib.sha256(content).hexdigest():
        return FetchedFile(suite.key, str(there), "kept", AS_PUBLISHED if file.digest else AS_NOTED)
    said = "this is not the published file; keep it, or replace it with data fetch --force"
    return FetchedFile(suite.key, str(there), "differs", said)


def _from_hub(split: HubSplit) -> tuple[bytes, str]:
    """The records as JSON lines, and the newest revision, from which they are."""
    from huggingface_hub import HfApi, constants

    if not (constants.HF_HUB_OFFLINE or hub_answers(constants.ENDPOINT)):
        raise UnavailableError("Hugging Face cannot be reached")
    try:
        revision = HfApi().dataset_info(split.name).sha or ""
        rows = [json.dumps(line.values, ensure_ascii=False, default=str) for line in hub_lines(split, revision)]
    except (DataError, OSError, ValueError, httpx.HTTPError) as error:
        raise UnavailableError(f"Hugging Face does not give it: {_line(error)}") from error
    return "".join(f"{row}\n" for row in rows).encode(), revision


def _from_kaggle(repository: str, path: str) -> tuple[bytes, str]:
    """A file of the newest version, and its number."""
    try:
        kagglehub = importlib.import_module("kagglehub")
    except ImportError as error:
        raise UnavailableError("downloading it needs the package kagglehub: pip install kagglehub") from error
    try:
        found = Path(kagglehub.dataset_download(repository, path=path))
        version = re.search(r"/versions/(\d+)/", found.as_posix())
        return found.read_bytes(), version[1] if version else "unknown"
    # The package raises errors of many kinds.
    except Exception as error:
        raise UnavailableError(f"Kaggle does not give it: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
