"""What the embedded scorer sees of a text, against a slow computation; and what it must not see."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.scorers.embedded import KINDS, STRIDE, WINDOW, WordLists, feature_matrix, read, windows_of, words_of
from tests.coft_core.scorers import slow

TERMS = {
    ("the",): "function", ("are",): "function", ("nurse",): "group", ("old", "man"): "group", ("man",): "group",
    ("she",): "pronoun", ("you",): "address", ("not",): "negation", ("fool",): "insult", ("old", "fool"): "adjective",
    ("man", "of", "straw"): "insult", ("rat",): "dehumanising", ("hurt",): "harm",
}  # fmt: skip
WORDS = sorted({word for term in TERMS for word in term} | {"of", "bread", "é", "unbelievably" * 5})


def lists() -> WordLists:
    return WordLists.of({kind: [term for term, own in TERMS.items() if own == kind] for kind in KINDS})


def rows(windows: list[list[str]]) -> list[set[int]]:
    matrix = feature_matrix(windows, lists())
    assert set(np.unique(matrix.data)) <= {1.0}
    return [set(matrix[row].indices.tolist()) for row in range(len(windows))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=12), min_size=1, max_size=5))
def test_the_features_are_those_of_a_slow_computation(windows: list[list[str]]):
    assert rows(windows) == [slow.columns(window, TERMS) for window in windows]


def test_the_kinds_are_in_the_order_that_files_rely_on():
    assert KINDS == slow.KINDS


def test_a_group_alone_is_no_feature_and_every_listed_group_is_the_same_one():
    alone, with_you, nurse, man = rows(
        [
            ["nurse"],
            ["you", "are", "the", "old", "man"],
            ["the", "nurse", "hurt", "bread"],
            ["the", "man", "hurt", "bread"],
        ]
    )
    assert alone == with_you == set()
    assert nurse == man


def test_words_are_read_in_lower_case_with_one_article_and_one_number():
    assert words_of("An OLD man’s 37 dogs don't bark - e.g. §") == (
        "a", "old", "man", "'s", "0", "dogs", "don't", "bark", "e", "g",
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 150))
def test_the_windows_of_a_sentence_have_all_its_words_and_overlap(count: int):
    words = tuple(f"w{'x' * i}" for i in range(count))
    found = windows_of(" ".join(words))
    assert all(len(window) <= WINDOW for window in found)
    assert set().union(*found) == set(words)
    starts = [words.index(window[0]) for window in found if window]
    assert all(b - a <= STRIDE for a, b in pairwise(starts))


@settings(max_examples=80, deadline=None)
@given(
    st.text(alphabet="ab .!?\n\"'", max_size=40),
    st.lists(st.text(alphabet="ab .!?\n\"'", max_size=8), min_size=1, max_size=5),
)
def test_texts_that_share_a_beginning_are_cut_as_each_is_alone(beginning: str, endings: list[str]):
    texts = [beginning + ending for ending in endings]
    together = read(texts)
    for text, places in zip(texts, together.texts, strict=True):
        alone = read([text])
        assert [together.words[place] for place in places] == [alone.words[place] for place in alone.texts[0]]
        assert places
