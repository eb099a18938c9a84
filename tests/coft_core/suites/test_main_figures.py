"""The main figure that a suite makes alone is the one among all its figures, and less detail changes no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coft_core.suites.base import Figure, Likelihood, Outcome, Scored, Written
from coft_core.suites.bold import DOMAINS
from coft_core.suites.registry import SUITES, suite
from coft_core.suites.statistics import made_with

UNITS, ITEMS = 12, 36
GROUPS = ("African-American", "Caucasian")


def texts(*counts: int) -> Callable[[np.random.Generator], tuple[Scored, ...]]:
    """Answers to asks with so many texts, drawn by lot; of some a token is refused."""

    def likelihood(lots: np.random.Generator) -> Likelihood:
        log_p = float(lots.normal(-9, 2))
        return Likelihood(3, log_p, log_p + 0.1, -0.2, int(lots.random() < 0.1))

    return lambda lots: tuple(Scored(tuple(likelihood(lots) for _ in range(count)), 1) for count in counts)


def writing(*words: str) -> Callable[[np.random.Generator], tuple[Written, ...]]:
    """A continuation, drawn among these."""
    return lambda lots: (Written(words[int(lots.integers(len(words)))], 4, "end", (), 0.5, 1),)


MADE: dict[str, tuple[Callable[[int], dict[str, Any]], Callable[[np.random.Generator], Any]]] = {
    "stereoset": (
        lambda i: {"task": ("intrasentence", "intersentence")[i % 2], "bias_type": "race", "target": f"t{i % UNITS}"},
        texts(3),
    ),
    "crows_pairs": (lambda i: {"direction": ("stereo", "antistereo")[i % 2], "bias_type": f"b{i % 3}"}, texts(2, 1, 1)),
    "bbq": (
        lambda i: {"condition": ("ambiguous", "disambiguated")[i % 2], "target": i % 2, "right": 2, "category": "Age"},
        texts(5),
    ),
    "bold": (
        lambda i: {"domain": DOMAINS[i % 5], "group": f"g{i % 2}", "prompt": "He", "reference": None},
        writing("He was there.", "She is here."),
    ),
    "utrecht": (
        lambda i: {"gender": ("female", "male")[i % 2], "nationality": f"n{i % 3}", "company": "A", "decided": i % 2},
        texts(2),
    ),
    "compas": (lambda i: {"race": GROUPS[i % 2], "sex": ("Male", "Female")[i // 2 % 2], "offended": i % 2}, texts(2)),
    "hiring_resume": (
        lambda i: {"race": ("black", "white")[i % 2], "gender": ("female", "male")[i // 2 % 2], "called_back": i % 2},
        texts(2),
    ),
    "bias_in_bios": (lambda i: {"occupation": i % 3, "gender": ("male", "female")[i // 3 % 2]}, texts(28)),
    "discrim_eval_explicit": (
        lambda i: {"age": 20 + i % 5, "gender": ("male", "female")[i % 2], "race": ("white", "black")[i // 2 % 2]},
        texts(4),
    ),
    "winobias": (
        lambda i: {"stereotype": ("pro", "anti")[i % 2], "type": f"type{i % 2 + 1}", "right": i % 2, "gender": "male"},
        texts(2),
    ),
    "winogender": (
        lambda i: {
            "gender": ("male", "female", "neutral")[i % 3], "gotcha": (True, False, None)[i % 3], "right": i % 2,
            "bergsma": float(i % UNITS), "bls": float(i % 7),
        },
        texts(2),
    ),
    "phantom_gaps": (lambda i: {"family": ("race", "gender")[i % 2]}, texts(2, 2)),
    "gsm8k": (lambda i: {"answer": "So it is 7.\n#### 7", "examples": 0}, writing("It is 7.", "#### 8", "nothing")),
    "strategyqa": (lambda i: {"right": i % 2, "lengths": [3, 2]}, texts(2)),
    "strategyqa_chain": (
        lambda i: {"right": i % 2, "solution": "", "examples": 0},
        writing("So the answer is yes.", "So the answer is no.", "Who knows."),
    ),
    "piqa": (lambda i: {"right": i % 2, "lengths": [9, 11]}, texts(2)),
    "wikitext": (lambda i: {"article": "A", "words": 10 + i, "bytes": 60 + i}, texts(1)),
    "eli5": (lambda i: {"references": ["the sky is blue"], "left_out": 0}, writing("The sky is blue.", "Green.")),
}  # fmt: skip
"""Facts by number and answers of a suite; those that are made alike are named once."""

ALIKE = {
    "bbq_intersectional": "bbq", "hiring_resume_informal": "hiring_resume", "gsm8k_five_shot": "gsm8k",
    "discrim_eval_implicit": "discrim_eval_explicit", "arc_easy": "piqa", "phantom_questions": "piqa",
    "wikitext_long": "wikitext", "cnn_dailymail": "eli5", "govreport": "eli5",
}  # fmt: skip

ALONE = {"mauve"}
"""Suites with one figure."""


def outcomes(key: str) -> list[Outcome]:
    """Items of some units under two seeds."""
    facts, answers = MADE[ALIKE.get(key, key)]
    lots = np.random.default_rng(5)
    return [
        Outcome(f"i{i}", f"u{i % UNITS}", facts(i), answers(lots), {"toxicity": (float(lots.random()),)}, seed)
        for seed in (0, 1)
        for i in range(ITEMS)
    ]


def main_of(key: str, figures: list[Figure]) -> Figure:
    return next(figure for figure in figures if figure.key == suite(key).main and not figure.part)


def drawn(figure: Figure) -> bytes | None:
    return None if figure.draws is None else figure.draws.tobytes()


KEYS = [known.key for known in SUITES if known.key not in ALONE]


def test_the_main_figure_made_alone_is_the_one_among_all_and_less_detail_changes_no_number():
    for key in KEYS:
        found = outcomes(key)
        whole = list(suite(key).figures(found))
        among = main_of(key, whole)
        assert_same_figure(suite(key).main_figure(found), among)
        with made_with("draws"):
            assert_same_figure(
                suite(key).main_figure(found, "zero"), main_of(key, list(suite(key).figures(found, "zero")))
            )
            with_draws = list(suite(key).figures(found))
        with made_with("value"):
            values = list(suite(key).figures(found))
        told = [
            [(own.key, own.part, own.value, own.n, own.unscored) for own in each]
            for each in (whole, with_draws, values)
        ]
        assert told[0] == told[1] == told[2], key
        assert {own.low for own in (*with_draws, *values)} == {None}, key
        assert all(own.draws is None for own in values), key
        assert [drawn(own) for own in with_draws] == [drawn(own) for own in whole], key
        assert any(own.low is not None for own in whole), key


def assert_same_figure(alone, among):
    assert alone == among
    assert drawn(alone) == drawn(among)


def test_a_suite_that_does_not_judge_has_no_main_figure():
    unjudged = [Outcome(own.item, own.unit, own.facts, own.answers) for own in outcomes("bold")]
    assert suite("bold").main_figure(unjudged) is None
