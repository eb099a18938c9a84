"""Preferences among texts say nothing where nothing can be said."""

from __future__ import annotations

from math import inf

from coft_core.suites.preferences import preference, preferred, shared_beginning


def test_a_tie_is_a_half_and_two_impossible_texts_are_none():
    for first, second, expected in (
        (-3.0, -4.0, 1.0), (-4.0, -3.0, 0.0), (-3.0, -3.0, 0.5), (-3.0, -inf, 1.0), (-inf, -3.0, 0.0),
        (-inf, -inf, None),
    ):  # fmt: skip
        assert preference(first, second) == expected


def test_the_preferred_text_is_the_only_likeliest_one():
    for values, expected in (
        ([-5.0, -2.0, -3.0], 1), ([-2.0, -5.0, -2.0], None), ([-inf, -9.0], 1), ([-inf, -inf], None), ([-4.0], 0),
    ):  # fmt: skip
        assert preferred(values) == expected


def test_sentences_are_split_behind_the_words_that_they_share_and_keep_their_last():
    for sentences, beginning, rests in (
        (("The old cat sat.", "The old dog sat."), "The old", (" cat sat.", " dog sat.")),
        (("The  old cat", "The old cat"), "The", ("  old cat", " old cat")),
        (("Cats sleep", "Dogs sleep"), "", ("Cats sleep", "Dogs sleep")),
        (("He left", "He left early"), "He", (" left", " left early")),
        (("Cat", "Cats"), "", ("Cat", "Cats")),
    ):
        assert shared_beginning(sentences) == (beginning, rests)
        assert tuple(beginning + rest for rest in rests) == sentences
