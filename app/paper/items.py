"""The figures and tables of the paper in its order, and the experiments that make each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml
from pydantic import TypeAdapter

from app.evaluate.experiments.named import EXPERIMENTS
from app.shared.errors import ServiceError
from coft_core.assets import assets_path

EXAMPLES = "worked_examples"
"""The part of the paper that needs no evaluation."""


@dataclass(frozen=True, slots=True)
class Item:
    """A figure or table of the paper, and what it needs; one without experiments says why there is none."""

    label: str
    title: str
    experiments: tuple[str, ...] = ()
    reason: str = ""
    needs: str = ""


_ITEMS = TypeAdapter(tuple[Item, ...])


def paper_items() -> tuple[Item, ...]:
    """All figures and tables, in the order of the paper."""
    return _ITEMS.validate_python(yaml.safe_load(assets_path("paper", "items.yaml").read_text("utf-8")))


def paper_experiments(only: Sequence[str] = ()) -> tuple[str, ...]:
    """What is made for them, each once, in the order in which the paper needs it; ``only`` names some."""
    listed = tuple(dict.fromkeys(name for item in paper_items() for name in item.experiments))
    known = (*listed, *(name for name in EXPERIMENTS if name not in listed))
    if unknown := [name for name in only if name not in known]:
        raise ServiceError(f"There is no part {unknown[0]!r} of the paper; choose some of {', '.join(known)}.")
    return tuple(name for name in known if name in only) if only else listed
