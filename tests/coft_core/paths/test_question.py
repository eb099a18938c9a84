"""A question about paths: unscored ones are in no share, and when it is decided hangs on the outcomes alone."""

import numpy as np
import pytest

from coft_core.conformal.betting import bet_on_difference
from coft_core.conformal.coverage import clopper_pearson
from coft_core.paths.question import compare, decided_after, estimate

ALPHA = 0.05


def drawn(share, scored=1.0, number=300, seed=0):
    generator = np.random.default_rng(seed)
    return [bool(generator.random() < share) if generator.random() < scored else None for _ in range(number)]


def test_undecided_paths_are_counted_in_no_share_and_later_ones_do_not_move_a_decision():
    found = estimate([True, None, False, True, None])
    assert (found.yes, found.no, found.unscored, found.share) == (2, 1, 2, pytest.approx(2 / 3))
    assert (found.low, found.high) == clopper_pearson(2, 3)
    nothing = estimate([None, None])
    assert (nothing.share, nothing.low, nothing.high, nothing.unscored) == (None, None, None, 2)
    first, second = drawn(0.7, seed=1), drawn(0.4, seed=2)
    after = decided_after([first, second], ALPHA)
    for more in (0, 1, 7, 64):
        assert decided_after([first[: after + more], second[: after + more]], ALPHA) == after
    assert decided_after([first[: after - 1], second[: after - 1]], ALPHA) is None
    first, second = drawn(0.8, 0.5, seed=3), drawn(0.3, 0.9, seed=4)
    (found,) = compare([first, second], ALPHA)
    assert found.decided_after == decided_after([first, second], ALPHA) > found.bet.decided_after


def test_a_pair_has_the_first_scored_path_of_either_world_since_the_pair_before():
    first = [True, None, None, False, True, None, True]
    second = [None, False, True, True, None, None, False]
    # Paths 1 and 2, 4 and 4, 5 and 7: the third path of the second world and the last of the first are in none.
    (found,) = compare([first, second], ALPHA)
    assert found.bet == bet_on_difference([1, 0, 1], [0, 1, 0], ALPHA)


def test_all_worlds_must_be_decided_and_share_the_risk_and_one_has_nothing_to_decide():
    typed, far, near = drawn(0.8, seed=5), drawn(0.3, seed=6), drawn(0.8, seed=7)
    found = compare([typed, far, near], ALPHA)
    assert [item.alpha for item in found] == [ALPHA / 2] * 2
    assert [item.decided_after is None for item in found] == [False, True]
    assert decided_after([typed, far, near], ALPHA) is None
    both = compare([typed, far, drawn(0.2, seed=8)], ALPHA)
    assert decided_after([typed, far, drawn(0.2, seed=8)], ALPHA) == max(item.decided_after for item in both)
    assert compare([drawn(0.5)], ALPHA) == ()
    assert decided_after([drawn(0.5)], ALPHA) is None


@pytest.mark.parametrize("twins", [False, True])
def test_false_alarms_stay_rare_where_many_paths_are_unscored(twins):
    """Twins have one answer, where both are scored."""
    alarms = 0
    for run in range(200):
        first, second = drawn(0.5, 0.4, 150, 2 * run), drawn(0.5, 0.8, 150, 2 * run + 1)
        if twins:
            answers = drawn(0.5, 1.0, 150, 1000 + run)
            first, second = (
                [a if item is not None else None for a, item in zip(answers, side, strict=True)]
                for side in (first, second)
            )
        alarms += decided_after([first, second], 0.1) is not None
    assert alarms / 200 <= 0.1 + 3 * np.sqrt(0.09 / 200)
