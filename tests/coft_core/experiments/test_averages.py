"""Figures keep their meaning on another scale, and averages are of all their parts or of none."""

from __future__ import annotations

import numpy as np
import pytest

from coft_core.errors import InvalidInputError
from coft_core.experiments.averages import average, shown_as
from coft_core.suites.base import Figure
from coft_core.suites.statistics import unit_draws


def figure(value, low=None, high=None, better="lower", draws=None):
    return Figure("f", "F", value, low, high, 10, better=better, draws=draws)


def test_figures_are_turned_and_folded_with_their_intervals():
    turned = shown_as(figure(63.5, 60.0, 66.0, "higher", np.array([63.0, 64.0])), "100 minus")
    assert (turned.value, turned.low, turned.high, turned.better) == (36.5, 34.0, 40.0, "lower")
    assert turned.draws.tolist() == [37.0, 36.0]
    assert shown_as(figure(60.0, better="near the middle"), "distance from half").better == "lower"
    assert shown_as(figure(-0.1, better="near zero"), "size").better == "lower"
    assert shown_as(figure(None, better="near zero"), "size").better == "lower"
    for how, value, low, high, expected in (
        ("distance from half", 63.5, 45.0, 70.0, (0.135, 0.0, 0.2)),
        ("distance from half", 36.5, 30.0, 41.0, (0.135, 0.09, 0.2)), ("size", -0.2, -0.3, 0.1, (0.2, 0.0, 0.3)),
        ("share", 40.0, 30.0, 55.0, (0.4, 0.3, 0.55)), ("percent", 0.05, 0.01, 0.1, (5.0, 1.0, 10.0)),
        ("as it is", 7.0, 6.0, 8.0, (7.0, 6.0, 8.0)),
    ):  # fmt: skip
        shown = shown_as(figure(value, low, high), how)
        assert (shown.value, shown.low, shown.high) == pytest.approx(expected)


def test_an_average_is_the_plain_mean_and_its_interval_is_narrower_than_that_of_its_parts():
    rng = np.random.default_rng(0)
    parts = {}
    for suite in ("a", "b", "c", "d"):
        draws = rng.normal(0.2, 0.05, 2000)
        parts[suite] = figure(0.2, *np.quantile(draws, [0.025, 0.975]), draws=draws)
    mean = average("bias_average", "BiasAvg", parts)
    assert mean.value == pytest.approx(0.2)
    assert (mean.n, mean.unscored) == (4, 0)
    width = parts["a"].high - parts["a"].low
    assert mean.high - mean.low == pytest.approx(width / 2, rel=0.1)


def test_averages_of_suites_are_paired_between_methods_and_not_between_suites():
    # Suites of equally many units are drawn alike; averaged as they come, two such figures would vary as one does.
    draws = unit_draws(50) @ np.linspace(0, 1, 50) / 50
    alone = figure(0.5, draws=draws)
    mean = average("u", "U", {"first": alone, "second": figure(0.5, draws=draws)})
    assert np.std(mean.draws) == pytest.approx(np.std(draws) / np.sqrt(2), rel=0.1)
    base = np.random.default_rng(1).normal(size=2000)
    first = average("u", "U", {"s": figure(0.0, draws=base), "t": figure(0.0, draws=2 * base)})
    second = average("u", "U", {"s": figure(1.0, draws=base + 1), "t": figure(1.0, draws=2 * base + 1)})
    assert np.allclose(second.draws - first.draws, 1.0)


def test_averages_without_a_part_draws_or_one_direction_say_so():
    mean = average("bias_average", "BiasAvg", {"a": figure(0.1), "b": figure(None)})
    assert mean.value is None
    assert (mean.n, mean.unscored) == (1, 1)
    mean = average("u", "U", {"a": figure(0.1), "b": figure(0.3, draws=np.zeros(4))})
    assert (mean.value, mean.low, mean.draws) == (pytest.approx(0.2), None, None)
    with pytest.raises(InvalidInputError, match="one direction"):
        average("u", "U", {"a": figure(0.1), "b": figure(0.1, better="higher")})
    with pytest.raises(InvalidInputError, match="0 figures"):
        average("u", "U", {})


COFT = {
    "LLaMA-2-13B": ((0.26, 0.14, 0.079, 0.118, 0.119), 63.5, 0.129),
    "Mistral-7B-Instruct": ((0.24, 0.12, 0.076, 0.112, 0.113), 64.7, 0.145),
    "LLaMA-2-7B": ((0.25, 0.13, 0.078, 0.116, 0.117), 63.6, 0.150),
    "Mistral-7B-v0.2": ((0.24, 0.12, 0.075, 0.111, 0.111), 64.8, 0.148),
    "Mixtral-8x7B-Instruct": ((0.23, 0.11, 0.073, 0.107, 0.109), 65.9, 0.141),
    "Qwen2-7B": ((0.25, 0.13, 0.077, 0.114, 0.115), 64.3, 0.142),
}
"""COFT's rows of the paper's bias tables: five columns, CrowS-Pairs accuracy, and the BiasAvg of its selections."""


def test_crows_pairs_comes_nearest_to_the_papers_numbers_which_no_average_gives():
    def error(part):
        errors = []
        for five, accuracy, reported in COFT.values():
            parts = {str(place): figure(value) for place, value in enumerate(five)}
            own = part(figure(accuracy, better="higher"))
            errors.append(average("b", "B", parts | ({} if own is None else {"cp": own})).value - reported)
        return float(np.sqrt(np.mean(np.square(errors))))

    def doubled(own):
        half = shown_as(own, "distance from half")
        return Figure("f", "F", 2 * half.value, better="lower")

    ours = error(lambda own: shown_as(own, "distance from half"))
    rest = error(lambda own: shown_as(shown_as(own, "100 minus"), "share"))
    assert ours < min(error(lambda _: None), rest, error(doubled))
    assert ours == pytest.approx(0.011, abs=0.0005)
    qwen, mistral = COFT["Qwen2-7B"], COFT["Mistral-7B-v0.2"]
    worse = all(one > other for one, other in zip(qwen[0], mistral[0], strict=True)) and qwen[1] < mistral[1]
    assert worse
    assert qwen[2] < mistral[2]
