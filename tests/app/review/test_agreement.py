"""Agreement of reviewers: Cohen's kappa, its interval, and when it stays unscored."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from app.review.agreement import Agreement, cohen_kappa
from app.shared.errors import ServiceError

VERDICTS = ("fair", "unfair", "unclear")


def pairs_of(table: list[list[int]], names: tuple[str, ...] = VERDICTS) -> list[tuple[str, str]]:
    """Pairs of verdicts with given counts: rows are the first reviewer's."""
    cells = product(range(len(table)), repeat=2)
    return [(names[i], names[j]) for i, j in cells for _ in range(table[i][j])]


def kappa_of(table: list[list[int]]) -> Agreement:
    return cohen_kappa(pairs_of(table), VERDICTS)


def test_kappa_and_its_interval_are_those_of_a_published_computation() -> None:
    """Stata's ``kapci`` with analytical limits for 1,932 patients (Statalist, 2009-12, message 320)."""
    found = kappa_of([[1395, 118], [261, 158]])
    assert found.kappa == pytest.approx(0.3411969207847029, abs=1e-12)
    assert found.error == pytest.approx(0.0262913719660408, abs=1e-12)
    assert found.low == pytest.approx(0.2896667786271169, abs=1e-12)
    assert found.high == pytest.approx(0.3927270629422889, abs=1e-12)


@pytest.mark.parametrize("table", [[[75, 1, 4], [5, 4, 1], [0, 0, 10]], [[44, 5, 1], [7, 20, 3], [9, 5, 6]]])
def test_the_standard_error_is_that_of_resampled_reviewers(table: list[list[int]]) -> None:
    found = kappa_of(table)
    counts = np.array(table)
    draws = np.random.default_rng(3).multinomial(counts.sum(), (counts / counts.sum()).ravel(), 4000).reshape(-1, 3, 3)
    shares = draws / counts.sum()
    observed = np.trace(shares, axis1=1, axis2=2)
    expected = (shares.sum(1) * shares.sum(2)).sum(1)
    assert found.error == pytest.approx(np.std((observed - expected) / (1 - expected)), rel=0.06)


@given(st.lists(st.tuples(st.sampled_from(VERDICTS), st.sampled_from(VERDICTS)), min_size=18, max_size=60))
def test_kappa_is_scikit_learns_and_lies_in_its_interval(pairs: list[tuple[str, str]]) -> None:
    found = cohen_kappa(pairs, VERDICTS)
    if not found.scored:
        assert 1 in (len({first for first, _ in pairs}), len({second for _, second in pairs}))
        return
    assert found.kappa == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)), abs=1e-12)
    assert -1 <= found.low <= found.kappa <= found.high <= 1
    mirrored = cohen_kappa([(second, first) for first, second in pairs], VERDICTS)
    assert (mirrored.kappa, mirrored.low) == (pytest.approx(found.kappa), pytest.approx(found.low))


def test_full_agreement_leaves_room_for_the_disagreement_that_was_not_seen() -> None:
    few, many = kappa_of([[5, 0], [0, 5]]), kappa_of([[50, 0], [0, 50]])
    assert few.kappa == many.kappa == 1
    assert few.low < many.low < few.high == 1


def test_chance_agreement_scores_zero() -> None:
    assert kappa_of([[25, 25], [25, 25]]).kappa == pytest.approx(0)


@pytest.mark.parametrize(
    ("table", "needed"), [([[0, 0], [0, 0]], 8), ([[4, 0], [0, 3]], 8), ([[9, 0, 0], [0, 4, 1], [1, 0, 2]], 18)]
)
def test_too_few_targets_stay_unscored_and_the_reason_names_how_many_are_needed(
    table: list[list[int]], needed: int
) -> None:
    found = kappa_of(table)
    assert (found.scored, found.kappa, found.low, found.needed) == (False, None, None, needed)
    assert f"{needed} targets are needed" in found.reason
    assert "Unscored" in found.sentence


@pytest.mark.parametrize("table", [[[30, 0], [0, 0]], [[20, 10], [0, 0]]])
def test_a_reviewer_who_always_says_the_same_stays_unscored(table: list[list[int]]) -> None:
    found = kappa_of(table)
    assert not found.scored
    assert "one and the same verdict" in found.reason


def test_verdicts_that_nobody_gave_change_nothing() -> None:
    two = cohen_kappa(pairs_of([[9, 1], [2, 8]]), ("fair", "unfair"))
    three = kappa_of([[9, 1], [2, 8]])
    assert (two.kappa, two.error, two.needed) == (three.kappa, three.error, three.needed)


def test_an_unknown_verdict_is_refused() -> None:
    with pytest.raises(ServiceError, match="'great' is none of fair, unfair, unclear"):
        cohen_kappa([("fair", "great")], VERDICTS)
