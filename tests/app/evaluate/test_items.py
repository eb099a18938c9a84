"""What takes part is drawn in whole units, the same on every machine, and comes back from the store as it was."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluate.items import (
    BATCH_COST,
    WRITING_COST,
    batches,
    item_parts,
    method_digest,
    outcome_bytes,
    outcome_from,
    outcome_key,
    sampled,
    size_of,
    split,
    thinned,
)
from coft_core.suites.base import Choices, Item, Likelihood, Outcome, Scored, Unread, Writing, Written
from coft_core.types import Span

UNITS = st.lists(st.integers(0, 7), min_size=1, max_size=40)


def items_of(units):
    return [
        Item(f"i{place}", f"u{unit}", (Choices("A prompt" + " and more" * (place % 5), (" a", " b")),))
        for place, unit in enumerate(units)
    ]


def units_in(items):
    return {item.unit for item in items}


@given(UNITS, st.integers(1, 45))
def test_a_sample_has_whole_units_in_order_and_no_unit_more_than_it_needs(units, limit):
    items = items_of(units)
    chosen = sampled("s", items, limit)
    assert [item for item in items if item in chosen] == chosen
    assert chosen == [item for item in items if item.unit in units_in(chosen)]
    sizes = Counter(item.unit for item in chosen)
    assert len(chosen) >= min(limit, len(items))
    assert not chosen or len(chosen) - max(sizes.values()) < limit
    assert all(item in sampled("s", items, limit + 7) for item in chosen)
    assert sampled("s", items, None) == items


@given(UNITS, st.integers(0, 5), st.sampled_from([0.1, 0.15, 0.5]))
def test_the_calibration_share_has_whole_units_and_leaves_at_least_one(units, seed, share):
    items = items_of(units)
    shared_out = split("s", items, seed, share)
    inside, outside = ({items[at].unit for at in places} for places in (shared_out.apart, shared_out.evaluated))
    assert sorted([*shared_out.apart, *shared_out.evaluated]) == list(range(len(items)))
    assert outside
    assert not inside & outside
    if len(units_in(items)) > 1:
        assert len(shared_out.apart) >= share * len(items) or len(outside) == 1
    whole = items_of(range(60))
    assert len({split(suite, whole, seed, 0.15).apart for suite in "st" for seed in range(3)}) == 6
    assert split("s", items, 0, 0.0).apart == frozenset()


@given(UNITS)
def test_every_item_is_in_one_batch_and_batches_hold_like_lengths(units):
    items = items_of(units)
    formed = batches(items)
    assert sorted(place for batch in formed for place in batch) == list(range(len(items)))
    sizes = [size_of(items[place]) for batch in formed for place in batch]
    assert sizes == sorted(sizes, reverse=True)
    assert all(len(batch) <= BATCH_COST for batch in formed)
    many = Item("many", "u", tuple(Writing("P", 4) for _ in range(BATCH_COST // WRITING_COST + 1)))
    few = items_of([0, 1])
    assert batches([few[0], many, few[1]]) == [(1,), (2, 0)]


class TwoSpans:
    version = "two"

    def detect(self, text):
        return (Span(0, 2, "gender"), Span(8, 13, "age"))


def test_left_out_spans_grow_with_the_share_and_kept_ones_stay():
    items = [Item(f"i{n}", "u", (Choices("He is a young man", (" x",)), Choices("", (" y",)))) for n in range(400)]
    left = []
    for share in (0.1, 0.4, 1.0):
        read = [thinned(item, TwoSpans(), share) for item in items]
        assert all(item.asks[1].spans == () for item in read)
        left.append({(item.id, span.start) for item in read for span in item.asks[0].spans})
    assert left[2] == set()
    assert left[1] < left[0]
    assert len(left[0]) / 800 == pytest.approx(0.9, abs=0.05)
    assert len(left[1]) / 800 == pytest.approx(0.6, abs=0.05)
    assert thinned(items[0], TwoSpans(), 0.0) is items[0]
    pointed_out = Item("k", "u", (Choices("He is it", (" x",), (), (Span(6, 8, "race"),)),))
    assert thinned(pointed_out, TwoSpans(), 1.0).asks[0] == Choices("He is it", (" x",), ())
    kept = Item("k", "u", (Choices("He is", (" x",), (Span(0, 2, "gender", kept=True),)),))
    assert thinned(kept, TwoSpans(), 1.0) == kept


OUTCOMES = [
    Outcome(
        "i1", "u", {"right": 1, "lengths": [2, 3]},
        (Scored((Likelihood(2, -1.25, -0.1 - 0.2, -0.5, 1, 0, True),
                 Likelihood(1, -math.inf, -3.0, empty=1, fallbacks=(("", "a"),))), 4),),
        seed=2,
    ),
    Outcome(
        "i2", "v", {},
        (Written("said \u201cyes\u201d\n", 5, "stop", (0, 3), 0.25, 1, "", ((0, 4),)),
         Written("", 0, "end"), Unread("It is long.")),
        {"toxicity": (0.5, None, None)}, 2,
    ),
]  # fmt: skip


def test_an_outcome_comes_back_as_it_was_under_any_seed():
    # A data set may hold half of a character.
    for outcome in (*OUTCOMES, Outcome("q1", "q1", {"text": "half \ud800"}, (Unread("It is too long."),), seed=2)):
        check_kept(outcome)


def check_kept(outcome):
    assert outcome_from(outcome_bytes(outcome), 2) == outcome
    assert outcome_bytes(replace(outcome, seed=7)) == outcome_bytes(outcome)
    assert outcome_from(outcome_bytes(outcome), 7) == replace(outcome, seed=7)


def key(item, method="m", suite="s", seed=0, encoding="together", **judges):
    return outcome_key(method, item_parts(suite, item, seed, judges, encoding))


def test_a_key_differs_with_everything_that_an_outcome_depends_on():
    item = Item("i", "u", (Choices("P", (" a", " b")),), {"right": 0})
    keys = [
        key(item),
        key(item, method="n"),
        key(item, suite="t"),
        key(replace(item, id="j")),
        key(replace(item, unit="v")),
        key(replace(item, facts={"right": 1})),
        key(replace(item, asks=(Choices("P", (" a", " c")),))),
        key(replace(item, asks=(Choices("P", (" a", " b"), ()),))),
        key(item, encoding="apart"),
    ]
    assert len(set(keys)) == len(keys)
    assert len({method_digest("p", {}), method_digest("p", {}, "c"), method_digest("p", {"a": "b"})}) == 3


def test_the_seed_plays_a_part_only_where_something_is_written_and_judges_wherever_there_are_any():
    choices = Item("i", "u", (Choices("P", (" a",)),))
    assert key(choices) == key(choices, seed=1)
    assert len({key(choices, **judges) for judges in ({}, {"toxicity": "1"}, {"toxicity": "2"})}) == 3
    writing = Item("i", "u", (Writing("P", 4),))
    assert len({key(writing, seed=seed, **judges) for seed in (0, 1) for judges in ({}, {"toxicity": "1"})}) == 4
