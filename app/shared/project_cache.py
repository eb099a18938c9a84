"""Memory of what was read from the store, which only the project sees that it was read in."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from cachetools import LRUCache

from db.scope import Scope, present_project

Key = TypeVar("Key")
Value = TypeVar("Value")


class InProject(NamedTuple):
    """A key with the project in which it is asked for."""

    project: Scope
    key: Hashable


def in_present(key: Hashable) -> Any:
    """A key in the project that is present; one that has a project already stays as it is."""
    return key if isinstance(key, InProject) else InProject(present_project(), key)


class ProjectCache(LRUCache[Key, Value]):
    """An LRU cache whose entries are there only for the project in which they were put."""

    def __init__(self, maxsize: float, getsizeof: Callable[[Value], float] | None = None) -> None:
        super().__init__(maxsize, getsizeof)
        self._looking, self._making = Lock(), Lock()

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The kept value of a key, or a new one; a value that is too large for the cache is not kept."""
        if (known := self._known(key)) is not None:
            return known
        # Two that make the same at once would only wait for each other.
        with self._making:
            if (known := self._known(key)) is None:
                known = make()
                if self.getsizeof(known) <= self.maxsize:
                    with self._looking:
                        self[key] = known
            return known

    def _known(self, key: Any) -> Value | None:
        with self._looking:
            return self.get(key)

    def __getitem__(self, key: Any) -> Value:
        return super().__getitem__(in_present(key))

    def __setitem__(self, key: Any, value: Value) -> None:
        super().__setitem__(in_present(key), value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(in_present(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(in_present(key))
