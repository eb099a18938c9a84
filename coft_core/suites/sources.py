"""Where the files of suites are published, as ``sources.toml`` says it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from coft_core.suites.files import HubSplit

Site = Literal["GitHub", "Kaggle", "Hugging Face"]


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of a suite; ``name`` is its path in the suite's folder, ``path`` that in the repository."""

    name: str
    path: str = ""
    digest: str = ""
    """``sha256:`` or ``git:`` (git's name of the content) and the digest; empty if it is not known."""

    split: HubSplit | None = None
    """What it is written from, if a hub has records and no such file."""

    def fits(self, data: bytes) -> bool:
        """Whether data have the digest."""
        kind, _, digest = self.digest.partition(":")
        made = (
            hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
            if kind == "git"
            else hashlib.sha256(data)
        )
        return made.hexdigest() == digest


@dataclass(frozen=True, slots=True)
class Source:
    """Where a suite's files are published, and the parts of a hub's data sets with the same records."""

    site: Site = "Hugging Face"
    repository: str = ""
    revision: str = ""
    files: tuple[PublishedFile, ...] = ()
    hub: tuple[HubSplit, ...] = ()

    @property
    def published(self) -> tuple[PublishedFile, ...]:
        """The files of the repository; without one, those that are written from a hub's records."""
        return self.files or tuple(PublishedFile(split.file, split=split) for split in self.hub if split.file)

    @property
    def releases(self) -> dict[str, str]:
        """Names of the published states of files, by their sha256."""
        known = (file.digest.partition(":") for file in self.files)
        return {digest: self.release(self.revision) for kind, _, digest in known if kind == "sha256"}

    def release(self, revision: str) -> str:
        """What a state of the repository, or of the hub's data set, is called."""
        return f"{self.repository or self.hub[0].name}, revision {revision[:12]}"

    def place(self, file: PublishedFile) -> str:
        """Where a file is published, in words."""
        if (split := file.split) is not None:
            named = f", configuration {split.config}," if split.config else ""
            return f"the split {split.split} of the {self.site} data set {split.name}{named} as JSON lines"
        if self.revision:
            return f"{file.path} of the {self.site} repository {self.repository} at revision {self.revision[:12]}"
        return f"{file.path} of the {self.site} data set {self.repository}"


SOURCES: Mapping[str, Source] = TypeAdapter(dict[str, Source]).validate_python(
    tomllib.loads(Path(__file__).with_name("sources.toml").read_text("utf-8"))
)
"""The sources of suites by key; suites that inherit from another one have its source too."""
