"""Theorem 4: all T true tokens are certified with probability at least 1 - T * alpha, however dependent."""

from __future__ import annotations

import numpy as np

from coft_core.conformal.bins import PositionBins, stepwise_bins

REPETITIONS, CONTEXTS, NEW, STEPS, ALPHA = 500, 39, 50, 4, 0.1


def disjoint_misses(shape, generator):
    """Steps whose small values exclude each other: the worst case of the bound, (contexts, T)."""
    turn = generator.random(shape[:1])[:, None]  # one number on a circle decides all steps
    return np.log((turn - np.arange(shape[1]) / shape[1]) % 1.0)


def common_cause(shape, generator):
    """Steps that fail together."""
    return -np.exp(generator.normal(size=shape[:1])[:, None] + 0.05 * generator.normal(size=shape))


def independent(shape, generator):
    return -generator.exponential(size=shape)


def all_steps_certified(kind, seed):
    """Share of new contexts whose T true tokens are all certified, for repeated calibrations, (R,)."""
    generator = np.random.default_rng(seed)
    positions = PositionBins(width=1, maximum=STEPS)
    step, context = np.tile(np.arange(STEPS), CONTEXTS), np.repeat(np.arange(CONTEXTS), STEPS)
    shares = np.empty(REPETITIONS)
    for repetition in range(REPETITIONS):
        values = kind((CONTEXTS + NEW, STEPS), generator)
        bins = stepwise_bins(values[:CONTEXTS].ravel(), step, context, ALPHA, positions=positions)
        log_tau = np.array([entry.log_tau for entry in bins])  # (T,)
        shares[repetition] = (values[CONTEXTS:] >= log_tau).all(axis=1).mean()
    return shares


def test_whole_chain_is_certified_at_least_as_often_as_the_union_bound_says():
    for kind, low, high in (
        (disjoint_misses, 1 - STEPS * ALPHA - 0.01, 1 - STEPS * ALPHA + 0.01),
        (independent, (1 - ALPHA) ** STEPS - 0.01, (1 - ALPHA) ** STEPS + 0.01),
        (common_cause, 1 - ALPHA - 0.04, 1 - ALPHA),
    ):
        shares = all_steps_certified(kind, seed=11)
        error = 4 * shares.std() / np.sqrt(REPETITIONS)
        assert shares.mean() >= 1 - STEPS * ALPHA - error
        # The bound is reached when misses exclude each other, and far from it when they share a cause.
        assert low <= shares.mean() <= high
