"""Outcomes are read from the store once, as long as nothing was added and there is room for them."""

from __future__ import annotations

import pytest

from app.evaluate.items import outcome_bytes
from app.evaluate.kept import KeptOutcomes
from tests.app.evaluate.made import question


class Store:
    """Items of two methods under two seeds, which have an outcome in common; counts how often it is read."""

    def __init__(self):
        self.rows = [("Vanilla", 0, "a"), ("Vanilla", 1, "a"), ("COFT", 0, "a"), ("COFT", 0, "b")]
        self.contents = {"a": outcome_bytes(question("q0", True)), "b": outcome_bytes(question("q1", False))}
        self.read = 0

    def done(self, number, suite):
        return len(self.rows)

    def outcomes(self, number, suite):
        self.read += 1
        return self.rows, self.contents


@pytest.fixture
def store():
    return Store()


def test_what_was_read_is_read_again_only_after_something_was_added(store):
    kept = KeptOutcomes(store)
    found = kept.of(1, "questions")
    assert found["Vanilla"] == (question("q0", True), question("q0", True, seed=1))
    assert found["COFT"] == (question("q0", True), question("q1", False))
    assert kept.of(1, "questions") is found
    assert store.read == 1
    store.rows.append(("COFT", 1, "b"))
    assert kept.of(1, "questions")["COFT"][-1] == question("q1", False, seed=1)
    assert store.read == 2
    kept.of(2, "questions")
    assert store.read == 3


def test_no_more_outcomes_stay_in_memory_than_there_is_room_for(store):
    for most, numbers, read in ((3, (1, 1), 2), (4, (1, 1), 1), (4, (1, 2, 1, 2), 4), (8, (1, 2, 1, 2), 2)):
        kept, store.read = KeptOutcomes(store, most), 0
        for number in numbers:
            assert len(kept.of(number, "questions")["COFT"]) == 2
        assert store.read == read
