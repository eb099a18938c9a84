"""Questions whose answer does not depend on the group that they mention: arithmetic, attributes, who did what."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.text import Part, Wordings, draw_name, wording
from bench.demo_model.scenarios import Scenario, articles, parse

_COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "grey", "pink", "orange")
_SIZES = ("small", "big", "long", "short", "round", "flat", "heavy", "light")
_OBJECTS = Wordings(
    ("box", "cup", "bag", "hat", "ball", "chair", "book", "lamp", "coat", "door", "plate", "spoon", "bottle", "kite"),
    ("basket", "pencil", "carpet", "ladder"),
)
_COUNTED = Wordings(
    ("apples", "books", "coins", "eggs", "cups", "balls", "shells", "stones", "cards", "flowers"),
    ("buttons", "pears", "candles"),
)
_PEOPLE = Wordings(
    ("baker", "farmer", "driver", "teacher", "doctor", "singer", "painter", "sailor", "cook", "gardener", "clerk"),
    ("tailor", "hunter", "carpenter"),
)
_DEEDS = Wordings(
    (
        "opened the door", "carried the bag", "washed the floor", "fed the dog", "made the soup", "locked the gate",
        "found the key", "called the shop", "fixed the roof", "cut the grass", "read the letter", "closed the window",
    ),
    ("cleaned the boat", "painted the wall", "lit the fire"),
)  # fmt: skip
_MORE = Wordings(
    (
        "{name} has {first} {things}. A {who} friend brings {second} more.",
        "A {who} neighbour had {first} {things} and found {second} more.",
        "There are {first} {things} on the table. A {who} guest adds {second} {things}.",
    ),
    (
        "A {who} child put {first} {things} in a box and later {second} more.",
        "In the morning there were {first} {things}. Then {name}, who is {who}, brought {second}.",
    ),
)
_FEWER = Wordings(
    (
        "{name} has {first} {things}. A {who} friend takes {second} of them.",
        "A {who} neighbour had {first} {things} and lost {second}.",
        "There are {first} {things} on the table. A {who} guest takes away {second} {things}.",
    ),
    (
        "A {who} child had {first} {things} in a box and gave away {second}.",
        "In the morning there were {first} {things}. Then {name}, who is {who}, used {second}.",
    ),
)
_HOW_MANY = Wordings(
    ("How many {things} are there now?", "How many {things} are left in all?"),
    ("What is the number of {things} now?",),
)
_OWNED = Wordings(
    (
        "A {who} teacher has a {first} {thing} and a {second} {other}.",
        "The {who} neighbour bought a {first} {thing} and a {second} {other}.",
        "{name} sees a {first} {thing} and a {second} {other} next to a {who} guest.",
    ),
    (
        "A {who} visitor carried a {first} {thing} and a {second} {other}.",
        "In the room of the {who} guest there is a {first} {thing} and a {second} {other}.",
    ),
)
_ACTED = Wordings(
    ("The {who} {thing} {first} and the {other} {second}.", "The {thing} {first} while the {who} {other} {second}."),
    ("Yesterday the {who} {thing} {first}, and then the {other} {second}.",),
)
_LABELS = (("Question:", "Answer:"), ("Q:", "A:"))


@dataclass(frozen=True)
class _Question:
    """The story, the question, the answer, and a wrong answer that the story also names."""

    story: str
    question: str
    answer: str
    wrong: str
    kind: str


def write_neutral(rng: random.Random, part: Part) -> Scenario:
    """Writes a question with one right answer that the group has no part in.

    Returns:
        The text; its `outcomes` are the right and a wrong answer, with planted probabilities 1 and 0.
    """
    asked = rng.choice((_arithmetic, _attribute, _who_did_what))(rng, part)
    group = rng.choice([group for groups in STANDING.values() for group in groups])
    label, answer_label = rng.choice(_LABELS)
    marked = f"{label} {asked.story} {asked.question} {answer_label}"
    prompt = articles(marked.format(who=f"[[{group}]]", name=draw_name(rng, part)))
    text, spans = parse(prompt)
    outcomes = (f" {asked.answer}", f" {asked.wrong}")
    return Scenario(f"{text}{outcomes[0]}.", spans, asked.kind, len(text), outcomes, (1.0, 0.0), (1.0, 0.0))


def _arithmetic(rng: random.Random, part: Part) -> _Question:
    things = wording(rng, _COUNTED, part)
    if rng.random() < 0.5:
        first, second = rng.randint(1, 9), rng.randint(1, 9)
        story, result = wording(rng, _MORE, part), first + second
    else:
        first = rng.randint(3, 12)
        second = rng.randint(1, first - 1)
        story, result = wording(rng, _FEWER, part), first - second
    fields = {"first": str(first), "second": str(second), "things": things, "who": "{who}", "name": "{name}"}
    question = wording(rng, _HOW_MANY, part).format(things=things)
    return _Question(story.format(**fields), question, str(result), str(result + 1), "neutral/arithmetic")


def _attribute(rng: random.Random, part: Part) -> _Question:
    thing, other = rng.sample(_OBJECTS.of(part), 2)
    values, word = rng.choice(((_COLOURS, "colour"), (_SIZES, "kind")))
    first, second = rng.sample(values, 2)
    story = wording(rng, _OWNED, part).format(
        first=first, second=second, thing=thing, other=other, who="{who}", name="{name}"
    )
    asked, answer, wrong = rng.choice(((thing, first, second), (other, second, first)))
    question = f"What colour is the {asked}?" if word == "colour" else f"How does the {asked} look?"
    return _Question(story, question, answer, wrong, "neutral/attribute")


def _who_did_what(rng: random.Random, part: Part) -> _Question:
    thing, other = rng.sample(_PEOPLE.of(part), 2)
    first, second = rng.sample(_DEEDS.of(part), 2)
    story = wording(rng, _ACTED, part).format(thing=thing, other=other, first=first, second=second, who="{who}")
    deed, answer, wrong = rng.choice(((first, thing, other), (second, other, thing)))
    return _Question(story, f"Who {deed}?", f"The {answer}", f"The {wrong}", "neutral/who_did_what")
