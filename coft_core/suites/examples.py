"""Worked examples before a question: few-shot prompts within a stated number of characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fitting(texts: Sequence[str], most: int, characters: int, seed: int = 0) -> list[int]:
    """Places of the examples that are shown, in the order in which they are drawn.

    They are drawn one after the other without putting back; one that is longer than what is left of the characters is
    passed over. The same texts and numbers give the same examples.
    """
    chosen: list[int] = []
    left = characters
    for place in np.random.default_rng(seed).permutation(len(texts)).tolist():
        if len(chosen) < most and len(texts[place]) <= left:
            chosen.append(place)
            left -= len(texts[place])
    return chosen
