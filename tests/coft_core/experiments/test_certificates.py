"""Empty sets are counted by prompt and by step; thresholds are held against chains and prompts they have not seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coft_core.conformal.calibration import Calibration
from coft_core.experiments.certificates import (
    certified_share,
    coverage_elsewhere,
    empty_prompts,
    empty_steps,
    fallback_rise,
    toxic_fallbacks,
    with_fallbacks,
)
from coft_core.suites.base import Likelihood, Outcome, Scored, Written
from coft_core.suites.judges import Judge
from tests.coft_core.levels import by_step
from tests.conftest import TOY_FINGERPRINT


def scored(*texts):
    return Scored(tuple(Likelihood(tokens, -1.0, -1.0, empty=empty) for tokens, empty in texts))


def written(tokens, empty=(), certified=None):
    return Written("text", tokens, "length", tuple(empty), certified)


def outcome(number, *answers):
    return Outcome(f"item {number}", f"unit {number}", {}, answers)


OUTCOMES = [
    outcome(1, scored((3, 1), (2, 0))),
    outcome(2, scored((5, 0))),
    outcome(3, written(10, (0, 4), 0.2)),
    outcome(4, written(30, (), 0.1), written(0, (), None)),
]


def test_prompts_and_steps_count_alike_and_shares_are_over_written_steps():
    assert empty_prompts(OUTCOMES).value == pytest.approx(50.0)
    steps = empty_steps(OUTCOMES)
    assert steps.value == pytest.approx(100 * 3 / 50)
    assert (steps.n, steps.what) == (50, "steps")
    share = certified_share(OUTCOMES)
    assert share.value == pytest.approx((10 * 0.2 + 30 * 0.1) / 40)
    assert share.n == 40
    assert certified_share(OUTCOMES[:2]).value is None


def test_a_fallback_token_is_toxic_if_the_text_becomes_toxic_with_it_and_not_before():
    toxicity = {"He": 0.2, "He is": 0.4, "He is vile": 0.9, "He is vile!": 0.95, "You fool": 0.7}
    judge = Judge("toxicity", "1", lambda texts: [toxicity[text] for text in texts])
    given = Scored((Likelihood(2, -1.0, -1.0, empty=2, fallbacks=(("", "You fool"), ("He", "He is"))),))
    told = Written("He is vile!", 5, "end", (1, 2, 3), 0.1, fallbacks=((2, 5), (5, 10), (10, 11)))
    nothing = written(3, (1,), 0.2)
    found = with_fallbacks([outcome(1, given, told), outcome(2, nothing)], judge)
    # Of five tokens, "You fool" and "vile" make a text toxic; "!" stands in one that is toxic already.
    assert toxic_fallbacks(found).value == pytest.approx(100 * 2 / 5)
    assert fallback_rise(found).value == pytest.approx((0.7 + 0.2 + 0.2 + 0.5 + 0.05) / 5)
    assert (toxic_fallbacks(found).n, found[1].marks) == (5, {})
    assert toxic_fallbacks(found[1:]).value is None


def calibration(generator, contexts=400, steps=20, shift=0.0, checked=100):
    """Values that are independent from step to step; the last contexts are kept apart."""
    values = -generator.exponential(1.0, (contexts, steps)) - shift
    kept, apart = range(contexts - checked), range(contexts - checked, contexts)
    whole = by_step(values)
    return Calibration.of(TOY_FINGERPRINT, 0.1, whole.select(kept), whole.select(apart), bin_spacing="even")


def test_coverage_elsewhere_is_as_asked_for_on_prompts_of_the_same_kind_and_falls_on_harder_ones():
    generator = np.random.default_rng(0)
    own = calibration(generator)
    same = coverage_elsewhere(own, calibration(generator))
    harder = coverage_elsewhere(own, calibration(generator, shift=1.0))
    assert same.contexts == harder.contexts == 400
    assert same.low < 0.9 < same.high
    # A value below log(0.1) has probability 0.1; shifted by 1, one of exp(1 + log 0.1).
    assert harder.coverage == pytest.approx(1 - 0.1 * math.e, abs=0.06)
