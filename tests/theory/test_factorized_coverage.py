"""App. "Beyond tokens": certificates at alpha_k intersect to coverage of at least 1 - sum of alpha_k."""

from __future__ import annotations

import numpy as np

from coft_core.conformal.calibration import Calibration, split_alpha
from coft_core.conformal.part import Part
from coft_core.conformal.quantile import conformal_threshold
from coft_core.conformal.values import CalibrationValues
from tests.conftest import TOY_FINGERPRINT

FAMILIES = ("gender", "race", "age")
REPEATS, CONTEXTS, FRESH = 300, 59, 200


def world(generator, count, correlation):
    """Log joint supports by family, ``(count, 3)``, dependent through a common level; NaN where a family is absent."""
    level = generator.normal(size=(count, 1))
    own = generator.normal(size=(count, len(FAMILIES)))
    values = -np.exp(correlation * level + np.sqrt(1 - correlation**2) * own)
    # Families are absent more often where support is low: absence must not be assumed to be at random.
    absent = generator.random(values.shape) < np.where(level > 0, 0.6, 0.2)
    return np.where(absent, np.nan, values)


def coverage(correlation, shares):
    generator = np.random.default_rng(11)
    covered = []
    for _ in range(REPEATS):
        calibration, fresh = (world(generator, n, correlation) for n in (CONTEXTS, FRESH))
        missed = np.zeros(FRESH, dtype=bool)
        for index, family in enumerate(FAMILIES):
            own = calibration[:, index]
            log_tau = conformal_threshold(own[~np.isnan(own)], shares[family])
            missed |= fresh[:, index] < log_tau  # a family that is absent (NaN) cannot refuse
        covered.append(1 - missed.mean())
    return float(np.mean(covered))


def test_the_intersection_covers_with_equal_shares():
    for correlation in (0.0, 0.7, 1.0):
        assert coverage(correlation, split_alpha(0.3, FAMILIES)) >= 0.7


def test_the_intersection_covers_with_shares_by_hand():
    shares = split_alpha(0.3, FAMILIES, {"gender": 0.15, "race": 0.1, "age": 0.05})
    assert coverage(0.5, shares) >= 0.7


def test_without_a_split_the_intersection_misses_the_level():
    """Every family at the whole alpha: this is what the split is for."""
    assert coverage(0.0, dict.fromkeys(FAMILIES, 0.3)) < 0.65


def rows_of_contexts(generator, contexts, first):
    """Contexts of one to three rows with their own families; rows of a context share a level."""
    rows = generator.integers(1, 4, size=contexts)
    context = np.repeat(np.arange(contexts), rows) + first
    values = world(generator, context.size, 0.5) - np.exp(generator.normal(size=contexts))[context - first, None]
    found = {}
    for index, family in enumerate(FAMILIES):
        present = np.flatnonzero(~np.isnan(values[:, index]))
        steps = np.zeros(present.size, dtype=int)
        found[family] = CalibrationValues(values[present, index], steps, context[present], present)
    return found


def test_measured_coverage_of_the_intersection_holds_where_contexts_have_several_rows():
    """The average over calibrations of what a factorized calibration measures on contexts kept apart."""
    generator = np.random.default_rng(5)
    shares = split_alpha(0.3, FAMILIES)
    kept = contexts = 0
    for repeat in range(60):
        known, apart = rows_of_contexts(generator, CONTEXTS, 0), rows_of_contexts(generator, 100, CONTEXTS)
        parts = tuple(
            (name, Part(TOY_FINGERPRINT, shares[name], known[name], apart[name], max_position=8, seed=repeat))
            for name in FAMILIES
        )
        measured = Calibration(0.3, parts).coverage
        kept, contexts = kept + measured.kept, contexts + measured.contexts
    assert kept / contexts >= 0.7
    # The union bound gives something away, but not everything.
    assert kept / contexts <= 0.9
