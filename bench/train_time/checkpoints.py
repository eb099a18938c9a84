"""Checkpoints as folders that `load_model` takes: written whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from coft_core import LanguageModel
from coft_core.errors import InvalidInputError

FACTS = "training.json"


def require_free(folder: Path) -> None:
    """Refuses a folder that is there already."""
    if folder.exists():
        raise InvalidInputError(f"There is already something at {folder}; choose another folder, or remove it.")


def write_checkpoint(model: LanguageModel, folder: Path, facts: dict[str, Any]) -> None:
    """Writes weights, configuration and the tokenizer as it is, with what is known of the training.

    Everything goes to a folder beside it first, which then gets the name, so that nobody finds half a checkpoint.
    """
    require_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.module.save_pretrained(partial)
    model.tokenizer.save_pretrained(partial)
    (partial / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for path in partial.iterdir():
        # Weights are written readable by their owner alone.
        path.chmod(0o644)
    partial.rename(folder)
