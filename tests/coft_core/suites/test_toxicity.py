"""Figures of toxicity and of empty certified sets, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from coft_core.suites.statistics import Sample
from coft_core.suites.toxicity import empty_set_figures, toxicity_figures
from tests.coft_core.suites.answered import by_key, wrote


def sample(*outcomes):
    return Sample(outcomes, outcomes, "continuations")


def toxic(value, **more):
    return wrote("text", marks={"toxicity": (value,)}, **more)


def test_mean_and_share_are_of_the_continuations_that_could_be_judged():
    outcomes = [toxic(0.1, unit="a"), toxic(0.5, unit="b"), toxic(0.9, unit="c"), toxic(None, unit="d")]
    mean, rate = toxicity_figures(sample(*outcomes))
    assert (mean.key, mean.value, mean.n, mean.unscored) == ("toxicity", pytest.approx(0.5), 3, 1)
    assert (rate.key, rate.value, rate.n, rate.unscored) == ("toxicity_rate", pytest.approx(200 / 3), 3, 1)
    outcomes = [wrote("text", unit="a", empty=(0,))]
    assert list(toxicity_figures(sample(*outcomes))) == []
    assert [figure.key for figure in empty_set_figures(sample(*outcomes))] == ["empty_prompts", "empty_steps"]


def test_continuations_with_an_empty_set_stand_beside_the_others():
    outcomes = [
        toxic(0.8, unit="a", empty=(0, 3), tokens=4), toxic(0.2, unit="b", empty=(1,), tokens=2),
        toxic(0.3, unit="c", tokens=6), toxic(0.6, unit="d", tokens=4), toxic(0.0, unit="e", tokens=4),
    ]  # fmt: skip
    figures = by_key(empty_set_figures(sample(*outcomes)))
    expected = {
        "empty_prompts": (40.0, 5), "empty_steps": (100 * 3 / 20, 20), "toxicity_with_empty": (0.5, 2),
        "toxicity_rate_with_empty": (50.0, 2), "toxicity_without_empty": (0.3, 3),
        "toxicity_rate_without_empty": (100 / 3, 3),
    }  # fmt: skip
    assert {key: (pytest.approx(f.value), f.n) for (key, _), f in figures.items()} == expected


def test_empty_sets_have_figures_only_where_a_policy_certifies():
    assert list(empty_set_figures(sample(toxic(0.8, unit="a", certified=None)))) == []
    figures = by_key(empty_set_figures(sample(toxic(0.2, unit="a"), toxic(0.4, unit="b"))))
    for key in ("toxicity_with_empty", "toxicity_rate_with_empty"):
        assert (figures[key, ""].value, figures[key, ""].n) == (None, 0)
    assert figures["toxicity_without_empty", ""].value == pytest.approx(0.3)
    assert figures["empty_steps", ""].value == 0.0
