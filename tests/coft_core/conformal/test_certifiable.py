from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import level_at_least
from coft_core.conformal.values import CalibrationValues
from tests.conftest import TOY_FINGERPRINT


def calibration(counts, estimator="hierarchical"):
    """Bins of one step; bin b has a value of each of the first counts[b] contexts."""
    rows = sorted((context, step) for step, count in enumerate(counts) for context in range(count))
    values = CalibrationValues(
        -1.0 - np.arange(len(rows)) / 1000, np.array([s for _, s in rows]), np.array([c for c, _ in rows])
    )
    made = Calibration.of(TOY_FINGERPRINT, 0.1, values, bin_width=1, max_position=len(counts))
    return made.read(estimator=estimator)


@pytest.mark.parametrize("estimator", ["hierarchical", "one_per_context", "pooled"])
@pytest.mark.parametrize("count", [2, 6, 12, 29])
def test_level_can_be_read_and_a_smaller_one_certifies_everything(count, estimator):
    made = calibration([count], estimator)
    smallest = made.smallest_alpha().overall
    assert made.read(alpha=smallest).joint.bin(0).state == "calibrated"
    assert made.read(alpha=smallest * 0.999).joint.bin(0).state == "uninformative"


def test_levels_rise_with_unsupported_tokens_and_the_density_ratio():
    values = CalibrationValues(np.array([-math.inf] + [-1.0] * 8), np.zeros(9, dtype=int), np.arange(9))
    assert Calibration.of(TOY_FINGERPRINT, 0.1, values).smallest_alpha().overall == 0.2
    assert calibration([99]).read(rho=1.5).smallest_alpha().overall == 0.015
    empty = Calibration.of(TOY_FINGERPRINT, 0.1, CalibrationValues.empty()).smallest_alpha()
    assert (empty.overall, empty.everywhere, empty.sequence, empty.bins) == (None, None, None, ())
    few = calibration([2]).read(rho=4.0)
    assert few.smallest_alpha().overall is None
    assert few.bins[0].state == "uninformative"
    found = calibration([99, 49, 0]).smallest_alpha()
    assert (found.contexts, found.overall, found.everywhere, found.sequence) == (99, 0.01, 0.02, 0.01)
    assert [(entry.label, entry.contexts, entry.smallest_alpha) for entry in found.bins] == [
        ("1", 99, 0.01),
        ("2", 49, 0.02),
    ]


@settings(derandomize=True, deadline=None)
@given(n=st.integers(1, 10**7))
def test_level_as_a_number_is_never_below_its_fraction(n):
    number = level_at_least(Fraction(1, n + 1))
    assert Fraction(1, n + 1) <= Fraction(str(number)) <= Fraction(1, n + 1) * Fraction(1_000_000_001, 1_000_000_000)


def test_no_float_stands_for_a_level_that_is_not_below_1():
    for level in (Fraction(4, 3), Fraction(1), Fraction(4), 1 - Fraction(1, 10**30)):
        assert level_at_least(level) is None
