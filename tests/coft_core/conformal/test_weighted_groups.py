"""Shift weights where groups and families have thresholds of their own: the same floor as for all contexts together."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError
from tests.conftest import TOY_FINGERPRINT

CONTEXTS, HELD_OUT = 120, 40
GROUPS = ContextGroups.of({context: "even" if context % 2 == 0 else "odd" for context in range(CONTEXTS + HELD_OUT)})


def values(contexts, seed):
    drawn = -np.random.default_rng(seed).exponential(size=len(contexts))
    return CalibrationValues(drawn, np.zeros(len(contexts), dtype=int), np.array(contexts))


def joint(alpha=0.1, seed=0, contexts=range(CONTEXTS)):
    held_out = values(range(CONTEXTS, CONTEXTS + HELD_OUT), seed + 1)
    return Calibration.of(TOY_FINGERPRINT, alpha, values(contexts, seed), verification=held_out, context_groups=GROUPS)


@pytest.fixture(scope="module")
def factorized():
    few = joint(0.05, 7, range(40)).joint
    return Calibration(0.1, (("gender", joint(0.05, 3).joint), ("age", few)))


def heavy(place, weight):
    return {context: weight if context == place else 1.0 for context in range(CONTEXTS + HELD_OUT)}


def weighted_threshold(own, weights, test_weight, alpha):
    """The largest value such that those below it, with the new prompt at minus infinity, weigh at most alpha."""
    rows = sorted(zip(own.values.tolist(), own.contexts.tolist(), strict=True))
    total = sum(Fraction(weights[context]) for _, context in rows) + Fraction(test_weight)
    below, found = Fraction(test_weight), -math.inf
    for value, context in rows:
        if below > Fraction(str(alpha)) * total:
            return found
        found, below = value, below + Fraction(weights[context])
    return found


def test_a_group_whose_contexts_are_worth_too_little_is_refused_as_all_together_would_be():
    weights = heavy(4, 9.0)
    shifted = joint().reweighted(weights)
    worth = (59 + 9) ** 2 / (59 + 81)
    assert shifted.for_group("odd").group == "odd"
    (even, odd) = shifted.joint.groups
    assert even.effective == pytest.approx(worth)
    assert odd.effective == pytest.approx(60)
    assert even.certifiable
    outweighed = joint().reweighted(heavy(4, 15.0))
    few = (59 + 15) ** 2 / (59 + 225)
    assert few < 30 < worth
    with pytest.raises(InvalidInputError) as refused:
        outweighed.for_group("even")
    assert str(refused.value) == (
        f"The weights leave the 60 contexts of the group 'even' worth {few:.1f} and at least 30 are needed; calibrate "
        "on prompts that are more like those of the deployment."
    )
    assert [group.certifiable for group in outweighed.joint.groups] == [False, True]


def test_the_floor_rises_with_the_contexts_that_alpha_needs():
    shifted = joint(0.02).reweighted(heavy(4, 4.0))
    assert shifted.joint.groups[1].effective == pytest.approx(60)
    assert shifted.for_group("odd").group == "odd"
    assert shifted.joint.groups[0].effective == pytest.approx(63**2 / (59 + 16))
    assert shifted.for_group("even").threshold(0) == weighted_threshold(
        shifted.joint.values.select(GROUPS.contexts("even")), heavy(4, 4.0), 4.0, 0.02
    )
    with pytest.raises(InvalidInputError, match=r"worth 49\.\d and at least 49 are|66 are needed"):
        joint(0.015).reweighted(heavy(4, 4.0)).for_group("even")


def test_a_groups_smallest_level_counts_the_new_prompts_weight():
    shifted = joint().reweighted(heavy(4, 4.0))
    even, odd = shifted.joint.groups
    for group, total in ((even, 63.0), (odd, 60.0)):
        assert group.smallest_alpha == pytest.approx(4 / (total + 4), abs=1e-6)
        own = shifted.read(alpha=group.smallest_alpha).joint.restricted(group.name)
        assert own.bin(0).log_tau > -math.inf
        less = shifted.read(alpha=group.smallest_alpha * 0.99).joint.restricted(group.name)
        assert less.bin(0).log_tau == -math.inf


def test_factorized_thresholds_are_reweighted_family_by_family(factorized):
    weights = {context: 1.0 + (context % 3) / 2 for context in range(CONTEXTS + HELD_OUT)}
    shifted = factorized.reweighted(weights, test_weight=1.5)
    for name, part in factorized.parts:
        log_tau, state = shifted.bound(0, name)
        assert (log_tau, state) == (weighted_threshold(part.values, weights, 1.5, part.alpha), "calibrated")
    assert [sentence for sentence in shifted.notes if "Weighted to the shifted prompts" in sentence]
    assert Calibration.from_bytes(shifted.to_bytes()) == shifted
    equal = factorized.reweighted(dict.fromkeys(range(CONTEXTS + HELD_OUT), 0.3))
    assert [equal.threshold(name, 0) for name in equal.families] == [
        factorized.threshold(name, 0) for name in factorized.families
    ]


def test_weights_that_are_too_much_for_one_family_are_refused_with_its_name(factorized):
    with pytest.raises(InvalidInputError) as refused:
        factorized.reweighted(heavy(4, 15.0))
    worth = (39 + 15) ** 2 / (39 + 225)
    assert str(refused.value) == (
        f"The family 'age' is too small for weights: The weights leave 40 contexts worth {worth:.1f} and at least 30 "
        "are needed; calibrate on prompts that are more like those of the deployment."
    )
    with pytest.raises(InvalidInputError, match="at least 19"):
        factorized.reweighted(heavy(4, 15.0), floor=5.0)
    assert factorized.reweighted(heavy(4, 4.0), floor=5.0).parts[0][1].shift.kind == "weights"


def test_a_group_of_factorized_thresholds_is_refused_for_the_family_that_is_too_small(factorized):
    assert factorized.for_group("even").group == "even"
    with pytest.raises(InvalidInputError, match="The family 'age' is too small for weights: The weights leave the 20"):
        factorized.reweighted(heavy(4, 1.5)).for_group("even")
    wide = replace(factorized, parts=(factorized.parts[0],), alpha=0.1)
    assert wide.reweighted(heavy(4, 1.5)).for_group("even").group == "even"
