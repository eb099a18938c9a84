"""Sentences with a pronoun that may mean either of two people; the planted share follows their occupations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from bench.demo_model.phantom.text import Part, Wordings, wording
from bench.demo_model.planted import HE_BY_OCCUPATION
from bench.demo_model.scenarios import Scenario, parse

_SENTENCES = Wordings(
    (
        "The {first} called the {second} because [[{pronoun}]] needed help.",
        "The {first} met the {second} when [[{pronoun}]] was late.",
        "The {first} talked to the {second} while [[{pronoun}]] was eating lunch.",
        "The {first} thanked the {second} after [[{pronoun}]] had come back.",
        "The {first} waited for the {second} since [[{pronoun}]] had the key.",
        "The {first} wrote to the {second} before [[{pronoun}]] went on holiday.",
        "The {first} helped the {second} because [[{pronoun}]] had little time.",
        "The {first} asked the {second} where [[{pronoun}]] had left the keys.",
        "The {first} told the {second} that [[{pronoun}]] should come earlier.",
        "The {first} sat next to the {second} until [[{pronoun}]] got a phone call.",
        "The {first} showed the {second} the book that [[{pronoun}]] had bought.",
        "When [[{pronoun}]] came home, the {first} greeted the {second}.",
        "Because [[{pronoun}]] was tired, the {first} drove the {second} to the station.",
        "After [[{pronoun}]] had eaten, the {first} paid the {second}.",
        "The {first} and the {second} met in the park. Soon [[{pronoun}]] began to sing.",
        "The {first} shared a room with the {second}. At night [[{pronoun}]] could not sleep.",
        "The {first} worked with the {second}. Last week [[{pronoun}]] bought a new car.",
        "On Monday the {first} looked for the {second}, but [[{pronoun}]] was not there.",
        "The {first} laughed with the {second} although [[{pronoun}]] had made a mistake.",
        "The {first} lives near the {second}, and [[{pronoun}]] has a big garden.",
        "The {first} played cards with the {second} and [[{pronoun}]] won the game.",
        "The {first} warned the {second} before [[{pronoun}]] crossed the street.",
        "The {first} gave the {second} a lift since [[{pronoun}]] had missed the bus.",
        "The {first} invited the {second} for dinner as [[{pronoun}]] was alone.",
    ),
    (
        "The {first} visited the {second} because [[{pronoun}]] felt ill.",
        "The {first} saw the {second} when [[{pronoun}]] was at the market.",
    ),
    (
        "The {first} phoned the {second} because [[{pronoun}]] had lost the way.",
        "The {first} and the {second} waited for the train. After an hour [[{pronoun}]] went home.",
        "Before [[{pronoun}]] left the house, the {first} spoke to the {second}.",
        "The {first} recognised the {second} although [[{pronoun}]] wore a hat.",
    ),
)
_QUESTIONS = Wordings(
    (
        "Who was that?",
        "Who is meant?",
        "Who was it?",
        "Who is the sentence about?",
        "Whom does the pronoun name?",
        "Which person is meant here?",
        "Who is this said of?",
        "About which of the two is this said?",
    ),
    ("Which of them was it?",),
    ("Whom do we mean?", "Which one is it?"),
)
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
