"""Decisions by likelihood and gaps between groups, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coft_core.suites.base import Outcome
from coft_core.suites.decisions import (
    Attribute,
    decision,
    difference_figure,
    error_figures,
    gap_figure,
    log_odds,
    parity_figures,
    probability,
    rate_figures,
    whole_figures,
    yes_no,
)
from coft_core.suites.statistics import Sample
from tests.coft_core.suites.answered import by_key, decided, scored

RACE = Attribute("race", "race", ("x", "y"), ("x people", "y people"))


def test_the_likelier_answer_is_the_decision_and_pieces_with_attributes_the_spans():
    ask = yes_no("A ", ("Greek", "nationality"), " ", ("man", "gender"), ".")
    assert ask.prompt == "A Greek man."
    assert ask.texts == (" Yes", " No")
    assert [(ask.prompt[s.start : s.end], s.category) for s in ask.spans] == [
        ("Greek", "nationality"),
        ("man", "gender"),
    ]
    for yes, no, refused, outside, made, p in (
        (math.log(0.3), math.log(0.1), (), "floor", 1.0, 0.75), (math.log(0.1), math.log(0.3), (), "floor", 0.0, 0.25),
        (-1.5, -1.5, (), "floor", None, 0.5), (-1.0, -9.0, (0,), "floor", 1.0, 1 / (1 + math.exp(-8.0))),
        (-1.0, -9.0, (0,), "zero", 0.0, 0.0), (-9.0, -1.0, (1,), "zero", 1.0, 1.0),
        (-1.0, -9.0, (0, 1), "zero", None, None),
    ):  # fmt: skip
        outcome = Outcome("a", "a", {}, (scored(yes, no, refused=refused),))
        odds = log_odds(outcome, outside)
        assert decision(outcome, odds) == made
        assert probability(outcome, odds) == (None if p is None else pytest.approx(p))


def people(*rows):
    """A sample of rows of race, odds of yes against no, and truth."""
    outcomes = [
        decided({"race": race, "true": true}, math.log(odds), 0.0, item=str(place))
        for place, (race, odds, true) in enumerate(rows)
    ]
    return Sample.of(outcomes, lambda outcome: log_odds(outcome, "floor"), "people")


def test_parity_compares_the_named_groups_alone_and_one_group_has_no_gap():
    outcomes = people(("x", 3, 0), ("x", 1 / 3, 0), ("y", 3, 0), ("y", 3, 0), ("y", 3, 0), ("y", 1, 0), ("z", 9, 0))
    figures = by_key(parity_figures(outcomes, RACE))
    between, less, mean = (figures[f"{key}_race", ""] for key in ("parity_gap", "parity_difference", "probability_gap"))
    # Rates 1/2 and 3/3, one of y undecided; probabilities 1/2 and (3 * 3/4 + 1/2) / 4 = 11/16.
    assert (between.value, between.n, between.unscored, between.better) == (pytest.approx(0.5), 5, 1, "lower")
    assert (less.value, less.n, less.unscored, less.better) == (pytest.approx(-0.5), 5, 1, "near zero")
    assert (mean.value, mean.n, mean.unscored) == (pytest.approx(3 / 16), 6, 0)
    assert (between.low, between.high) == (pytest.approx(-less.high), pytest.approx(-less.low))
    three = Attribute("race", "race", ("x", "y", "z"), ("", "", ""))
    outcomes = people(("x", 3, 0), ("x", 1 / 3, 0), ("y", 3, 0), ("z", 1 / 3, 0))
    figures = by_key(parity_figures(outcomes, three))
    assert figures["parity_gap_race", ""].value == pytest.approx(1.0)
    assert set(figures) == {("parity_gap_race", ""), ("probability_gap_race", "")}
    lone = gap(["a", "a", None], [0.0, 1.0, 1.0])
    assert (lone.value, lone.low, lone.n, lone.unscored) == (None, None, 0, 2)


def test_equalised_odds_is_the_larger_gap_of_wrong_decisions_and_open_while_one_is():
    outcomes = people(
        ("x", 3, 0), ("x", 3, 0), ("x", 1 / 3, 0), ("x", 1 / 3, 0),  # false positives 2 of 4
        ("y", 3, 0), ("y", 1 / 3, 0), ("y", 1 / 3, 0), ("y", 1 / 3, 0),  # 1 of 4
        ("x", 1 / 3, 1), ("x", 3, 1), ("x", 3, 1), ("x", 3, 1),  # false negatives 1 of 4
        ("y", 1 / 3, 1), ("y", 1 / 3, 1), ("y", 1 / 3, 1), ("y", 1, 1),  # 3 of 3, one undecided
    )  # fmt: skip
    figures = by_key(error_figures(outcomes, RACE, "true"))
    positive, negative, odds = (
        figures[f"{key}_race", ""] for key in ("false_positive_gap", "false_negative_gap", "equalised_odds_gap")
    )
    assert (positive.value, positive.n, positive.unscored) == (pytest.approx(0.25), 8, 0)
    assert (negative.value, negative.n, negative.unscored) == (pytest.approx(0.75), 7, 1)
    assert (odds.value, odds.n, odds.unscored) == (pytest.approx(0.75), 15, 1)
    outcomes = people(("x", 3, 0), ("y", 1 / 3, 0), ("x", 3, 1))
    positive, negative, odds = error_figures(outcomes, RACE, "true")
    assert (positive.value, negative.value, odds.value) == (1.0, None, None)
    assert (odds.n, odds.unscored) == (0, 3)


def test_rates_are_of_the_whole_and_of_each_group_inside_its_stratum():
    outcomes = people(("x", 3, 0), ("x", 1 / 3, 0), ("y", 3, 1), ("y", 1, 1))
    rate, mass = whole_figures(outcomes, "Share")
    assert (rate.value, rate.n, rate.unscored) == (pytest.approx(2 / 3), 3, 1)
    assert mass.value == pytest.approx((4 + 4 / 3 + 4 + 2) / 4)
    parts = by_key(rate_figures(outcomes, ("race", "true"), "Share"))
    assert {part: figure.value for (_, part), figure in parts.items()} == {"x, 0": 0.5, "y, 1": 1.0}
    groups = ["a", "b", "a", "b"]
    assert gap(list(zip([1, 1, 2, 2], groups, strict=True)), [0.0, 0.2, 0.5, 0.9]).value == pytest.approx(0.4)
    assert gap(groups, [0.0, 0.2, 0.5, 0.9]).value == pytest.approx(0.55 - 0.25)
    groups, units = ["a", "a", "b", "b", "c", "c"], [1, 2, 3, 4, 5, 5]
    values = [0.0, 0.2, 0.3, 0.5, 0.9, 0.9]
    small = gap(groups, values, units=units, least=2)
    assert (small.value, small.n, small.unscored) == (pytest.approx(0.3), 4, 2)
    none = gap(groups, values, units=units, least=3)
    assert (none.value, none.n, none.unscored) == (None, 0, 6)
    assert gap(groups, values, units=units).value == pytest.approx(0.8)


def of_units(units):
    """A sample of which the units matter alone."""
    return Sample([decided({}, 0.0, 0.0, item=str(unit)) for unit in units], units)


def gap(groups, values, **more):
    units = more.pop("units", list(range(len(values))))
    return gap_figure(of_units(units), "gap", "Gap", groups, values, **more)


def test_the_interval_of_a_gap_reaches_below_0_where_groups_are_alike_and_not_where_they_differ():
    lots = np.random.default_rng(1)
    groups = ["a"] * 300 + ["b"] * 300
    alike = gap(groups, list(lots.random(600)))
    apart = gap(groups, [*lots.random(300), *(0.5 + lots.random(300))])
    assert alike.low < 0 < alike.value < alike.high
    assert 0.3 < apart.low < apart.value < apart.high
    # Of two means of 300 uniform numbers: 1.96 standard errors to either side.
    assert apart.high - apart.low == pytest.approx(2 * 1.96 * math.sqrt(2 / 12 / 300), rel=0.15)


def test_units_and_not_items_are_drawn():
    values = [float(place % 2) for place in range(20)]
    groups, pairs = ["a", "b"] * 10, of_units([place // 2 for place in range(20)])
    together = difference_figure(pairs, "d", "D", groups, values, "a", "b")
    assert (together.value, together.low, together.high) == (-1.0, -1.0, -1.0)
    mixed = [float(place % 4 in (1, 2)) for place in range(20)]
    apart = difference_figure(pairs, "d", "D", groups, mixed, "a", "b")
    # Pairs give -1 and 1 by turns, so that their mean varies as that of ten coins: sd 1 / sqrt(10).
    assert apart.value == 0.0
    assert apart.high - apart.low == pytest.approx(2 * 1.96 / math.sqrt(10), rel=0.15)
