"""Digests inside texts: whole ones are compared with the shortened ones that earlier versions stored."""

from __future__ import annotations

import re
from pathlib import Path

_ASSETS = Path(__file__).resolve().parents[1] / "assets"


def assets_path(*parts: str) -> Path:
    """Path of a shipped data file or folder; it need not exist.

    Args:
        *parts: Path components below the assets folder, e.g. ``"lexicons", "gender.csv"``.

    Returns:
        The absolute path.
    """
    return _ASSETS.joinpath(*parts)


WHOLE = 64
"""Hexadecimal digits of a whole SHA-256."""

_RUN = re.compile(rf"(?<![0-9A-Za-z])[0-9a-f]{{12,{WHOLE}}}(?![0-9A-Za-z])")
"""A digest: earlier versions stored its first 12 or 16 digits."""


def same_digests(first: str, second: str) -> bool:
    """Whether two texts are equal once a shortened digest counts as the whole one that begins with it.

    Args:
        first: A digest, or a text that holds digests, such as a detector's version.
        second: The other one.
    """
    if first == second:
        return True
    if _RUN.split(first) != _RUN.split(second):
        return False
    pairs = zip(_RUN.findall(first), _RUN.findall(second), strict=True)
    return all(own == other or _shortens(own, other) or _shortens(other, own) for own, other in pairs)


def shortest_digest(text: str) -> int | None:
    """Digits of the shortest digest in a text; None if it holds none."""
    return min(map(len, _RUN.findall(text)), default=None)


def _shortens(short: str, whole: str) -> bool:
    return len(whole) == WHOLE and len(short) < WHOLE and whole.startswith(short)
