"""Coverage by step, and the mark on bins whose steps differ beyond noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from coft_core.conformal.bins import EVENNESS_LEVEL, PositionBins, bin_evenness
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import clopper_pearson
from coft_core.conformal.values import CalibrationValues
from tests.conftest import TOY_FINGERPRINT

EIGHT = PositionBins(8, 8, "even")


def flags(rates, contexts, generator, common=0.5):
    """Kept tokens of contexts that are alike in themselves and from step to step, with a rate for each step."""
    wanted = np.asarray(rates)
    noise = generator.normal(size=(contexts, wanted.size))
    noise[:, 1:] = 0.6 * noise[:, :-1] + 0.8 * noise[:, 1:]
    scale = np.sqrt(noise.var(axis=0) + common**2)
    latent = (noise + common * generator.normal(size=(contexts, 1))) / scale  # (C, S), standard normal
    kept = latent < norm.ppf(wanted)
    return kept.ravel(), np.repeat(np.arange(contexts), wanted.size), np.tile(np.arange(wanted.size), contexts)


class TestEvenness:
    @pytest.mark.parametrize("contexts", [30, 120, pytest.param(400, marks=pytest.mark.slow)])
    def test_bins_of_equal_steps_are_marked_at_most_as_often_as_the_level_says(self, contexts):
        generator, repeats = np.random.default_rng(0), 400
        marked = 0
        for _ in range(repeats):
            found = bin_evenness(*flags([0.9] * 8, contexts, generator), EIGHT)
            marked += any(entry.uneven for entry in found)
        assert marked <= repeats * EVENNESS_LEVEL + 3 * np.sqrt(repeats * 0.05 * 0.95)

    def test_a_bin_with_one_step_that_is_missed_more_often_is_marked_and_named(self):
        kept, contexts, steps = flags([0.75, *[0.92] * 7], 400, np.random.default_rng(1))
        (found,) = bin_evenness(kept, contexts, steps, EIGHT)
        assert (found.label, found.steps, found.uneven, found.level) == ("1 and later", 8, True, EVENNESS_LEVEL)

    def test_the_level_is_shared_out_among_bins_copies_count_once_and_single_steps_tell_nothing(self):
        kept, contexts, steps = flags([0.8] * 16, 100, np.random.default_rng(2))
        found = bin_evenness(kept, contexts, steps, PositionBins(8, 256))
        assert [entry.label for entry in found] == ["3–4", "5–8", "9–16"]
        assert {entry.level for entry in found} == {EVENNESS_LEVEL / 3}
        kept, contexts, steps = flags([0.85, 0.9, 0.9, 0.95], 60, np.random.default_rng(3))
        (once,) = bin_evenness(kept, contexts, steps, EIGHT)
        (twice,) = bin_evenness(np.tile(kept, 2), np.tile(contexts, 2), np.tile(steps, 2), EIGHT)
        assert twice.p == pytest.approx(once.p)
        assert twice.contexts == once.contexts
        steps = np.tile(np.arange(8), 20)
        assert bin_evenness(np.ones(160, bool), np.repeat(np.arange(20), 8), steps, EIGHT) == ()
        assert bin_evenness(np.arange(20) > 9, np.arange(20), np.arange(20) % 8, EIGHT) == ()
        assert bin_evenness(np.zeros(0, bool), np.zeros(0, int), np.zeros(0, int), EIGHT) == ()


class TestCalibration:
    @pytest.fixture(scope="class")
    def made(self):
        """The first step of eight is missed far more often than the others."""
        generator = np.random.default_rng(4)
        drawn = -generator.exponential(size=(600, 8))
        drawn[:, 0] *= 3
        context, step = np.repeat(np.arange(600), 8), np.tile(np.arange(8), 600)
        values = CalibrationValues(drawn.ravel(), step, context)
        own, apart = values.select(list(range(450))), values.select(list(range(450, 600)))
        return Calibration.of(TOY_FINGERPRINT, 0.1, own, apart)

    def test_coverage_stands_by_step_and_only_eights_are_marked(self, made):
        for row, step in zip(made.coverage.steps, range(8), strict=True):
            at = made.joint.verification.values[made.joint.verification.steps == step]
            kept = int((at >= made.threshold(step)).sum())
            assert (row.label, row.contexts, row.kept) == (str(step + 1), 150, kept)
            assert (row.low, row.high) == clopper_pearson(kept, 150)
        even = made.read(bin_spacing="even")
        assert [entry.label for entry in even.joint.evenness if entry.uneven] == ["1–8"]
        assert not any(entry.uneven for entry in made.joint.evenness)
        # A matter of the calibration's details: no audit repeats it.
        assert even.notes == made.notes == ()
        values = CalibrationValues(
            np.array([-1.0, -1.0, -9.0, -9.0]), np.zeros(4, int), np.array([0, 0, 1, 1]), np.array([1, 2, 3, 4])
        )
        found = Calibration.of(TOY_FINGERPRINT, 0.4, CalibrationValues.empty(), values).coverage.steps
        assert [(row.label, row.contexts) for row in found] == [("1", 2)]
