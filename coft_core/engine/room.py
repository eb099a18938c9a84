"""Where long work takes the memory of its batches from, so that several kinds of work can share one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Room(Protocol):
    """Memory for keys and values that is shared with others."""

    @property
    def most(self) -> int | None:
        """Bytes that one batch should take at most; None sets no limit. A single prompt may need more."""

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Run one batch while its memory is set aside.

        Args:
            size: Bytes of keys and values that it holds at most.
            work: The batch. It may be run a second time where memory ran out, so it begins anew each time and leaves
                nothing behind when it fails.
        """


class OwnRoom:
    """Memory that is shared with nobody: every batch runs at once."""

    @property
    def most(self) -> int | None:
        """No limit."""
        return None

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Run the batch."""
        del size
        return work()
