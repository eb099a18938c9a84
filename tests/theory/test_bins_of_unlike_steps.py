"""A threshold bounds its bin's average and no single step; narrow first bins hold where wide ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from coft_core.conformal.bins import BIN_SPACINGS, PositionBins, stepwise_bins
from coft_core.conformal.rule import Rule

REPETITIONS, CONTEXTS, NEW, STEPS, ALPHA = 300, 99, 40, 16, 0.1


@pytest.fixture(scope="module", params=["hierarchical", pytest.param("one_per_context", marks=pytest.mark.slow)])
def missed(request):
    """Share of misses by step over repeated calibrations, (S,), where the first steps are harder than the others."""
    generator = np.random.default_rng(0)
    scale = np.array([4.0, 2.5, *[1.6] * 2, *[1.0] * (STEPS - 4)])  # (S,)
    step, context = np.tile(np.arange(STEPS), CONTEXTS), np.repeat(np.arange(CONTEXTS), STEPS)
    found = {spacing: np.zeros(STEPS) for spacing in BIN_SPACINGS}
    for repetition in range(REPETITIONS):
        common = generator.normal(size=(CONTEXTS + NEW, 1))
        values = -scale * np.exp(0.5 * common + generator.normal(size=(CONTEXTS + NEW, STEPS)))
        for spacing in found:
            positions = PositionBins(8, STEPS, spacing)
            bins = stepwise_bins(
                values[:CONTEXTS].ravel(), step, context, ALPHA, Rule(request.param, repetition), positions
            )
            log_tau = np.array([entry.log_tau for entry in bins])[positions.bins_of(np.arange(STEPS))]  # (S,)
            found[spacing] += (values[CONTEXTS:] < log_tau).mean(0) / REPETITIONS
    return found


def test_averages_over_bins_hold_single_steps_of_wide_ones_need_not_and_narrow_ones_do(missed):
    for spacing, shares in missed.items():
        positions = PositionBins(8, STEPS, spacing)
        index = positions.bins_of(np.arange(STEPS))
        for entry in range(positions.count):
            assert shares[index == entry].mean() == pytest.approx(ALPHA, abs=0.01)
    even = missed["even"]
    assert even[0] > 2.5 * ALPHA
    assert even[1] > 1.5 * ALPHA
    assert (even[4:8] < 0.7 * ALPHA).all()
    assert (np.abs(missed["widening"][:8] - ALPHA) < 0.01).all()
    assert (np.abs(missed["finest"] - ALPHA) < 0.01).all()
