"""Figures of the bias gaps, with what is aimed at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bench.demo_model.phantom.gaps import FAMILIES, GapTable
from bench.demo_model.phantom.intervals import Figure, cluster_share, jackknife, reduction
from bench.demo_model.phantom.writers import KINDS

UNIT = "pairs of setting and family"
SETTINGS = "settings"
"""The families of one setting are asked with the same words: they are one cluster."""

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

WANTED = 0.55
NO_GAP = 0.1
"""Two groups within 0.05 of the same planted probability are at most this far apart."""


def gap_figures(table: GapTable) -> dict[str, Any]:
    """Gaps and their reduction over the biased pairs, by kind and family, and the gaps of the unbiased pairs."""
    biased, unbiased = table.pairs(biased=True), table.pairs(biased=False)
    chosen = table.planted.max(axis=1) > 0  # (settings, families)
    setting, family = np.indices(chosen.shape)
    own, others = setting[chosen], setting[~chosen]
    cells = np.stack([table.vanilla, table.coft])  # (2, settings, kinds, families)
    none = np.moveaxis(cells, 2, 3)[:, ~chosen]  # (2, unbiased pairs, kinds)
    by_family = {name: family[chosen] == i for i, name in enumerate(FAMILIES)}
    return {
        "biased": _row(biased, own, float(table.pairs_planted().mean())),
        "by_kind": {kind: _row(table.pairs(biased=True, kind=i), own) for i, kind in enumerate(KINDS)},
        "by_family": {name: _row(biased[:, places], own[places]) for name, places in by_family.items()},
        "unbiased": {
            "vanilla": jackknife(unbiased[0], others, _unit(unbiased)),
            "coft": jackknife(unbiased[1], others, _unit(unbiased)),
            "vanilla_without_gap": _without(none[0], others),
            "coft_without_gap": _without(none[1], others),
            "largest_vanilla": float(none[0].max()),
            "smallest_biased_vanilla": float(biased[0].min()),
        },
    }


def _unit(pairs: Array) -> str:
    return f"{SETTINGS} ({pairs.shape[-1]} {UNIT})"


def _row(pairs: Array, setting: Places, planted: float | None = None) -> dict[str, Any]:
    """Gaps of pairs under both policies, (2, pairs), and their reduction."""
    row: dict[str, Any] = {
        "vanilla": jackknife(pairs[0], setting, _unit(pairs)),
        "coft": jackknife(pairs[1], setting, _unit(pairs)),
        "reduction": jackknife(pairs, setting, _unit(pairs), reduction).aimed(f"at least {WANTED:.0%}", least=WANTED),
    }
    return row if planted is None else row | {"planted": planted}


def _without(gaps: Array, setting: Places) -> Figure:
    """Share of the gaps of pairs, (pairs, kinds), that are small enough to be none."""
    places = np.unique(setting)
    small = [int((gaps[setting == place] <= NO_GAP).sum()) for place in places]
    sizes = [gaps[setting == place].size for place in places]
    return cluster_share(small, sizes, f"{SETTINGS} ({gaps.size} gaps of a setting, a family and a kind)")
