"""DiscrimEval: the harness's prompt, log-odds and mixed model, and differences worked out by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import lm_eval.tasks
import numpy as np
import pytest
import yaml
from lm_eval.api.task import ConfigurableTask
from lm_eval.utils import apply_template

from coft_core.suites import mixed_model
from coft_core.suites.base import Outcome
from coft_core.suites.discrim_eval import (
    GENDERS,
    RACES,
    DiscrimEvalExplicit,
    favourable,
    mixed_effects,
)
from coft_core.suites.mixed_model import fit_mixed_model
from tests.coft_core.suites.by_hand import by_key, chosen, items_of, scored

SUITE = DiscrimEvalExplicit()


def record(question=1, age=60, gender="male", race="white", text="May the person keep the dog?"):
    return {
        "filled_template": text, "decision_question_id": question, "age": age, "gender": gender, "race": race,
        "fill_type": "explicit",
    }  # fmt: skip


def with_odds(item, odds):
    """An outcome whose log-odds of yes are ``odds``, a part of yes and of no in capitals."""
    yes, no = 1 / (1 + math.exp(-odds)) / 2, 1 / (1 + math.exp(odds)) / 2
    return chosen(item, *(math.log(p) for p in (0.9 * yes, 0.1 * yes, 0.3 * no, 0.7 * no)))


@pytest.fixture(scope="module")
def harness():
    """The harness's functions, with which it reads a package for fits that nothing else here needs."""
    from lm_eval.tasks.discrim_eval import utils

    return utils


def harness_task():
    """The harness's task, as its file has it."""

    class Loader(yaml.SafeLoader):
        """Reads names of functions as None."""

    Loader.add_constructor("!function", lambda *_: None)
    file = Path(lm_eval.tasks.__file__).parent / "discrim_eval" / "discrim_eval_explicit.yaml"
    return yaml.load(file.read_text(), Loader)


def test_the_prompt_the_answers_and_the_log_odds_are_the_harness_s(harness, tmp_path):
    task, row = harness_task(), record(race="Black", gender="non-binary")
    (item,) = items_of(SUITE, tmp_path, row)
    messages = ConfigurableTask.build_qa_turn(
        None,
        q=apply_template(task["doc_to_text"], row),
        gen_prefix=task["gen_prefix"],
        tgt_delim=task["target_delimiter"],
    )
    assert item.asks[0].prompt == "".join(message.to_text() for message in messages)
    assert list(item.asks[0].texts) == task["doc_to_choice"]
    assert (item.unit, item.facts) == ("1", {"age": 60.0, "gender": "non-binary", "race": "black"})
    (item,) = items_of(SUITE, tmp_path, record())
    values = (-1.3, -4.0, -0.9, -2.2)
    results = [(value, False) for value in values]
    (_, _, expected) = harness.process_results(record(), results)["black_bias"]
    assert favourable(chosen(item, *values), "floor") == pytest.approx(expected)
    outcome = Outcome("a", "a", {}, (scored(-1.0, -2.0, -1.0, -2.0, refused=(2, 3)),))
    assert favourable(outcome, "zero") is None
    assert favourable(outcome, "floor") == 0.0
    half = Outcome("a", "a", {}, (scored(-1.0, -2.0, -1.0, -2.0, refused=(1, 3)),))
    assert favourable(half, "zero") == 0.0


def test_differences_are_those_worked_out_by_hand(tmp_path):
    rows = [
        # question, age, gender, race, log-odds
        (1, 20, "male", "white", 1.0),
        (1, 60, "female", "black", 2.0),
        (1, 100, "non-binary", "asian", 0.5),
        (2, 60, "male", "white", -1.0),
        (2, 20, "female", "black", 1.0),
        (2, 100, "male", "Native American", 0.5),
    ]
    found = items_of(SUITE, tmp_path, *(record(*row[:4]) for row in rows))
    outcomes = [with_odds(item, row[4]) for item, row in zip(found, rows, strict=True)]
    figures = by_key(SUITE.figures(outcomes))
    # Ages are -40, 0, 40, 0, -40, 40 round 60, with standard deviation sqrt(6400 / 5).
    deviation = math.sqrt(6400 / 5)
    slope = (-40 * 1.0 + 40 * 0.5 - 40 * 1.0 + 40 * 0.5) / 6400 * deviation
    expected = {
        "largest_gap": (1.5, 6),  # black 1.5, white 0; genders: women 1.5, men 1/6, others 0.5
        "log_odds": (4 / 6, 6),
        "difference/race: black": (1.5, 4),
        "difference/race: asian": (0.5, 3),
        "difference/race: hispanic": (None, 2),
        "difference/race: native american": (0.5, 3),
        "difference/gender: female": (1.5 - 0.5 / 3, 5),
        "difference/gender: non-binary": (0.5 - 0.5 / 3, 4),
        "age_slope": (slope, 6),
        "answer_mass": (0.5, 6),
    }
    got = {key: (None if f.value is None else pytest.approx(f.value), f.n) for key, f in figures.items()}
    assert got == expected
    assert SUITE.main in figures


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Outcomes of twelve questions about persons of each combination, whose effects vary between questions."""
    lots = np.random.default_rng(3)
    rows, odds = [], []
    for question in range(12):
        own = lots.normal(1.0, 0.8)
        races = dict(zip(RACES, [0.0, *lots.normal(0.4, 0.4, 4)], strict=True))
        genders = dict(zip(GENDERS, [0.0, *lots.normal(0.2, 0.4, 2)], strict=True))
        slope = lots.normal(-0.1, 0.3)
        for age, gender, race in itertools.product((20, 60, 100), GENDERS, RACES):
            rows.append(record(question, age, gender, race))
            odds.append(own + races[race] + genders[gender] + slope * (age - 60) / 40 + lots.normal(0, 0.3))
    found = items_of(SUITE, tmp_path_factory.mktemp("data"), *rows)
    return rows, [with_odds(item, value) for item, value in zip(found, odds, strict=True)]


@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
def test_the_mixed_model_is_the_harness_s_and_its_coefficients_are_the_differences(harness, complete):
    rows, outcomes = complete
    logged = [[(each.log_p, False) for each in outcome.scored().likelihoods] for outcome in outcomes]
    black = [harness.process_results(row, values)["black_bias"] for row, values in zip(rows, logged, strict=True)]
    expected = harness.agg_demographic_bias_regression(black)
    coefficients = {figure.part: figure for figure in mixed_effects(outcomes)}
    assert coefficients["race: black"].value == pytest.approx(expected, abs=1e-4)
    figures = by_key(SUITE.figures(outcomes))
    assert figures["age_slope"].value == pytest.approx(coefficients.pop("age").value, abs=1e-4)
    for part, coefficient in coefficients.items():
        difference = figures[f"difference/{part}"]
        assert difference.value == pytest.approx(coefficient.value, abs=1e-4)
        assert coefficient.low < coefficient.value < coefficient.high
        # Of twelve questions, resampling gives an interval smaller than the model's by about a tenth.
        assert difference.high - difference.low == pytest.approx(coefficient.high - coefficient.low, rel=0.3)


def test_one_question_has_no_mixed_model_and_seeds_make_it_no_more_certain(complete):
    figures = mixed_effects(complete[1][:45])
    assert {(figure.value, figure.n, figure.unscored) for figure in figures} == {(None, 0, 45)}
    assert figures[0].title == "Coefficient of the mixed-effects model (could not be fitted)"
    thrice = mixed_effects([replace(own, seed=seed) for seed in range(3) for own in complete[1]])
    for one, three in zip(mixed_effects(complete[1]), thrice, strict=True):
        assert (three.value, three.low, three.high) == pytest.approx((one.value, one.low, one.high), abs=1e-6)
        assert three.n == one.n == len(complete[1])


def drawn(seed: int, groups: int, spread: float):
    """Values, design ``(N, 4)`` and groups; coefficients differ between groups by ``spread``, the slopes' half."""
    lots = np.random.default_rng(seed)
    names = np.repeat([f"g{number}" for number in range(groups)], 18)
    kind, age = np.tile(np.arange(18) % 3, groups), np.tile(np.linspace(-1.5, 1.5, 18), groups)
    design = np.column_stack([np.ones(len(names)), kind == 1, kind == 2, age]).astype(float)
    own = np.array([1.0, 0.5, -0.2, 0.1]) + lots.normal(0, spread, (groups, 4)) * [1, 0.5, 0.5, 0.5]
    values = (design * np.repeat(own, 18, axis=0)).sum(1) + lots.normal(0, 0.3, len(names))
    return values, design, names


def test_estimates_and_errors_are_those_of_statsmodels_where_it_converges():
    from statsmodels.regression.mixed_linear_model import MixedLM

    values, design, names = drawn(1, 30, 1.0)
    keep = np.random.default_rng(2).random(len(values)) < 0.8  # groups of unlike sizes and designs
    values, design, names = values[keep], design[keep], names[keep]
    theirs = MixedLM(values, design, names, design).fit(method="lbfgs")
    ours = fit_mixed_model(values, design, names)
    assert theirs.converged
    assert ours.coefficients == pytest.approx(theirs.fe_params, abs=1e-4)
    assert ours.errors == pytest.approx(
        np.sqrt(np.diag(np.linalg.inv(precision(values, design, names, theirs)))), rel=1e-3
    )


def precision(values, design, names, fit):
    """X' V^-1 X of the library's covariances, written out."""
    found = np.zeros((design.shape[1],) * 2)
    for name in np.unique(names):
        own = design[names == name]
        found += own.T @ np.linalg.solve(own @ fit.cov_re @ own.T + fit.scale * np.eye(len(own)), own)
    return found


def test_perturbed_inputs_all_converge_to_the_same_figures():
    # Effects do not differ between groups, so that variances of 0 are the estimate: there rounding matters most.
    values, design, names = drawn(3, 8, 0.0)
    plain = fit_mixed_model(values, design, names)
    lots = np.random.default_rng(4)
    for noise in np.logspace(-15, -13, 12):
        found = fit_mixed_model(values * (1 + noise * lots.uniform(-1, 1, len(values))), design, names)
        assert found is not None, noise
        assert found.coefficients == pytest.approx(plain.coefficients, abs=1e-6)
        assert found.errors == pytest.approx(plain.errors, rel=1e-3)


def test_the_second_optimiser_finds_what_the_first_one_missed_and_only_two_failures_are_a_failure(monkeypatch):
    given = drawn(5, 10, 0.5)
    whole = fit_mixed_model(*given)
    _, second = mixed_model.OPTIMISERS
    stopped = {"method": "L-BFGS-B", "options": {"maxiter": 1}}
    monkeypatch.setattr(mixed_model, "OPTIMISERS", (stopped, second))
    again = fit_mixed_model(*given)
    assert again.coefficients == pytest.approx(whole.coefficients, abs=1e-4)
    assert again.errors == pytest.approx(whole.errors, rel=1e-3)
    monkeypatch.setattr(mixed_model, "OPTIMISERS", (stopped, stopped))
    assert fit_mixed_model(*given) is None


def test_what_cannot_be_identified_has_no_fit_and_scale_changes_only_the_units():
    values, design, names = drawn(6, 4, 0.5)
    assert fit_mixed_model(values[:18], design[:18], names[:18]) is None  # a single group
    without = design.copy()
    without[:, 1] = 0.0  # nobody of a kind
    assert fit_mixed_model(values, without, names) is None
    assert fit_mixed_model(design @ np.ones(4), design, names) is None  # nothing is left to vary
    values, design, names = drawn(7, 10, 0.5)
    plain, other = (fit_mixed_model(each, design, names) for each in (values, 1e4 * values + 3e6))
    assert other.coefficients - [3e6, 0, 0, 0] == pytest.approx(1e4 * plain.coefficients, rel=1e-4)
    assert other.errors == pytest.approx(1e4 * plain.errors, rel=1e-4)
