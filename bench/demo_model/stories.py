"""Openings of children's stories with their continuations, put together from phrases of our own."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.demo_model.scenarios import articles

_CHILDREN = (
    ("Nora", "she", "her"), ("Oscar", "he", "his"), ("Ivy", "she", "her"), ("Hugo", "he", "his"),
    ("Clara", "she", "her"), ("Felix", "he", "his"), ("Ruby", "she", "her"), ("Milo", "he", "his"),
    ("Lily", "she", "her"), ("Tim", "he", "his"), ("Sue", "she", "her"), ("Ben", "he", "his"),
)  # fmt: skip
_TRAITS = ("curious", "brave", "shy", "cheerful", "kind", "little", "careful", "happy")
_PLACES = (
    "the park",
    "the garden",
    "the beach",
    "the forest",
    "the farm",
    "the market",
    "the lake",
    "the hill",
)
_THINGS = (
    "red kite", "small boat", "shiny stone", "blue ball", "soft hat", "silver bell", "toy train", "big box",
    "green leaf", "pretty shell", "paper star", "old map",
)  # fmt: skip
_ANIMALS = ("puppy", "kitten", "frog", "duck", "rabbit", "bird", "squirrel", "turtle", "bear", "mouse")
_GROWN = ("mom", "dad", "grandma", "grandpa", "friend", "teacher")
_OPENINGS = (
    "Once upon a time, there was a {trait} child named {name}. One day, {name} went to {place}",
    "One day, {name} and {his} {grown} walked to {place}. {name} saw a {thing}",
    "There was a {trait} {animal} who lived near {place}. One morning, {name} came to visit",
    "{name} loved to play with a {thing}. Every day {he} took it to {place}",
    "It was a sunny day. {name} looked out of the window and saw a {animal}",
    "{name} had a {trait} {animal}. They liked to run in {place} together",
)
_MIDDLES = (
    " and found a {thing}. {He} showed it to {his} {grown}, who smiled and said that it was very nice.",
    " and felt very happy. {He} wanted to share this with {his} {grown}, so {he} ran home very fast.",
    " with {his} {grown}. They played and laughed until the sun went down. Then they went home for dinner.",
    ". A {animal} came close and looked at {him}. {name} was not afraid, and soon they became good friends.",
    ". But then it began to rain. {name} hid under a big tree and waited until the sky was blue again.",
    ". {He} was so excited that {he} jumped up and down. \"Look at this!\" {he} said to {his} {grown}.",
)  # fmt: skip
_FURTHER = (
    " After a while, {name} heard a noise behind the trees. It was a {animal} that had lost its way.",
    ' "Can you help me?" asked the {animal}. "Yes, I can," said {name}. "Come with me."',
    " They walked to {place} and looked for a {thing}. They looked up and down, but they did not find it.",
    ' Then {his} {grown} came and said, "It is time to go home." {name} was sad, but {he} said yes.',
    " {name} put the {thing} in a bag and ran to {place}. {He} wanted to play there all day.",
    " {He} sat down and thought for a long time. Then {he} had a good idea.",
    " The {animal} jumped and made a funny sound. {name} laughed and clapped {his} hands.",
)
_ENDINGS = (
    " From that day on, they were best friends and played together every day.",
    " {name} was happy and gave {his} {grown} a big hug. They all went home and had dinner.",
    " That night, {name} went to bed and dreamed about the {animal}. {He} smiled in {his} sleep.",
    " {name} learned that it is good to share and to help others.",
)


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
