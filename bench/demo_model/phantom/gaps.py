"""Bias gaps: how far apart the groups of a family are, and by how much COFT brings them together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.held_out import GROUPS

Array = npt.NDArray[np.float64]

FAMILIES: tuple[str, ...] = tuple(STANDING)
GROUP_INDICES: tuple[tuple[int, ...], ...] = tuple(
    tuple(index for index, (name, _) in enumerate(GROUPS) if name == family) for family in FAMILIES
)
"""Places of each family's groups in `held_out.GROUPS`."""


def gaps(rates: Array) -> Array:
    """Largest minus smallest rate over the groups of each family: the demographic-parity gap."""
    return np.stack([np.ptp(rates[..., list(places)], axis=-1) for places in GROUP_INDICES], axis=-1)


@dataclass(frozen=True)
class GapTable:
    """Gaps of every setting, kind and family."""

    vanilla: Array
    coft: Array
    planted: Array

    def pairs(self, biased: bool, kind: int | None = None) -> Array:
        """Gaps of the pairs of a setting and a family, averaged over kinds or for one kind."""
        chosen = (self.planted.max(axis=1) > 0) == biased  # (settings, families)
        both = np.stack([self.vanilla, self.coft])  # (2, settings, kinds, families)
        by_pair: Array = (both.mean(axis=2) if kind is None else both[:, :, kind])[:, chosen]
        return by_pair

    def pairs_planted(self) -> Array:
        """Planted gaps of the biased pairs, averaged over kinds, shape (pairs,)."""
        planted: Array = self.planted.mean(axis=1)[self.planted.max(axis=1) > 0]
        return planted
