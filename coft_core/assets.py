"""Where shipped data files are."""

from __future__ import annotations

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
