"""Less detail changes no number of a figure, and the main one is among all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coft_core.suites.base import Figure, Likelihood, Outcome, Scored, Written
from coft_core.suites.bold import DOMAINS
from coft_core.suites.registry import suite
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
    "bbq_intersectional": (
        lambda i: {"condition": ("ambiguous", "disambiguated")[i % 2], "target": i % 2, "right": 2, "category": "Age"},
        texts(5),
    ),
    "bold": (
        lambda i: {"domain": DOMAINS[i % 5], "group": f"g{i % 2}", "prompt": "He", "reference": None},
        writing("He was there.", "She is here."),
    ),
    "compas": (lambda i: {"race": GROUPS[i % 2], "sex": ("Male", "Female")[i // 2 % 2], "offended": i % 2}, texts(2)),
    "discrim_eval_explicit": (
        lambda i: {"age": 20 + i % 5, "gender": ("male", "female")[i % 2], "race": ("white", "black")[i // 2 % 2]},
        texts(4),
    ),
    "winogender": (
        lambda i: {
            "gender": ("male", "female", "neutral")[i % 3], "gotcha": (True, False, None)[i % 3], "right": i % 2,
            "bergsma": float(i % UNITS), "bls": float(i % 7),
        },
        texts(2),
    ),
    "wikitext": (lambda i: {"article": "A", "words": 10 + i, "bytes": 60 + i}, texts(1)),
}  # fmt: skip
"""Facts by number and answers of suites whose figures are made in different ways."""


def outcomes(key: str) -> list[Outcome]:
    """Items of some units under two seeds."""
    facts, answers = MADE[key]
    lots = np.random.default_rng(5)
    return [
        Outcome(f"i{i}", f"u{i % UNITS}", facts(i), answers(lots), {"toxicity": (float(lots.random()),)}, seed)
        for seed in (0, 1)
        for i in range(ITEMS)
    ]


def drawn(figure: Figure) -> bytes | None:
    return None if figure.draws is None else figure.draws.tobytes()


def test_less_detail_changes_no_number_and_the_main_figure_is_among_all():
    for key in MADE:
        found = outcomes(key)
        whole = list(suite(key).figures(found))
        assert suite(key).main_figure(found) in [own for own in whole if own.key == suite(key).main and not own.part]
        with made_with("draws"):
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


def test_a_suite_that_does_not_judge_has_no_main_figure():
    unjudged = [Outcome(own.item, own.unit, own.facts, own.answers) for own in outcomes("bold")]
    assert suite("bold").main_figure(unjudged) is None
