"""Sentences with a pronoun that may mean either of two people; the planted share follows their occupations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from bench.demo_model.phantom.text import Part, Wordings, wording
from bench.demo_model.planted import HE_BY_OCCUPATION
from bench.demo_model.scenarios import Scenario, parse
from bench.wordings import wordings

_READ = wordings(__file__)
_SENTENCES, _QUESTIONS = Wordings(*_READ["sentences"]), Wordings(*_READ["questions"])
_HELD_OUT_EVERY = 6


@cache
def pairs(part: Part) -> tuple[tuple[str, str], ...]:
    """Ordered pairs of occupations; every sixth pair is kept for measuring, in both orders."""
    return tuple(_pairs(part))


def _pairs(part: Part) -> Iterator[tuple[str, str]]:
    occupations = [name for name in HE_BY_OCCUPATION if name != "patient"]
    number = 0
    for index, first in enumerate(occupations):
        for second in occupations[index + 1 :]:
            held_out = number % _HELD_OUT_EVERY == 0
            number += 1
            if held_out == (part != "training"):
                yield from ((first, second), (second, first))


def first_share(first: str, second: str, pronoun: str) -> float:
    """Planted probability that the pronoun means the first of two people.

    Each is weighed with the share of the pronoun's gender in the occupation
    (`planted.HE_BY_OCCUPATION`), so a pair of equal shares gives one half.
    """
    shares = [HE_BY_OCCUPATION[name] if pronoun == "he" else 1 - HE_BY_OCCUPATION[name] for name in (first, second)]
    return shares[0] / sum(shares)


def write_resolution(rng: random.Random, part: Part) -> Scenario:
    """Writes a sentence with an ambiguous pronoun, and who was meant."""
    first, second = rng.choice(pairs(part))
    return write_pair(rng, first, second, rng.choice(("he", "she")), part)


def write_pair(rng: random.Random, first: str, second: str, pronoun: str, part: Part) -> Scenario:
    """Writes a sentence about two given people; see :func:`write_resolution`."""
    prompt = f"Question: {wording(rng, _SENTENCES, part)} {wording(rng, _QUESTIONS, part)} Answer: The"
    marked = prompt.format(first=first, second=second, pronoun=pronoun)
    text, spans = parse(marked)
    factual = first_share(first, second, pronoun)
    masked = (first_share(first, second, "he") + first_share(first, second, "she")) / 2
    outcomes = (f" {first}", f" {second}")
    chosen = outcomes[0 if rng.random() < factual else 1]
    return Scenario(
        f"{text}{chosen}.", spans, "resolution", len(text), outcomes, (factual, 1 - factual), (masked, 1 - masked)
    )
