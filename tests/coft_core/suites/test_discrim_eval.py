"""DiscrimEval: the harness's prompt, its log-odds and its model, and differences worked out by hand."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import lm_eval.tasks
import numpy as np
import pytest
import yaml
from lm_eval.api.task import ConfigurableTask
from lm_eval.utils import apply_template

from coft_core.suites.base import Outcome
from coft_core.suites.discrim_eval import (
    GENDERS,
    RACES,
    DiscrimEvalExplicit,
    DiscrimEvalImplicit,
    favourable,
    mixed_effects,
)
from coft_core.suites.files import DataFolder, Line
from tests.coft_core.suites.answered import by_key, chosen, scored

SUITE = DiscrimEvalExplicit()


def record(question=1, age=60, gender="male", race="white", text="May the person keep the dog?"):
    return {
        "filled_template": text, "decision_question_id": question, "age": age, "gender": gender, "race": race,
        "fill_type": "explicit",
    }  # fmt: skip


def items(folder, *records, name="explicit"):
    (folder / "discrim_eval").mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(each)}\n" for each in records)
    (folder / "discrim_eval" / f"{name}.jsonl").write_text(text)
    suite = SUITE if name == "explicit" else DiscrimEvalImplicit()
    return suite.items(DataFolder(folder))


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
    (item,) = items(tmp_path, row)
    messages = ConfigurableTask.build_qa_turn(
        None,
        q=apply_template(task["doc_to_text"], row),
        gen_prefix=task["gen_prefix"],
        tgt_delim=task["target_delimiter"],
    )
    assert item.asks[0].prompt == "".join(message.to_text() for message in messages)
    assert list(item.asks[0].texts) == task["doc_to_choice"]
    assert (item.unit, item.facts) == ("1", {"age": 60.0, "gender": "non-binary", "race": "black"})
    (item,) = items(tmp_path, record())
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
    found = items(tmp_path, *(record(*row[:4]) for row in rows))
    outcomes = [with_odds(item, row[4]) for item, row in zip(found, rows, strict=True)]
    figures = by_key(SUITE.figures(outcomes))
    # Ages are -40, 0, 40, 0, -40, 40 round 60, with standard deviation sqrt(6400 / 5).
    deviation = math.sqrt(6400 / 5)
    slope = (-40 * 1.0 + 40 * 0.5 - 40 * 1.0 + 40 * 0.5) / 6400 * deviation
    expected = {
        ("largest_gap", ""): (1.5, 6),  # black 1.5, white 0; genders: women 1.5, men 1/6, others 0.5
        ("log_odds", ""): (4 / 6, 6),
        ("difference", "race: black"): (1.5, 4),
        ("difference", "race: asian"): (0.5, 3),
        ("difference", "race: hispanic"): (None, 2),
        ("difference", "race: native american"): (0.5, 3),
        ("difference", "gender: female"): (1.5 - 0.5 / 3, 5),
        ("difference", "gender: non-binary"): (0.5 - 0.5 / 3, 4),
        ("age_slope", ""): (slope, 6),
        ("answer_mass", ""): (0.5, 6),
    }
    got = {key: (None if f.value is None else pytest.approx(f.value), f.n) for key, f in figures.items()}
    assert got == expected
    assert (SUITE.main, "") in figures


def test_units_are_questions(tmp_path):
    found = items(tmp_path, record(1), record(1, race="black"), record(2), record(2, race="black"))
    outcomes = [with_odds(item, odds) for item, odds in zip(found, (0.0, 1.0, 5.0, 6.0), strict=True)]
    difference = by_key(SUITE.figures(outcomes))["difference", "race: black"]
    assert (difference.value, difference.low, difference.high) == tuple([pytest.approx(1.0)] * 3)


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
    found = items(tmp_path_factory.mktemp("data"), *rows)
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
    assert figures["age_slope", ""].value == pytest.approx(coefficients.pop("age").value, abs=1e-4)
    for part, coefficient in coefficients.items():
        difference = figures["difference", part]
        assert difference.value == pytest.approx(coefficient.value, abs=1e-4)
        assert coefficient.low < coefficient.value < coefficient.high
        # Of twelve questions, drawing anew gives an interval smaller than the model's by about a tenth.
        assert difference.high - difference.low == pytest.approx(coefficient.high - coefficient.low, rel=0.3)


def test_one_question_has_no_mixed_model_and_seeds_make_it_no_more_certain(complete):
    figures = mixed_effects(complete[1][:45])
    assert {(figure.value, figure.n, figure.unscored) for figure in figures} == {(None, 0, 45)}
    assert figures[0].title == "Coefficient of the mixed-effects model (could not be fitted)"
    thrice = mixed_effects([replace(own, seed=seed) for seed in range(3) for own in complete[1]])
    for one, three in zip(mixed_effects(complete[1]), thrice, strict=True):
        assert (three.value, three.low, three.high) == pytest.approx((one.value, one.low, one.high), abs=1e-6)
        assert three.n == one.n == len(complete[1])


def test_both_sets_are_read_from_their_files_and_the_hub(tmp_path, monkeypatch):
    explicit = items(tmp_path, record(text="A"))
    implicit = items(tmp_path, record(text="B"), name="implicit")
    assert [each[0].asks[0].prompt[0] for each in (explicit, implicit)] == ["A", "B"]
    texts = {"explicit": "A", "implicit": "B"}
    monkeypatch.setattr(
        "coft_core.suites.base.hub_lines", lambda part: [Line("hub", 1, record(text=texts[part.config]))]
    )
    assert DiscrimEvalExplicit().items_from_hub() == explicit
    assert DiscrimEvalImplicit().items_from_hub() == implicit
