"""Impact ratios: rates, exact intervals, small and unknown groups."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from app.shared.errors import ServiceError
from app.shared.impact import ImpactTable, impact_csv, impact_table, ratio_interval


def outcomes(**groups: tuple[int, int]) -> list[tuple[str | None, bool]]:
    """Selected and total of each group."""
    return [(name, i < selected) for name, (selected, total) in groups.items() for i in range(total)]


def row(table: ImpactTable, group: str):
    return next(item for item in table.rows if item.group == group)


def test_the_ratio_is_the_rate_over_the_highest_rate() -> None:
    """The example of the rule's own text: 'selection rate for category / rate of the most selected category'."""
    table = impact_table(outcomes(male=(480, 800), female=(240, 600)))
    assert (row(table, "male").rate, row(table, "female").rate) == (0.6, 0.4)
    assert (row(table, "male").ratio, row(table, "female").ratio) == (1.0, pytest.approx(2 / 3))
    assert (row(table, "male").reference, row(table, "female").reference) == (True, False)
    assert [item.below_four_fifths for item in table.rows] == [False, True]
    assert table.lowest == row(table, "female")


def test_a_ratio_of_nobody_has_an_interval_that_begins_at_0_and_holds_what_both_exact_rates_allow() -> None:
    none, some = (row(impact_table(outcomes(first=(0, 10), second=(8, 10))), name) for name in ("first", "second"))
    low, high = ratio_interval(none, some)
    greatest = binomtest(0, 10).proportion_ci(0.975, "exact").high / binomtest(8, 10).proportion_ci(0.975, "exact").low
    assert (low, high) == (0.0, pytest.approx(greatest))
    assert ratio_interval(some, none) is None


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1))
def test_intervals_are_the_exact_ones_and_ratios_lie_between_0_and_1(groups: dict[str, tuple[int, int]]) -> None:
    clean = {name: (min(k, n), n) for name, (k, n) in groups.items()}
    table = impact_table(outcomes(**clean))
    for item in table.rows:
        exact = binomtest(item.selected, item.total).proportion_ci(0.95, "exact")
        assert (item.low, item.high) == (pytest.approx(exact.low), pytest.approx(exact.high))
        assert item.low <= item.rate <= item.high
        assert item.ratio is None or 0 <= item.ratio <= 1
    if any(k for k, _ in clean.values()):
        assert any(item.reference and item.ratio == 1 for item in table.rows)
    assert sum(item.total for item in table.rows) == sum(n for _, n in clean.values())


def test_a_small_group_is_marked_and_can_be_left_out_so_that_it_sets_no_reference() -> None:
    data = outcomes(a=(30, 60), b=(20, 39), tiny=(1, 1))
    kept, left_out = impact_table(data), impact_table(data, exclude_small=True)
    assert (row(kept, "tiny").small, row(kept, "tiny").ratio, row(kept, "a").ratio) == (True, 1.0, 0.5)
    assert "allows" in row(kept, "tiny").note
    assert row(left_out, "tiny").ratio is None
    assert row(left_out, "b").ratio == 1.0
    assert (row(left_out, "tiny").total, row(left_out, "tiny").rate) == (1, 1.0)
    assert left_out.excluded
    assert "tiny (1 of 1 selected)" in left_out.notes[0]
    assert not row(impact_table(outcomes(a=(5, 98), b=(1, 2))), "b").small, "exactly two per cent"


def test_nobody_selected_and_unknown_groups_are_in_no_ratio_and_said() -> None:
    table = impact_table(outcomes(a=(0, 5), b=(0, 5)))
    assert [item.ratio for item in table.rows] == [None, None]
    assert table.lowest is None
    assert "Nobody was selected" in table.notes[0]
    table = impact_table([*outcomes(a=(1, 2)), (None, True), ("  ", True)])
    assert table.unknown == 2
    assert [item.group for item in table.rows] == ["a"]
    assert table.notes[0].startswith("2 outcomes without a known group")
    assert impact_csv(table).splitlines()[-1].startswith("unknown,2,")
    with pytest.raises(ServiceError, match="No outcome"):
        impact_table([(None, True)])


def test_the_csv_holds_every_group_and_is_harmless_in_a_spreadsheet() -> None:
    rows = list(csv.DictReader(io.StringIO(impact_csv(impact_table([("=cmd()", True), ("b", False)])), newline="")))
    assert [item["group"] for item in rows] == ["'=cmd()", "b"]
    assert [(float(item["selection_rate"]), float(item["impact_ratio"])) for item in rows] == [(1.0, 1.0), (0.0, 0.0)]
