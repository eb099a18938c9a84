from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from coft_core.conformal.bins import Bin, PositionBins
from coft_core.conformal.coverage import CoverageRow, clopper_pearson, coverage_report
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError

POSITIONS = PositionBins(width=2, maximum=4, spacing="even")


def thresholds(first, last):
    return (
        Bin(0, 0, 1, state="calibrated", log_tau=first, contexts=20, values=20, rank=2),
        Bin(1, 2, None, state="calibrated", log_tau=last, contexts=20, values=20, rank=2),
    )


def row(kept, contexts, alpha=0.1):
    low, high = clopper_pearson(kept, contexts)
    return CoverageRow("All steps", contexts, kept, alpha, kept / contexts, low, high)


class TestClopperPearson:
    def test_interval_is_scipys_exact_one_and_impossible_counts_are_refused(self):
        for k, n in ((364, 400), (1, 7), (5, 5), (0, 5), (0, 1), (1, 1), (200, 400)):
            expected = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
            assert clopper_pearson(k, n) == pytest.approx((expected.low, expected.high))
        for k, n, level in ((0, 0, 0.95), (3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0)):
            with pytest.raises(InvalidInputError):
                clopper_pearson(k, n, level)

    def test_interval_holds_its_level_in_the_usual_case_too(self):
        low, high = clopper_pearson(364, 400)
        assert (round(low, 3), round(high, 3)) == (0.878, 0.936)
        n, p = 37, 0.9
        covered = sum(
            stats.binom.pmf(k, n, p) for k in range(n + 1) if clopper_pearson(k, n)[0] <= p <= clopper_pearson(k, n)[1]
        )
        assert covered >= 0.95


class TestReport:
    def test_contexts_are_counted_once_at_the_thresholds_of_their_own_bins(self):
        # Every context has many steps; the steps of a context agree, so the counts do not depend on the draw.
        contexts = np.repeat(np.arange(10), 6)
        values = np.where(contexts < 7, -1.0, -9.0)
        steps = np.tile(np.arange(6), 10)
        report = coverage_report(
            CalibrationValues(values, steps, contexts), thresholds(-5.0, -5.0), POSITIONS, alpha=0.1
        )
        for counted in (report, *report.bins):
            assert (counted.contexts, counted.kept, counted.coverage) == (10, 7, 0.7)
            assert (counted.low, counted.high) == clopper_pearson(7, 10)
        assert (report.contexts, report.kept, report.coverage) == (10, 7, 0.7)
        values = CalibrationValues(np.full(4, -3.0), np.array([0, 1, 2, 99]), np.arange(4))
        report = coverage_report(values, thresholds(-5.0, -2.0), POSITIONS, alpha=0.1)
        assert [(r.label, r.contexts, r.kept) for r in report.bins] == [("1\u20132", 2, 2), ("3 and later", 2, 0)]
        assert (report.contexts, report.kept) == (4, 2)
        value = np.float32(-0.1)
        values = CalibrationValues(np.array([value]), np.array([0]), np.array([0]))
        assert coverage_report(values, thresholds(float(value), 0.0), POSITIONS, alpha=0.1).kept == 1

    def test_overall_row_draws_uniformly_over_a_contexts_steps(self):
        # Three of four steps are kept in each of many contexts: three quarters of the draws must be.
        contexts = np.repeat(np.arange(2000), 4)
        values = np.tile([-1.0, -1.0, -9.0, -1.0], 2000)
        split = CalibrationValues(values, np.tile(np.arange(4), 2000), contexts)
        report = coverage_report(split, thresholds(-5.0, -5.0), POSITIONS, alpha=0.1)
        assert report.low < 0.75 < report.high
        assert report.bins[0].coverage == 1.0
        assert report.bins[1].coverage == pytest.approx(0.5, abs=0.05)

    def test_report_reproduces_by_seed_and_ignores_row_order(self):
        generator = np.random.default_rng(0)
        columns = (-generator.exponential(size=300), generator.integers(0, 8, 300), generator.integers(0, 90, 300))
        shuffle = generator.permutation(300)
        one = coverage_report(CalibrationValues(*columns), thresholds(-1.0, -1.5), POSITIONS, 0.1, seed=4)
        other = coverage_report(
            CalibrationValues(*(c[shuffle] for c in columns)), thresholds(-1.0, -1.5), POSITIONS, 0.1, seed=4
        )
        assert one == other

    def test_an_empty_split_measures_nothing_and_agrees_with_nothing(self):
        report = coverage_report(CalibrationValues.empty(), thresholds(-1.0, -1.0), POSITIONS, alpha=0.1)
        assert (report.contexts, report.coverage, report.low, report.high) == (0, None, None, None)
        assert not report.agrees
        assert report.verdict == "not measured"
        contexts = np.arange(400)
        values = CalibrationValues(np.where(contexts < 364, -1.0, -9.0), np.zeros(400, dtype=int), contexts)
        report = coverage_report(values, thresholds(-5.0, -5.0), POSITIONS, alpha=0.1)
        assert report.agrees


class TestVerdict:
    @pytest.mark.parametrize(
        ("kept", "contexts", "verdict", "agrees"),
        [
            (364, 400, "agrees", True),
            (400, 400, "above", True),
            (300, 400, "below", False),
            (5, 5, "too few", True),
            # Enough for a threshold, but the interval is 0.546 to 0.981.
            (11, 13, "too few", True),
            (0, 5, "below", False),
        ],
    )
    def test_verdict_follows_the_interval(self, kept, contexts, verdict, agrees):
        measured = row(kept, contexts)
        assert measured.verdict == verdict
        assert measured.agrees is agrees

    def test_verdict_depends_on_what_was_asked_and_one_of_many_steps_is_rarely_called_below(self):
        assert row(364, 400, alpha=0.01).verdict == "below"
        assert math.isclose(row(364, 400).coverage or 0, 0.91)
        generator, below, missed = np.random.default_rng(6), [], []
        for _ in range(100):
            kept = generator.binomial(120, 0.9, size=108)
            rows = [CoverageRow.measured(str(step), int(k), 120, 0.1, among=108) for step, k in enumerate(kept)]
            below.append(any(row.verdict == "below" for row in rows))
            missed.append(any(row.high < 0.9 for row in rows))
        assert np.mean(below) <= 0.05
        assert np.mean(missed) > 0.5
        # Steps that really miss the level are still found.
        assert CoverageRow.measured("missed", 84, 120, 0.1, among=108).verdict == "below"
