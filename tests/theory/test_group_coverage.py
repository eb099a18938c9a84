"""Group-conditional thresholds: coverage holds within each group, where common thresholds hold on average only."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.values import CalibrationValues
from tests.conftest import TOY_FINGERPRINT

REPETITIONS, ALPHA = 150, 0.1
"""Coverage given a threshold is known, so that four standard errors are less than those of drawn values."""
SIZES = {"common": 60, "rare": 20}
HARDNESS = {"common": 0.0, "rare": 1.0}


def test_each_group_is_covered_by_its_own_thresholds_and_the_rare_one_not_by_common_ones():
    generator = np.random.default_rng(8)
    groups = ContextGroups.of({i: "common" if i < 60 else "rare" for i in range(80)})
    own: dict[str, list[float]] = {name: [] for name in SIZES}
    shared: dict[str, list[float]] = {name: [] for name in SIZES}
    hardness = np.repeat([HARDNESS[name] for name in SIZES], list(SIZES.values()))  # (80,)
    for _ in range(REPETITIONS):
        lengths = generator.integers(1, 5, size=80)
        context = np.repeat(np.arange(80), lengths)
        step = np.concatenate([np.arange(length) for length in lengths])
        level = (hardness + generator.normal(size=80))[context]
        values = CalibrationValues(-np.exp(level + 0.1 * generator.normal(size=context.size)), step, context)
        calibration = Calibration.of(TOY_FINGERPRINT, ALPHA, values, context_groups=groups, bin_width=4, max_position=4)
        for name in SIZES:
            for read, found in ((calibration.for_group(name), own), (calibration, shared)):
                found[name].append(stats.norm.cdf((np.log(-read.threshold(0)) - HARDNESS[name]) / math.hypot(1, 0.1)))
    for name, size in SIZES.items():
        error = 4 * np.std(own[name]) / math.sqrt(REPETITIONS)
        assert 1 - ALPHA - error <= np.mean(own[name]) <= 1 - ALPHA + 1 / (size + 1) + 0.02
    assert np.mean(shared["rare"]) < 1 - ALPHA - 0.08
    assert np.mean(shared["common"]) > 1 - ALPHA + 0.01
    pooled = (60 * np.mean(shared["common"]) + 20 * np.mean(shared["rare"])) / 80
    assert pooled == pytest.approx(1 - ALPHA, abs=0.025)
