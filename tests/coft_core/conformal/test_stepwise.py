from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.conformal.bins import BIN_SPACINGS, PositionBins, stepwise_bins
from coft_core.conformal.quantile import conformal_threshold, coverage_range
from coft_core.conformal.rule import Rule
from coft_core.conformal.shift import Shift
from coft_core.errors import InvalidInputError


def bins_with_contexts(counts, alpha=0.1, estimator="hierarchical", repeats=1):
    """Bins of width 2 in which bin b has ``counts[b]`` contexts with ``repeats`` values each."""
    rows = [
        (-1.0 - bin_index - context / 1000, 2 * bin_index, context)
        for bin_index, count in enumerate(counts)
        for context in range(count)
        for _ in range(repeats)
    ]
    values, steps, contexts = (
        (np.array(column) for column in zip(*rows, strict=True))
        if rows
        else (np.empty(0), np.empty(0, dtype=int), np.empty(0, dtype=int))
    )
    positions = PositionBins(width=2, maximum=2 * len(counts), spacing="even")
    return stepwise_bins(values, steps, contexts, alpha, Rule(estimator), positions)


class TestPositionBins:
    @settings(derandomize=True, deadline=None)
    @given(
        width=st.integers(1, 20),
        maximum=st.integers(1, 300),
        spacing=st.sampled_from(BIN_SPACINGS),
        step=st.integers(0, 1000),
    )
    def test_every_step_lies_within_its_bins_ends(self, width, maximum, spacing, step):
        positions = PositionBins(width, maximum, spacing)
        index = positions.bin_of(step)
        last = positions.last_step(index)
        assert positions.first_step(index) <= step
        assert last is None or step <= last
        assert (last is None) == (index == positions.count - 1)
        assert positions.bins_of(np.array([step])).tolist() == [index]

    def test_the_finest_bins_are_single_steps_as_far_as_enough_contexts_reach(self):
        # Context c has c + 1 steps, so that 40 - t contexts reach step t.
        steps = np.concatenate([np.arange(length) for length in range(1, 41)])
        contexts = np.repeat(np.arange(40), np.arange(1, 41))
        bins = PositionBins(spacing="finest")
        for alpha, shift, last in (
            (Fraction(1, 10), Shift(), 40 - 9),
            (Fraction(1, 20), Shift(), 40 - 19),
            (Fraction(1, 100), Shift(), 0),
            # A context that weighs half as much as a new one counts half.
            (Fraction(1, 10), Shift.weighted(dict.fromkeys(range(40), 0.5), 1.0), 40 - 18),
        ):
            fitted = bins.within(steps, contexts, alpha, shift)
            assert fitted.starts == tuple(range(last + 1))
            assert fitted.label(fitted.count - 1) == f"{last + 1} and later"
        assert bins.within(steps[:0], contexts[:0], Fraction(1, 10)).count == 1
        assert replace(bins, maximum=5).within(steps, contexts, Fraction(1, 10)).count == 5
        assert PositionBins().within(steps, contexts, Fraction(1, 10)) == PositionBins()

    def test_default_even_and_finest_bins_have_their_widths_and_labels(self):
        positions = PositionBins()
        assert [positions.label(index) for index in range(6)] == ["1", "2", "3–4", "5–8", "9–16", "17–24"]
        assert (positions.count, positions.label(34)) == (35, "249 and later")
        assert [positions.bin_of(step) for step in (0, 1, 2, 3, 4, 7, 8, 15, 255, 10_000)] == [
            *(0, 1, 2, 2, 3, 3, 4, 4),
            *(34, 34),
        ]
        assert PositionBins(8, 20).widths == (1, 1, 2, 4, 8, 8)
        positions = PositionBins(spacing="even")
        assert positions.count == 32
        assert [positions.bin_of(step) for step in (0, 7, 8, 247, 248, 255, 256, 10_000)] == [
            0, 0, 1, 30, 31, 31, 31, 31,
        ]  # fmt: skip
        positions = PositionBins(spacing="even")
        assert positions.label(0) == "1\u20138"
        assert positions.label(3) == "25\u201332"
        assert positions.label(31) == "249 and later"
        assert PositionBins(width=1, maximum=3).label(1) == "2"

    def test_bins_widen_to_their_usual_width_and_others_are_refused(self):
        for width, maximum, starts in (
            (8, 24, (0, 1, 2, 4, 8, 16)), (4, 4, (0, 1, 2)), (1, 3, (0, 1, 2)), (6, 8, (0, 1, 2, 4, 6)), (8, 1, (0,)),
        ):  # fmt: skip
            assert PositionBins(width, maximum).starts == starts
            assert PositionBins(width, maximum, "even").starts == tuple(range(0, maximum, width))
        with pytest.raises(InvalidInputError, match="choose one of finest, widening, even"):
            PositionBins(spacing="growing")
        with pytest.raises(InvalidInputError, match="counted from 0"):
            PositionBins().bin_of(-1)
        with pytest.raises(InvalidInputError, match="no bin 35"):
            PositionBins().label(35)
        for width, maximum in ((0, 256), (8, 0), (-1, 8), (2.5, 8), (True, 8)):
            with pytest.raises(InvalidInputError, match="whole number"):
                PositionBins(width, maximum)


class TestStates:
    def test_bin_with_enough_contexts_has_its_own_threshold_and_one_with_too_few_never_borrows(self):
        (only,) = bins_with_contexts([9])
        assert only.state == "calibrated"
        assert only.log_tau == -1.008
        assert (only.contexts, only.values, only.rank, only.inherited_from) == (9, 9, 1, None)
        assert (only.coverage_low, only.coverage_high) == coverage_range(9, 1)
        bins = bins_with_contexts([20, 8, 20])
        assert bins[1].state == "uninformative"
        assert bins[1].log_tau == -math.inf
        assert bins[1].tau == 0.0
        assert (bins[1].contexts, bins[1].rank, bins[1].inherited_from) == (8, 0, None)
        assert bins[1].coverage_low is None
        (only,) = bins_with_contexts([8], repeats=100)
        assert (only.contexts, only.values, only.state) == (8, 800, "uninformative")

    def test_bin_without_data_borrows_from_the_nearest_calibrated_one_the_earlier_of_two(self):
        bins = bins_with_contexts([20, 20, 6, 0, 0])
        assert [b.state for b in bins] == ["calibrated", "calibrated", "uninformative", "inherited", "inherited"]
        for borrower in bins[3:]:
            assert borrower.inherited_from == bins[1].label
            assert borrower.log_tau == bins[1].log_tau
            assert (borrower.contexts, borrower.values, borrower.rank) == (0, 0, 0)
            assert borrower.coverage_low is None
        bins = bins_with_contexts([20, 0, 20])
        assert bins[1].inherited_from == bins[0].label
        bins = bins_with_contexts([20, 0, 0, 20])
        assert bins[2].inherited_from == bins[3].label
        bins = bins_with_contexts([20, 0, 0, 0])
        assert [b.inherited_from for b in bins] == [None, *[bins[0].label] * 3]

    def test_bins_without_support_or_neighbours_are_uninformative(self):
        bins = bins_with_contexts([5, 0])
        assert [b.state for b in bins] == ["uninformative", "uninformative"]
        assert all(b.log_tau == -math.inf and b.inherited_from is None for b in bins)
        assert {b.state for b in bins_with_contexts([0, 0, 0])} == {"uninformative"}
        positions = PositionBins(width=1, maximum=3)
        values = np.concatenate([np.full(20, -np.inf), np.full(20, -1.0)])
        steps = np.repeat([0, 2], 20)
        bins = stepwise_bins(values, steps, np.tile(np.arange(20), 2), 0.1, positions=positions)
        assert [b.state for b in bins] == ["uninformative", "inherited", "calibrated"]
        assert bins[0].rank == 2
        assert bins[1].inherited_from == bins[2].label

    def test_pooled_counts_values_and_claims_no_range(self):
        (only,) = bins_with_contexts([8], estimator="pooled", repeats=100)
        assert (only.state, only.rank, only.contexts) == ("calibrated", 80, 8)
        assert only.coverage_low is None
        assert only.coverage_high is None
        (single,) = bins_with_contexts([20], estimator="pooled")
        assert single.coverage_low is not None


@pytest.mark.parametrize("estimator", ["hierarchical", "pooled"])
def test_each_bin_is_the_threshold_of_its_own_rows(estimator):
    generator = np.random.default_rng(8)
    values = -generator.exponential(size=800)
    steps, contexts = generator.integers(0, 40, size=800), generator.integers(0, 60, size=800)
    positions = PositionBins(width=4, maximum=24, spacing="even")
    for entry in stepwise_bins(values, steps, contexts, 0.1, Rule(estimator), positions):
        last = math.inf if entry.last_step is None else entry.last_step
        rows = (steps >= entry.first_step) & (steps <= last)
        assert entry.values == rows.sum()
        assert entry.contexts == len(set(contexts[rows].tolist()))
        assert entry.log_tau == conformal_threshold(values[rows], 0.1, contexts[rows], estimator)


def test_bins_draw_independently_reproduce_by_seed_and_ignore_row_order():
    generator = np.random.default_rng(9)
    values = -generator.exponential(size=400)
    steps, contexts = generator.integers(0, 16, size=400), generator.integers(0, 30, size=400)
    shuffle = generator.permutation(400)
    one, other = Rule("one_per_context", 1), Rule("one_per_context", 2)
    first = stepwise_bins(values, steps, contexts, 0.1, one)
    assert first == stepwise_bins(values[shuffle], steps[shuffle], contexts[shuffle], 0.1, one)
    assert first != stepwise_bins(values, steps, contexts, 0.1, other)
    # One context with the same four values in both bins: with shared draws the thresholds would always be equal.
    values, steps = np.tile([-4.0, -3.0, -2.0, -1.0], 2), np.repeat([0, 1], 4)
    positions = PositionBins(width=1, maximum=2)
    pairs = {
        tuple(
            entry.log_tau
            for entry in stepwise_bins(
                values, steps, np.zeros(8, dtype=int), 0.5, Rule("one_per_context", seed), positions
            )
        )
        for seed in range(100)
    }
    assert len(pairs) > 8
