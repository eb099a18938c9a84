"""Where the items of suites come from: a folder of their authors' files, a hub, or the program itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from cachetools import LRUCache

from app.evaluate.runs import KnownSuite
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from coft_core.suites.base import Item, Suite
from coft_core.suites.files import DataError, DataFolder, HubUnreachableError
from coft_core.suites.registry import SUITES

HUB = "hub"
SHIPPED = "program"
"""Sources that are no folder."""

SHIPPED_RELEASE = "comes with the program"

ITEMS_KEPT = 4
"""Suites whose items are kept: a run reads them when it is asked for and when it begins."""

Signature = tuple[tuple[str, int, int], ...]
"""Path, time and size of all files that a suite may be read from."""

Key = tuple[str, str, Signature]
"""A suite, the folder that it is read from, and the state of that folder."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SuiteItems:
    """The items of a suite as they were read."""

    suite: Suite
    items: tuple[Item, ...]
    source: str
    release: str
    files: dict[str, str]


class SuiteSources:
    """Reads suites; what has not changed since is not read again."""

    def __init__(self, folder: str = "", suites: Sequence[Suite] = SUITES) -> None:
        """Remember the folder that is looked in where a request names none."""
        self._folder = folder
        self._suites = {suite.key: suite for suite in suites}
        self._read: LRUCache[Key, SuiteItems] = LRUCache(ITEMS_KEPT)
        self._known: LRUCache[Key, KnownSuite] = LRUCache(10 * max(len(suites), 1))
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> SuiteSources:
        """All suites, in the folder that the settings name."""
        return cls(services.settings.data)

    def suite(self, key: str) -> Suite:
        """The suite of a key."""
        if key not in self._suites:
            raise ServiceError(f"There is no suite {key!r}; choose among {', '.join(self._suites)}.")
        return self._suites[key]

    def known(self, data: str = "", read: bool = False) -> tuple[KnownSuite, ...]:
        """All suites, with whether their files are there; nothing is asked of a hub."""
        if read:
            return tuple(self._once(self._known, suite, data, partial(self._state, suite, data)) for suite in self.all)
        return tuple(self._there(suite, data) for suite in self.all)

    @property
    def all(self) -> tuple[Suite, ...]:
        """All suites, in their order."""
        return tuple(self._suites.values())

    def read(self, key: str, data: str = "") -> SuiteItems:
        """The items of a suite, from the folder that is named; without any, from the program or a hub."""
        suite = self.suite(key)
        return self._once(self._read, suite, data, partial(self._items, suite, data))

    def _items(self, suite: Suite, data: str) -> SuiteItems:
        folder = self.folder(data)
        if folder is None and suite.source.hub:
            try:
                items = suite.items_from_hub()
            except HubUnreachableError as error:
                raise HubUnreachableError(f"{suite.title} is") from error
            return _made(suite, items, HUB, f"{HUB}, read when the evaluation was asked for", {})
        # Suites that come with the program are read from a folder without a file.
        files = DataFolder(Path(__file__) / "nowhere" if folder is None else folder)
        try:
            items = suite.items(files)
        except DataError as error:
            if folder is not None:
                raise
            raise DataError(
                f"{suite.title} is read from files; download them (data fetch {suite.key}), or name the folder that "
                "has them (--data, or COFT_DATA)."
            ) from error
        if not files.read:
            return _made(suite, items, SHIPPED, SHIPPED_RELEASE, {})
        return _made(suite, items, str(folder), files.release(suite.folder, suite.source.releases), dict(files.read))

    def _there(self, suite: Suite, data: str) -> KnownSuite:
        """A suite as known without reading it: whether it has a file."""
        folder = self.folder(data)
        if folder is not None:
            try:
                suite.items(_Probe(folder))
            except _FileFoundError:
                return _described(suite, str(folder))
            except DataError as error:
                return _described(suite, missing=str(error))
        return self._state(suite, data)

    def _state(self, suite: Suite, data: str) -> KnownSuite:
        if self.folder(data) is None and suite.source.hub:
            return _described(suite, HUB)
        try:
            found = self._items(suite, data)
        except DataError as error:
            return _described(suite, missing=str(error))
        return _described(suite, found.source, items=len(found.items), release=found.release)

    def folder(self, data: str) -> Path | None:
        """The folder that a request names, or the program's; None where neither does."""
        named = data or self._folder
        if not named:
            return None
        # Path raises where a name is too long for a path or names a home that does not exist.
        folder = Path(os.path.expanduser(named))
        if not os.path.isdir(folder):
            raise ServiceError(
                f"There is no folder {named:.80}; name the one with the suites' files (--data, COFT_DATA)."
            )
        return folder

    def _once(self, kept: LRUCache[Key, Result], suite: Suite, data: str, make: Callable[[], Result]) -> Result:
        folder = self.folder(data)
        key = (suite.key, str(folder), () if folder is None else _signature(folder, suite.key))
        with self._lock:
            if key in kept:
                return kept[key]
        made = make()
        with self._lock:
            kept[key] = made
        return made


class _FileFoundError(Exception):
    """A suite has found a file, which is all that was asked."""


class _Probe(DataFolder):
    """A folder whose first file that is asked for is not read."""

    def content(self, suite: str, *names: str) -> tuple[str, str]:
        """Nothing: either the file is not there, or it was found."""
        if self.find(suite, *names) is None:
            return super().content(suite, *names)
        raise _FileFoundError


def _described(suite: Suite, source: str = "", **found: Any) -> KnownSuite:
    names = ("key", "title", "kind", "citation", "licence", "main", "judges")
    told = {name: getattr(suite, name) for name in names}
    return KnownSuite(**told, card=asdict(suite.card), source=source, **found)


def _made(suite: Suite, items: Sequence[Item], source: str, release: str, files: dict[str, str]) -> SuiteItems:
    if not items:
        raise DataError(f"{suite.title} has no item in {source}; take its files from their publisher again.")
    return SuiteItems(suite, tuple(items), source, release, files)


def _signature(folder: Path, suite: str) -> Signature:
    own = (folder / suite).rglob("*") if (folder / suite).is_dir() else ()
    files = [path for path in (*folder.glob("*"), *own) if path.is_file()]
    stats = [(path, path.stat()) for path in sorted(files)]
    return tuple((str(path), stat.st_mtime_ns, stat.st_size) for path, stat in stats)
