"""Agreement of reviewers: Cohen's kappa, its interval, and when it stays unscored."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa

from app.review.agreement import cohen_kappa, krippendorff_alpha, nominal_alphas
from app.shared.errors import ServiceError

VERDICTS = ("fair", "unfair", "unclear")


def pairs_of(table, names=VERDICTS):
    """Pairs of verdicts with given counts: rows are the first reviewer's."""
    cells = product(range(len(table)), repeat=2)
    return [(names[i], names[j]) for i, j in cells for _ in range(table[i][j])]


def kappa_of(table):
    return cohen_kappa(pairs_of(table), VERDICTS)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(VERDICTS), st.sampled_from(VERDICTS)), min_size=18, max_size=60))
def test_kappa_and_its_interval_are_those_of_statsmodels(pairs):
    found = cohen_kappa(pairs, VERDICTS)
    if not found.scored:
        assert 1 in (len({first for first, _ in pairs}), len({second for _, second in pairs}))
        return
    theirs = cohens_kappa(np.array(found.table), return_results=True)
    assert found.kappa == pytest.approx(theirs.kappa, abs=1e-12)
    assert found.error == pytest.approx(theirs.std_kappa, abs=1e-12)
    assert found.high == pytest.approx(min(1, theirs.kappa_upp), abs=1e-9)
    if found.agreed < found.pairs:
        assert found.low == pytest.approx(max(-1, theirs.kappa_low), abs=1e-9)
    assert -1 <= found.low <= found.kappa


def test_full_agreement_leaves_room_for_disagreement_that_was_not_seen_and_chance_scores_zero():
    few, many = kappa_of([[5, 0], [0, 5]]), kappa_of([[50, 0], [0, 50]])
    assert few.kappa == many.kappa == 1
    assert few.low < many.low < few.high == 1
    assert kappa_of([[25, 25], [25, 25]]).kappa == pytest.approx(0)


def test_too_few_targets_or_a_single_verdict_stay_unscored_and_the_reason_says_what_is_needed():
    for table, needed in (([[0, 0], [0, 0]], 8), ([[4, 0], [0, 3]], 8), ([[9, 0, 0], [0, 4, 1], [1, 0, 2]], 18)):
        found = kappa_of(table)
        assert (found.scored, found.kappa, found.low, found.needed) == (False, None, None, needed)
        assert f"{needed} targets are needed" in found.reason
        assert "Unscored" in found.sentence
    for table in ([[30, 0], [0, 0]], [[20, 10], [0, 0]]):
        found = kappa_of(table)
        assert not found.scored
        assert "one and the same verdict" in found.reason


def test_verdicts_that_nobody_gave_change_nothing_and_unknown_ones_are_refused():
    two = cohen_kappa(pairs_of([[9, 1], [2, 8]]), ("fair", "unfair"))
    three = kappa_of([[9, 1], [2, 8]])
    assert (two.kappa, two.error, two.needed) == (three.kappa, three.error, three.needed)
    with pytest.raises(ServiceError, match="'great' is not one of fair, unfair, unclear"):
        cohen_kappa([("fair", "great")], VERDICTS)
    with pytest.raises(ServiceError, match="'great'"):
        krippendorff_alpha([{"A": "fair", "B": "great"}], VERDICTS)


def units_of(*observers):
    """Targets from one line an observer; a dot is a target that she did not judge."""
    columns = zip(*(line.split() for line in observers), strict=True)
    return [{str(who): value for who, value in enumerate(column) if value != "."} for column in columns]


def alpha_of(units):
    """Alpha without the rule of how many targets are needed."""
    names = sorted({value for unit in units for value in unit.values()})
    shared = [list(unit.values()) for unit in units if len(unit) > 1]
    counts = np.array([[values.count(name) for name in names] for values in shared])
    return float(nominal_alphas(counts, np.ones((1, len(counts)), dtype=np.int64))[0])


def test_alpha_is_that_of_krippendorffs_own_examples():
    for observers, alpha in (
        (("0 1 0 0 0 0 0 0 0 1", "1 1 1 0 0 1 0 0 0 0"), 0.095),
        (("a a b b d c c c e d d a", "b a b b b c c c e d d d"), 0.692),
        (
            (
                "1 2 3 3 2 1 4 1 2 . . .",
                "1 2 3 3 2 2 4 1 2 5 . 3",
                ". 3 3 3 2 3 4 2 2 5 1 .",
                "1 2 3 3 2 4 4 1 2 5 1 .",
            ),
            0.743,
        ),
    ):
        # Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", examples A, B and C for nominal data.
        assert alpha_of(units_of(*observers)) == pytest.approx(alpha, abs=5e-4)


@settings(max_examples=40)
@given(
    st.lists(st.dictionaries(st.sampled_from("ABCD"), st.sampled_from(VERDICTS), min_size=2), min_size=2, max_size=30)
)
def test_alpha_is_one_less_the_ratio_of_disagreements_counted_pair_by_pair(units):
    within, values = 0.0, [value for unit in units for value in unit.values()]
    for unit in units:
        said = list(unit.values())
        within += sum(one != other for one in said for other in said) / (len(said) - 1)
    overall = sum(one != other for one in values for other in values) / (len(values) - 1)
    if overall == 0:
        assert np.isnan(alpha_of(units))
    else:
        assert alpha_of(units) == pytest.approx(1 - within / overall)


def opinions(*counts):
    """Targets by how many of three reviewers say fair and how many unfair."""
    return [
        {name: "fair" if place < fair else "unfair" for place, name in enumerate("ABC"[: fair + unfair])}
        for fair, unfair in counts
    ]


MIXED = opinions(*[(3, 0)] * 8, *[(0, 3)] * 6, *[(2, 1)] * 3, *[(1, 1)] * 2)


def test_the_interval_of_alpha_holds_it_comes_again_and_states_what_it_rests_on():
    found = krippendorff_alpha([*MIXED, {"A": "unclear"}], VERDICTS)
    assert (found.targets, found.verdicts, found.unanimous, found.reviewers) == (19, 55, 14, ("A", "B", "C"))
    assert found.alpha == pytest.approx(alpha_of(MIXED))
    assert -1 < found.low < found.alpha < found.high < 1
    assert krippendorff_alpha(MIXED, VERDICTS).low == found.low
    assert krippendorff_alpha(MIXED, VERDICTS, seed=1).low != found.low
    wider = krippendorff_alpha(MIXED[::2], VERDICTS)
    assert wider.high - wider.low > found.high - found.low
    assert "say the same of 14 of 19 targets" in found.sentence


def test_full_agreement_of_a_team_leaves_room_for_the_disagreement_that_was_not_seen():
    few, many = (krippendorff_alpha(opinions(*[(3, 0), (0, 3)] * n), VERDICTS) for n in (5, 50))
    assert few.alpha == many.alpha == few.high == 1
    assert few.low < many.low < 1


def test_too_few_targets_or_a_single_verdict_leave_alpha_unscored():
    for units, reason in (
        ([], "8 targets are needed, and 0 were"),
        (MIXED[:7], "8 targets are needed, and 7 were judged by at least two reviewers."),
        (opinions(*[(3, 0)] * 20), "one and the same"),
    ):
        found = krippendorff_alpha(units, VERDICTS)
        assert (found.scored, found.low, found.high) == (False, None, None)
        assert reason in found.reason
        assert found.sentence.startswith("Krippendorff's alpha is unscored: ")


def test_resamples_whose_verdicts_are_all_the_same_are_left_out_and_counted():
    found = krippendorff_alpha(opinions(*[(3, 0)] * 9, (2, 1)), VERDICTS)
    share = (9 / 10) ** 10
    assert found.indeterminate / found.resamples == pytest.approx(share, abs=0.04)
    assert f"{found.indeterminate} of 2,000 resamples" in found.sentence
