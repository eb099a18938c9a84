"""Words and wordings that a script reads from the JSON file beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def wordings(module: str) -> Any:
    """What the JSON file beside a module says, with tuples for lists; ``module`` is the module's ``__file__``."""
    return _frozen(json.loads(Path(module).with_suffix(".json").read_text("utf-8")))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(part) for name, part in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
