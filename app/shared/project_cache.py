"""Memory of what was read from the store, which only the project sees that it was read in."""

from __future__ import annotations

from collections.abc import Hashable
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

    def __getitem__(self, key: Any) -> Value:
        return super().__getitem__(in_present(key))

    def __setitem__(self, key: Any, value: Value) -> None:
        super().__setitem__(in_present(key), value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(in_present(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(in_present(key))
