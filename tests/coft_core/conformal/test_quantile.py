from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coft_core.conformal.quantile import (
    ESTIMATORS,
    check_alpha,
    check_estimator,
    conformal_rank,
    conformal_threshold,
    coverage_range,
    minimum_contexts,
)
from coft_core.errors import InvalidInputError

EXACT = settings(derandomize=True, deadline=None, max_examples=80)

decimals = st.integers(1, 999).map(lambda thousandths: thousandths / 1000)
log_values = st.floats(-50, 0, allow_nan=False, width=32)
# Few distinct values and few contexts, so that ties and shared contexts are the rule.
grouped_values = st.lists(
    st.tuples(st.integers(0, 6), st.one_of(st.integers(-8, 0).map(float), st.just(-math.inf), log_values)), max_size=25
)


def brute_force_hierarchical(rows, alpha):
    """The definition, word for word, in rationals."""
    members: dict[int, list[float]] = {}
    for context, value in rows:
        members.setdefault(context, []).append(value)

    def weight_at_least(m):
        share = sum((Fraction(sum(v >= m for v in own), len(own)) for own in members.values()), start=Fraction(0))
        return share / (len(members) + 1)

    fitting = [value for _, value in rows if weight_at_least(value) >= 1 - alpha]
    return max(fitting, default=-math.inf)


class TestRank:
    @EXACT
    @given(alpha=decimals, n=st.integers(0, 2000))
    def test_rank_mirrors_the_ceiling_of_the_paper(self, alpha, n):
        ceiling = math.ceil((1 - Fraction(str(alpha))) * (n + 1))
        assert conformal_rank(alpha, n) == n + 1 - ceiling

    def test_rank_and_minimum_are_exact_and_other_alphas_and_counts_refused(self):
        assert math.floor(0.29 * 100) == 28
        assert conformal_rank(0.29, 99) == 29
        assert conformal_rank(np.float32(0.1), 9) == 1
        assert check_alpha(np.float32(0.1)) == 0.1
        with pytest.raises(InvalidInputError, match="-1"):
            conformal_rank(0.1, -1)
        for alpha, least in ((0.1, 9), (0.05, 19), (0.002, 499), (0.3, 3), (0.5, 1)):
            assert minimum_contexts(alpha) == least

    @EXACT
    @given(alpha=decimals)
    def test_minimum_is_the_first_count_with_a_rank(self, alpha):
        least = minimum_contexts(alpha)
        assert conformal_rank(alpha, least) >= 1
        assert least == 0 or conformal_rank(alpha, least - 1) == 0


def test_alpha_outside_its_range_is_refused():
    for alpha in (0, 1, -0.1, 1.5, math.nan, math.inf, "0.1", None, True, torch.tensor(0.1)):
        with pytest.raises(InvalidInputError, match="alpha is"):
            check_alpha(alpha)
        with pytest.raises(InvalidInputError, match="alpha is"):
            conformal_threshold([-1.0], alpha)


class TestThreshold:
    @EXACT
    @given(rows=grouped_values, alpha=decimals)
    def test_hierarchical_is_its_definition_in_rationals(self, rows, alpha):
        groups, values = [c for c, _ in rows], [v for _, v in rows]
        expected = brute_force_hierarchical(rows, Fraction(str(alpha)))
        assert conformal_threshold(values, alpha, groups) == expected

    @EXACT
    @given(values=st.lists(log_values, max_size=40), alpha=decimals, estimator=st.sampled_from(ESTIMATORS))
    def test_one_value_per_context_gives_the_ranked_value(self, values, alpha, estimator):
        rank = conformal_rank(alpha, len(values))
        expected = sorted(values)[rank - 1] if rank else -math.inf
        assert conformal_threshold(values, alpha, None, estimator) == expected
        assert conformal_threshold(values, alpha, list(range(len(values))), estimator) == expected

    @EXACT
    @given(rows=grouped_values, alphas=st.tuples(decimals, decimals), estimator=st.sampled_from(ESTIMATORS))
    def test_threshold_never_falls_when_alpha_grows(self, rows, alphas, estimator):
        groups, values = [c for c, _ in rows], [v for _, v in rows]
        low, high = (conformal_threshold(values, a, groups, estimator, seed=5) for a in sorted(alphas))
        assert low <= high

    @EXACT
    @given(data=st.data(), rows=grouped_values, alpha=decimals, estimator=st.sampled_from(ESTIMATORS))
    def test_order_of_rows_does_not_matter(self, data, rows, alpha, estimator):
        shuffled = data.draw(st.permutations(rows))
        one, other = (
            conformal_threshold([v for _, v in r], alpha, [f"context {c}" for c, _ in r], estimator, seed=1)
            for r in (rows, shuffled)
        )
        assert one == other

    def test_weights_and_coprime_sizes_stay_exact_and_pooled_counts_values(self):
        # Each of nine contexts has three values of weight 1/30: only all of them together reach 9/10.
        values = [-(1.0 + row) for row in range(27)]
        groups = [row // 3 for row in range(27)]
        assert conformal_threshold(values, 0.1, groups) == -27.0
        assert conformal_threshold(values, 0.0999, groups) == -math.inf
        sizes = [7, 11, 13, 17, 19, 23, 29, 31, 37]
        groups = [context for context, size in enumerate(sizes) for _ in range(size)]
        values = -np.arange(1.0, len(groups) + 1)
        assert conformal_threshold(values, 0.1, groups) == -len(groups)
        values, groups = [-float(i) for i in range(1, 20)], [0] * 19
        assert conformal_threshold(values, 0.1, groups, "pooled") == -18.0
        assert conformal_threshold(values, 0.1, groups) == -math.inf
        values = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.bfloat16)
        assert conformal_threshold(values, 0.25) == -3.0

    def test_one_per_context_draws_one_value_of_each_uniformly(self):
        # Context i holds i and i - 0.5 below zero; the smallest of nine drawn values is one of context 8's.
        values = [-(context + half) for context in range(1, 10) for half in (0.0, 0.5)]
        groups = [context for context in range(1, 10) for _ in range(2)]
        found = {conformal_threshold(values, 0.1, groups, "one_per_context", seed=s) for s in range(40)}
        assert found == {-9.0, -9.5}
        # A single context and alpha 0.5: the threshold is the drawn value itself.
        values = [-4.0, -3.0, -2.0, -1.0]
        drawn = [conformal_threshold(values, 0.5, [0] * 4, "one_per_context", seed=s) for s in range(2000)]
        counts = np.unique(drawn, return_counts=True)[1]
        assert counts.size == 4
        assert stats.chisquare(counts).pvalue > 0.001

    def test_draw_depends_on_the_order_of_ids_and_not_on_their_hashes(self):
        # Text ids that sort like the numbers must give the numbers' draws, in every process.
        values = -np.random.default_rng(2).exponential(size=90)
        groups = np.arange(90) // 10
        for seed in range(5):
            by_number = conformal_threshold(values, 0.5, groups, "one_per_context", seed)
            by_name = conformal_threshold(values, 0.5, [f"ward {g}" for g in groups], "one_per_context", seed)
            assert by_number == by_name

    def test_tensors_arrays_lists_and_none_at_all_agree(self):
        for estimator in ESTIMATORS:
            assert conformal_threshold([], 0.1, [], estimator) == -math.inf
            assert conformal_threshold(torch.empty(0), 0.1, None, estimator) == -math.inf
        for estimator in ESTIMATORS:
            values = -np.random.default_rng(0).exponential(size=60).astype(np.float32)
            groups = np.random.default_rng(1).integers(0, 25, size=60)
            forms = [
                conformal_threshold(values, 0.1, groups, estimator),
                conformal_threshold(values.tolist(), 0.1, groups.tolist(), estimator),
                conformal_threshold(torch.tensor(values), 0.1, torch.tensor(groups), estimator),
                conformal_threshold(torch.tensor(values, requires_grad=True), 0.1, tuple(groups.tolist()), estimator),
            ]
            assert len(set(forms)) == 1
            assert forms[0] in values.tolist()


class TestBadValues:
    def test_values_groups_ids_and_seeds_that_are_none_are_refused(self):
        for values, sentence in (
            ([-1.0, math.nan], r"values\[1\] is NaN"), ([-1.0, -2.0, 0.5], r"values\[2\] is 0.5, above 0"),
            ([math.inf], r"values\[0\] is inf, above 0"), ([[-1.0]], "one dimension, not 2"),
            (-1.0, "one dimension, not 0"), (["-1.0"], "real numbers"), ([None], "real numbers"),
            ([[-1.0], [-1.0, -2.0]], "list of numbers"),
        ):  # fmt: skip
            with pytest.raises(InvalidInputError, match=sentence):
                conformal_threshold(values, 0.1)
        for groups in ([0], [0, 0, 0], np.zeros(3, dtype=int), torch.zeros(1)):
            with pytest.raises(InvalidInputError, match="entries for 2 values"):
                conformal_threshold([-1.0, -2.0], 0.1, groups)
        for groups, sentence in (
            (["a", None], r"groups[1] is None"), ([math.nan, 1.0], r"groups[0] is nan"),
            (["a", []], r"groups[1] is a list"), ([torch.tensor(0), torch.tensor(0)], r"groups[0] is a Tensor"),
        ):  # fmt: skip
            with pytest.raises(InvalidInputError, match=re.escape(sentence)):
                conformal_threshold([-1.0, -2.0], 0.1, groups)
        for seed in (-1, 0.5, True):
            with pytest.raises(InvalidInputError, match="seed"):
                conformal_threshold([-1.0], 0.1, seed=seed)
        assert conformal_threshold([1e-7], 0.5) == 1e-7
        values = [-1.0, -2.0, -3.0]
        assert conformal_threshold(values, 0.25, [1, "1", ("1",)]) == -3.0
        with pytest.raises(InvalidInputError, match="hierarchical, one_per_context, pooled"):
            check_estimator("median")
        with pytest.raises(InvalidInputError, match="'median'"):
            conformal_threshold([-1.0], 0.1, estimator="median")


class TestCoverageRange:
    def test_range_leaves_two_and_a_half_percent_on_each_side_of_possible_ranks(self):
        for n, k in ((9, 1), (412, 41), (148, 14), (5, 5)):
            low, high = coverage_range(n, k)
            law = stats.beta(n + 1 - k, k)
            assert law.cdf(low) == pytest.approx(0.025)
            assert law.sf(high) == pytest.approx(0.025)
        low, high = coverage_range(412, 41)
        assert (round(low, 2), round(high, 2)) == (0.87, 0.93)
        assert coverage_range(3, 0) == (1.0, 1.0)
        wide, narrow = coverage_range(50, 5), coverage_range(50, 5, level=0.5)
        assert wide[0] < narrow[0] < narrow[1] < wide[1]
        for n, k, level in ((5, 6, 0.95), (5, -1, 0.95), (5, 1, 1.0), (5, 1, math.nan)):
            with pytest.raises(InvalidInputError):
                coverage_range(n, k, level)
