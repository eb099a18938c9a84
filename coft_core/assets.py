"""Where shipped data files are."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_INSTALLED = _ROOT / "coft_assets"
# A wheel puts them beside the packages, where a folder of a plainer name may be another program's.
_ASSETS = _INSTALLED if _INSTALLED.is_dir() else _ROOT / "assets"


def assets_path(*parts: str) -> Path:
    """Path of a shipped data file or folder; it need not exist."""
    return _ASSETS.joinpath(*parts)
