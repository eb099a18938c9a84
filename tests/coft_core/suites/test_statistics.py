"""Intervals cover what they claim to; ranks, ties and preferences."""

from __future__ import annotations

import math
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from coft_core.suites.base import Figure, Outcome
from coft_core.suites.crows_pairs import CrowsPairs
from coft_core.suites.preferences import preference, preferred, shared_beginning
from coft_core.suites.statistics import (
    RESAMPLES,
    ahead,
    badness,
    difference,
    drawn_figure,
    made_with,
    mean_figure,
    ranks,
    unit_draws,
    unit_sums,
)
from tests.coft_core.suites.by_hand import scored


def figure(value, spread=1.0, better="lower", seed=0, draws=True):
    drawn = np.random.default_rng(seed).normal(value, spread, 2000) if draws else None
    return Figure("gap", "Gap", value, better=better, draws=drawn)


def test_units_are_drawn_with_replacement_and_by_their_number_alone():
    draws = unit_draws(7, 20_000)
    assert draws.shape == (20_000, 7)
    assert set(draws.sum(1)) == {7.0}
    for count in range(4):
        assert np.mean(draws == count) == pytest.approx(binom.pmf(count, 7, 1 / 7), abs=0.01)
    assert np.array_equal(unit_draws(300), unit_draws.__wrapped__(300))
    assert not np.array_equal(unit_draws(300), unit_draws(300, seed=1))
    with pytest.raises(ValueError, match="read-only"):
        unit_draws(300)[0, 0] = 5


def test_the_exact_interval_of_a_share_is_that_of_the_binomial_test_to_the_last_bit():
    for count in (1, 7, 60):
        for hits in {0, 1, count // 3, count}:
            values = [1.0] * hits + [0.0] * (count - hits)
            found = mean_figure("m", "M", range(count), values)
            known = binomtest(hits, count).proportion_ci(0.95, "exact")
            assert (found.low, found.high) == (known.low, known.high)


def test_what_counting_decides_is_what_the_interval_says():
    lots = np.random.default_rng(4)
    for place, shift in enumerate(np.linspace(1.5, 2.5, 60)):
        drawn = np.round(lots.normal(shift, 1.0, RESAMPLES), place % 3)
        one, two = (
            Figure("g", "G", value, better="lower", draws=own) for value, own in ((0.0, 0 * drawn), (1.0, drawn))
        )
        assert (ahead({"a": one, "b": two})["b"] == {"a"}) == (np.nanquantile(drawn, 0.025) > 0)


def test_methods_within_noise_share_ranks_and_those_without_a_value_have_none():
    found = ranks({"a": figure(5.0, seed=1), "b": figure(5.5, seed=2), "c": figure(20.0, seed=3)})
    assert found == {"a": 1.5, "b": 1.5, "c": 3.0}
    found = ranks({"a": Figure("g", "G", None), "b": figure(2.0, draws=False), "c": figure(1.0)})
    assert found == {"b": 2.0, "c": 1.0}
    assert ranks({"a": figure(2.0, draws=False), "b": figure(2.0, draws=False)}) == {"a": 1.5, "b": 1.5}
    one, noise = figure(5.0), figure(5.5, seed=9)
    paired = Figure("gap", "Gap", 5.5, better="lower", draws=one.draws + 0.5)
    assert ranks({"a": one, "b": noise}) == {"a": 1.5, "b": 1.5}
    assert ranks({"a": one, "b": paired}) == {"a": 1.0, "b": 2.0}
    assert ahead({"a": one, "b": paired}) == {"a": set(), "b": {"a"}}


def test_what_is_better_has_the_less_badness_and_the_first_rank():
    for better, value, worse in (
        ("lower", 3.0, 4.0), ("higher", 4.0, 3.0), ("near the middle", 51.0, 48.0), ("near zero", -1.0, 2.0),
    ):  # fmt: skip
        assert badness(value, better) < badness(worse, better)
        assert ranks({"a": figure(worse, 0.1, better), "b": figure(value, 0.1, better)}) == {"a": 2.0, "b": 1.0}


def share(values, units=None):
    return mean_figure("share", "Share", range(len(values)) if units is None else units, values)


def clustered(generator):
    """Forty units of five items whose values share most of their noise; the true mean is 0."""
    return (generator.normal(0, 1, (40, 1)) + generator.normal(0, 0.4, (40, 5))).reshape(-1)


def coverage(units, trials):
    generator = np.random.default_rng(7)
    found = [mean_figure("m", "M", units, clustered(generator).tolist()) for _ in range(trials)]
    return np.mean([row.low <= 0 <= row.high for row in found])


def test_the_interval_over_units_covers_about_95_percent_and_one_over_their_items_far_too_little():
    # The standard error of a coverage of 95 % in 300 trials is 1.3 points.
    assert 0.90 <= coverage(np.repeat(np.arange(40), 5), 300) <= 0.985
    assert coverage(np.arange(200), 60) < 0.75


def test_values_are_summed_by_unit_in_the_order_of_their_first_appearance():
    assert unit_sums(["b", "a", "b"], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).tolist() == [[6.0, 8.0], [3.0, 4.0]]


def test_what_is_unscored_or_not_finite_is_in_no_figure():
    found = share([1.0, None, 0.0, None, 1.0])
    assert found.value == pytest.approx(2 / 3)
    assert (found.n, found.unscored) == (3, 2)
    assert len(found.draws) == RESAMPLES
    for found in (share([]), share([None, None])):
        assert (found.value, found.low, found.high, found.draws, found.n) == (None, None, None, None, 0)
    found = drawn_figure("x", "X", [0, 1], [(-math.inf, 1), (-1.0, 1)], lambda sums: np.exp(-sums[:, 0]), 2)
    assert found.value is None
    assert found.draws is None


def test_a_figure_of_sums_is_that_of_all_items_with_draws_over_units():
    # The ratio of sums is (1 + 2 + 6) / (1 + 1 + 2); a unit alone gives 3/2 or 3.
    found = drawn_figure("r", "R", ["a", "a", "b"], [(1, 1), (2, 1), (6, 2)], lambda s: s[:, 0] / s[:, 1], 3)
    assert found.value == pytest.approx(9 / 4)
    assert set(np.round(found.draws, 6)) == {1.5, 2.25, 3.0}
    assert (found.low, found.high) == (1.5, 3.0)


def test_means_and_shares_are_scaled_with_their_intervals():
    values = [0.2, 0.9, 0.4, 0.7]
    plain, scaled = share(values), mean_figure("m", "M", range(4), values, scale=100.0)
    assert scaled.value == pytest.approx(100 * plain.value)
    assert (scaled.low, scaled.high) == (pytest.approx(100 * plain.low), pytest.approx(100 * plain.high))
    scaled = mean_figure("m", "M", range(5), [1.0, 1.0, 0.0, 1.0, 0.0], scale=100.0)
    assert (scaled.low, scaled.high) == (
        pytest.approx(100 * beta.ppf(0.025, 3, 3)), pytest.approx(100 * beta.ppf(0.975, 4, 2)),
    )  # fmt: skip


def test_less_detail_changes_no_number_and_the_main_figure_is_among_all():
    lots = np.random.default_rng(5)
    found = [
        Outcome(f"i{i}", f"u{i % 12}", {"direction": "stereo", "bias_type": f"b{i % 3}"},
                tuple(scored(*lots.normal(-9, 2, texts), masked=1) for texts in (2, 1, 1)), {}, seed)
        for seed in (0, 1) for i in range(36)
    ]  # fmt: skip
    made = {}
    for detail in ("interval", "draws", "value"):
        with made_with(detail):
            made[detail] = list(CrowsPairs().figures(found))
    told = [[(own.key, own.part, own.value, own.n, own.unscored) for own in each] for each in made.values()]
    assert told[0] == told[1] == told[2]
    assert {own.low for own in (*made["draws"], *made["value"])} == {None}
    assert all(own.draws is None for own in made["value"])
    for whole, less in zip(made["interval"], made["draws"], strict=True):
        assert np.array_equal(whole.draws, less.draws)
    assert any(own.low is not None for own in made["interval"])
    assert CrowsPairs().main_figure(found) in made["interval"]
    assert CrowsPairs().main_figure(found).key == "accuracy_shared"


def test_methods_are_compared_on_the_same_draws_where_both_have_them():
    generator = np.random.default_rng(3)
    values = generator.normal(0, 1, 50)
    first = mean_figure("m", "M", range(50), (values + 0.1).tolist())
    second = mean_figure("m", "M", range(50), values.tolist())
    gap, low, high = difference(first, second)
    # Each varies by 0.14 from draw to draw, and both together, so that their difference does not vary at all.
    assert first.draws.std() > 0.1
    assert (gap, low, high) == (pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1))
    first = share([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    second = share([1.0, 0.0, 1.0, None, 1.0, 1.0])
    weights = unit_draws(6)
    assert second.draws == pytest.approx(weights @ [1, 0, 1, 0, 1, 1] / (weights @ [1, 1, 1, 0, 1, 1]), nan_ok=True)
    assert first.draws == pytest.approx(weights @ [1, 0, 1, 0, 1, 1] / 6)
    known = figure(1.0)
    assert difference(known, Figure("gap", "Gap", None)) is None
    assert difference(known, figure(1.0, draws=False)) is None
    assert difference(known, replace(known, draws=known.draws[:-1])) is None


def test_a_tie_is_a_half_and_two_impossible_texts_are_none():
    for first, second, expected in (
        (-3.0, -4.0, 1.0), (-4.0, -3.0, 0.0), (-3.0, -3.0, 0.5), (-3.0, -inf, 1.0), (-inf, -3.0, 0.0),
        (-inf, -inf, None),
    ):  # fmt: skip
        assert preference(first, second) == expected


def test_the_preferred_text_is_the_only_likeliest_one():
    for values, expected in (
        ([-5.0, -2.0, -3.0], 1), ([-2.0, -5.0, -2.0], None), ([-inf, -9.0], 1), ([-inf, -inf], None), ([-4.0], 0),
    ):  # fmt: skip
        assert preferred(values) == expected


def test_sentences_are_split_behind_the_words_that_they_share_and_keep_their_last():
    for sentences, beginning, rests in (
        (("The old cat sat.", "The old dog sat."), "The old", (" cat sat.", " dog sat.")),
        (("The  old cat", "The old cat"), "The", ("  old cat", " old cat")),
        (("Cats sleep", "Dogs sleep"), "", ("Cats sleep", "Dogs sleep")),
        (("He left", "He left early"), "He", (" left", " left early")),
        (("Cat", "Cats"), "", ("Cat", "Cats")),
    ):
        assert shared_beginning(sentences) == (beginning, rests)
        assert tuple(beginning + rest for rest in rests) == sentences
