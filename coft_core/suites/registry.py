"""All suites, in the order of pages and tables: bias, utility, quality, long texts."""

from __future__ import annotations

from coft_core.errors import InvalidInputError
from coft_core.suites.arc_easy import ArcEasy
from coft_core.suites.base import Suite
from coft_core.suites.phantom import PhantomGaps, PhantomQuestions

SUITES: tuple[Suite, ...] = (PhantomGaps(), ArcEasy(), PhantomQuestions())


def suite(key: str) -> Suite:
    """The suite of a key.

    Raises:
        InvalidInputError: There is none.
    """
    for known in SUITES:
        if known.key == key:
            return known
    raise InvalidInputError(f"There is no suite {key!r}; choose {', '.join(known.key for known in SUITES)}.")
