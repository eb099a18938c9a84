"""On the embedded model, whose biases were planted, suites put methods into the order that is known to be true."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import coft_core as cc
from coft_core.suites.base import Likelihood, Outcome, Scored
from coft_core.suites.files import DataError, DataFolder
from coft_core.suites.phantom import PhantomGaps, PhantomQuestions
from coft_core.suites.reading import Reader
from coft_core.suites.statistics import difference, ranks
from coft_core.text.detection import SpanDetector
from tests.coft_core.demo import demo_model

NOWHERE = DataFolder(Path("nowhere"))


def outcome(name, first, second, family="gender"):
    """A pair whose favourable outcomes have the probabilities ``first`` and ``second``."""

    def scored(p):
        return Scored(tuple(Likelihood(1, math.log(q), math.log(q)) for q in (p, 1 - p)))

    return Outcome(name, name, {"family": family}, (scored(first), scored(second)))


def test_the_gap_is_the_mean_distance_of_the_favourable_outcomes_probabilities():
    pairs = [outcome("a", 0.9, 0.5), outcome("b", 0.2, 0.3, "race"), outcome("c", 0.6, 0.6, "race")]
    whole, gender, race = PhantomGaps().figures(pairs)
    assert whole.value == pytest.approx((0.4 + 0.1 + 0.0) / 3)
    assert (gender.part, gender.value, gender.n) == ("gender", pytest.approx(0.4), 1)
    assert (race.part, race.value, race.n) == ("race", pytest.approx(0.05), 2)


def test_the_shipped_file_is_read_where_a_data_folder_has_none():
    assert len(PhantomGaps().items(NOWHERE)) == 60
    assert len(PhantomQuestions().items(NOWHERE)) == 100


def test_a_pair_of_one_is_refused_with_its_line(tmp_path):
    line = '{"prompt": "A man came. They said", "answer": " yes", "others": [" no"], "spans": [[2, 5, "gender"]], '
    (tmp_path / "tuning_demo.jsonl").write_text(f'{line}"pair": "x 1", "graded": false}}\n')
    with pytest.raises(DataError, match=r"tuning_demo.jsonl, line 1: the pair 'x 1' has 1 prompts"):
        PhantomGaps().items(DataFolder(tmp_path))


def read(suite, lams, every):
    """Figures of vanilla decoding and COFT at some lambdas, by name, on some items of a suite."""
    named = {"vanilla": cc.VanillaPolicy(), **{f"coft {lam}": cc.CoftPolicy(lam=lam) for lam in lams}}
    items = suite.items(NOWHERE)[::every]
    asks = [ask for item in items for ask in item.asks]
    columns = Reader(demo_model(), detector=SpanDetector(pipeline=None)).read(asks, [*named.values()], [0] * len(asks))
    figures = {}
    for name, answers in zip(named, columns, strict=True):
        left = iter(answers)
        outcomes = [Outcome(item.id, item.unit, item.facts, tuple(next(left) for _ in item.asks)) for item in items]
        figures[name] = suite.main_figure(outcomes)
    return figures


@pytest.mark.slow
def test_methods_are_ranked_by_how_much_of_the_planted_bias_they_leave():
    gaps = read(PhantomGaps(), (0.3, 0.6, 0.9, 1.0), 2)
    order = sorted(gaps, key=lambda name: gaps[name].value)
    assert order == ["coft 1.0", "coft 0.9", "coft 0.6", "coft 0.3", "vanilla"]
    # What is left there is read off words that no span marks, such as "an" before an elderly man.
    assert gaps["coft 1.0"].value < 0.01
    assert ranks(gaps) == {"coft 1.0": 1, "coft 0.9": 2, "coft 0.6": 3, "coft 0.3": 4, "vanilla": 5}


def test_neutral_questions_are_answered_alike_by_all_of_them():
    accuracies = read(PhantomQuestions(), (0.6, 1.0), 4)
    for name, figure in accuracies.items():
        gap = difference(figure, accuracies["vanilla"])
        assert gap is not None
        assert gap[1] <= 0 <= gap[2], (name, gap)
