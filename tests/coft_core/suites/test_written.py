"""Examples for prompts keep to their limits and depend on the seed alone."""

import pytest

from coft_core.suites.written import fitting

TEXTS = ["x" * length for length in (10, 40, 25, 90, 5, 60, 30, 15)]


@pytest.mark.parametrize("characters", [0, 4, 20, 100, 1000])
@pytest.mark.parametrize("most", [1, 3, 8])
def test_no_more_and_no_longer_examples_are_taken_than_allowed(most, characters):
    chosen = fitting(TEXTS, most, characters)
    assert len(set(chosen)) == len(chosen) <= most
    left = characters - sum(len(TEXTS[place]) for place in chosen)
    assert left >= 0
    # Nothing that would fit is left out while there is room for one more.
    rest = [text for place, text in enumerate(TEXTS) if place not in chosen]
    assert len(chosen) == most or all(len(text) > left for text in rest)


def test_the_seed_alone_decides_which_are_taken():
    assert fitting(TEXTS, 3, 1000) == fitting(TEXTS, 3, 1000)
    assert {tuple(fitting(TEXTS, 3, 1000, seed)) for seed in range(20)} != {tuple(fitting(TEXTS, 3, 1000))}
