"""Whether the steps of one bin differ: a bin's threshold bounds the average over them, and no single one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from coft_core.conformal.stepwise import PositionBins

EVENNESS_LEVEL = 0.05
"""Probability, over all bins of a calibration together, of marking any whose steps are alike."""


@dataclass(frozen=True, slots=True)
class BinEvenness:
    """What the contexts say of the steps of one bin.

    Attributes:
        label: The bin's steps as pages count them.
        steps: Steps that were compared.
        contexts: Contexts that tell something: some of their true tokens in the bin were certified and some were not.
        p: p-value of the hypothesis that the true token of every step is certified equally often.
        level: Level that ``p`` is held against: :data:`EVENNESS_LEVEL` divided by the number of bins compared.
    """

    label: str
    steps: int
    contexts: int
    p: float
    level: float

    @property
    def uneven(self) -> bool:
        """Whether the steps differ beyond noise."""
        return self.p <= self.level


def bin_evenness(
    kept: npt.NDArray[np.bool_],
    contexts: npt.NDArray[np.integer],
    steps: npt.NDArray[np.integer],
    positions: PositionBins,
) -> tuple[BinEvenness, ...]:
    """Compare the steps of each bin, contexts being the clusters.

    A context gives, for each step, by how much its true tokens there were certified more often than over all its steps
    in the bin. If the steps are alike, these have mean 0, however the tokens of a context depend on each other; the
    score statistic ``t' (sum d d')^+ t`` with ``t = sum d`` is then chi-squared (Cochran's Q with the covariance taken
    from the contexts; for few contexts it errs on the side of not marking). The calibration's own contexts may be used:
    a threshold that the steps of a bin share favours none of them.

    Args:
        kept: Whether each true token was certified, ``(n,)``.
        contexts: Their contexts, ``(n,)``.
        steps: Their steps, 0-based, ``(n,)``.
        positions: The position bins.

    Returns:
        The bins that could be compared, in order: those in which some context has more than one step, of which some
        were certified and some not.
    """
    of_bin = positions.bins_of(steps)  # (n,)
    found = []
    for index in np.unique(of_bin).tolist():
        rows = of_bin == index
        deviations = _deviations(kept[rows], contexts[rows], steps[rows])  # (K, S)
        if len(deviations):
            found.append((positions.label(index), *deviations.shape[::-1], _p_value(deviations)))
    level = EVENNESS_LEVEL / max(len(found), 1)
    return tuple(BinEvenness(label, size, count, p, level) for label, size, count, p in found)


def evenness_sentence(found: Sequence[BinEvenness]) -> str:
    """The bins whose steps differ, in words; empty where there is none."""
    labels = [entry.label for entry in found if entry.uneven]
    if not labels:
        return ""
    named = f"steps {labels[0]}" if len(labels) == 1 else f"steps {', '.join(labels[:-1])} and {labels[-1]}"
    compared = "1 bin" if len(found) == 1 else f"{len(found)} bins"
    return (
        f"Within the {'bin' if len(labels) == 1 else 'bins'} of {named} single steps differ beyond noise (level "
        f"{EVENNESS_LEVEL:g} over {compared} compared): the level holds averaged over the steps of such a bin, and at "
        "some of them coverage can be lower."
    )


def _deviations(
    kept: npt.NDArray[np.bool_], contexts: npt.NDArray[np.integer], steps: npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """For each context that tells something, its kept tokens by step less those that all its steps would give it."""
    number, own = np.unique(contexts, return_inverse=True)
    place, column = np.unique(steps, return_inverse=True)
    cells = own * place.size + column  # (n,)
    shape = (number.size, place.size)
    counts = np.bincount(cells, minlength=number.size * place.size).reshape(shape)  # (K, S)
    hits = np.bincount(cells, kept, minlength=number.size * place.size).reshape(shape)  # (K, S)
    rate = hits.sum(1, keepdims=True) / counts.sum(1, keepdims=True)  # (K, 1)
    telling = ((rate > 0) & (rate < 1))[:, 0] & ((counts > 0).sum(1) > 1)
    deviations: npt.NDArray[np.float64] = (hits - counts * rate)[telling]
    return deviations


def _p_value(deviations: npt.NDArray[np.float64]) -> float:
    total = deviations.sum(0)  # (S,)
    scatter = deviations.T @ deviations  # (S, S)
    rank = int(np.linalg.matrix_rank(scatter, hermitian=True))
    statistic = total @ np.linalg.pinv(scatter, hermitian=True) @ total
    return float(chi2.sf(statistic, rank)) if rank else 1.0
