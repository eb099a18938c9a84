"""Phrases of everyday and working life from which the scenario texts are put together."""

from __future__ import annotations

from bench.wordings import wordings

_READ = wordings(__file__)
_PLACES: dict[str, tuple[str, ...]] = _READ["places"]
_PAST: dict[str, tuple[str, ...]] = _READ["past"]
_PRESENT: tuple[str, ...] = _READ["present"]
SAID: tuple[str, ...] = _READ["said"]
LINKS: tuple[str, ...] = _READ["links"]
FOLLOW_UPS: tuple[str, ...] = _READ["follow_ups"]
OPENINGS: tuple[str, ...] = _READ["openings"]
EVERYDAY: dict[str, tuple[str, ...]] = _READ["everyday"]
CLOSINGS: dict[str, tuple[str, ...]] = _READ["closings"]


def duties(occupation: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns what an occupation did (past tense) and what one of its members may say of themselves."""
    for place, occupations in _PLACES.items():
        if occupation in occupations:
            return _PAST[place], _PRESENT
    raise KeyError(f"no workplace lists the occupation {occupation!r}")
