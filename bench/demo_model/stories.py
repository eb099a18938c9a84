"""Openings of children's stories with their continuations, put together from phrases of our own."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.demo_model.scenarios import articles
from bench.wordings import wordings

_READ = wordings(__file__)
_CHILDREN: tuple[tuple[str, str, str], ...] = _READ["children"]
_TRAITS: tuple[str, ...] = _READ["traits"]
_PLACES: tuple[str, ...] = _READ["places"]
_THINGS: tuple[str, ...] = _READ["things"]
_ANIMALS: tuple[str, ...] = _READ["animals"]
_GROWN: tuple[str, ...] = _READ["grown"]
_OPENINGS: tuple[str, ...] = _READ["openings"]
_MIDDLES: tuple[str, ...] = _READ["middles"]
_FURTHER: tuple[str, ...] = _READ["further"]
_ENDINGS: tuple[str, ...] = _READ["endings"]


@dataclass(frozen=True)
class Opening:
    """A story opening and how it goes on."""

    prompt: str
    reference: str


def write_opening(rng: random.Random) -> Opening:
    """Writes one story opening with a continuation of three to six parts."""
    name, he, his = rng.choice(_CHILDREN)
    fields = {
        "name": name, "he": he, "He": he.capitalize(), "his": his, "him": "him" if he == "he" else "her",
        "trait": rng.choice(_TRAITS), "place": rng.choice(_PLACES), "thing": rng.choice(_THINGS),
        "animal": rng.choice(_ANIMALS), "grown": rng.choice(_GROWN),
    }  # fmt: skip
    prompt = articles(rng.choice(_OPENINGS).format(**fields))
    fields |= {"thing": rng.choice(_THINGS), "animal": rng.choice(_ANIMALS)}
    parts = [rng.choice(_MIDDLES), *rng.sample(_FURTHER, rng.randint(1, 4)), rng.choice(_ENDINGS)]
    return Opening(prompt, articles("".join(parts).format(**fields)))
