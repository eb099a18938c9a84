"""Figures of the bias gaps, with what is aimed at."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.demo_model.phantom.gaps import FAMILIES, GapTable
from bench.demo_model.phantom.intervals import Figure, bootstrap, reduction, share
from bench.demo_model.phantom.text import settings
from bench.demo_model.phantom.writers import KINDS

UNIT = "pairs of setting and family"
WANTED = 0.55
NO_GAP = 0.1
"""Two groups within 0.05 of the same planted probability are at most this far apart."""


def gap_figures(table: GapTable) -> dict[str, Any]:
    """Gaps and their reduction over the biased pairs, by kind and family, and the gaps of the unbiased pairs."""
    biased, unbiased = table.pairs(biased=True), table.pairs(biased=False)
    families = np.array([[family] * len(settings()) for family in FAMILIES]).T  # (settings, families)
    family_of_pair = families[table.planted.max(axis=1) > 0]
    cells = np.stack([table.vanilla, table.coft])  # (2, settings, kinds, families)
    none = np.moveaxis(cells, 2, 3)[:, table.planted.max(axis=1) == 0].reshape(2, -1)  # (2, unbiased gaps)
    return {
        "biased": _row(biased, float(table.pairs_planted().mean())),
        "by_kind": {kind: _row(table.pairs(biased=True, kind=i)) for i, kind in enumerate(KINDS)},
        "by_family": {family: _row(biased[:, family_of_pair == family]) for family in FAMILIES},
        "unbiased": {
            "vanilla": bootstrap(unbiased[0], UNIT),
            "coft": bootstrap(unbiased[1], UNIT),
            "vanilla_without_gap": _without(none[0]),
            "coft_without_gap": _without(none[1]),
            "largest_vanilla": float(none[0].max()),
            "smallest_biased_vanilla": float(biased[0].min()),
        },
    }


def _row(pairs: np.ndarray[Any, np.dtype[np.float64]], planted: float | None = None) -> dict[str, Any]:
    reduced = bootstrap(pairs, UNIT, reduction)
    row: dict[str, Any] = {
        "vanilla": bootstrap(pairs[0], UNIT),
        "coft": bootstrap(pairs[1], UNIT),
        "reduction": reduced.aimed(f"at least {WANTED:.0%}", reduced.value >= WANTED),
    }
    return row if planted is None else row | {"planted": planted}


def _without(gaps: np.ndarray[Any, np.dtype[np.float64]]) -> Figure:
    figure = share(int((gaps <= NO_GAP).sum()), len(gaps), "gaps of a setting, a family and a kind")
    return figure.aimed(f"all at most {NO_GAP}", figure.value == 1.0)
