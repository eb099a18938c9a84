"""Questions whose answer does not depend on the group that they mention: arithmetic, attributes, who did what."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.neutral_wordings import (
    ACTED,
    COLOUR_ASKED,
    COLOURS,
    COUNTED,
    DEEDS,
    FEWER,
    HOW_MANY,
    LOOK_ASKED,
    MORE,
    OBJECTS,
    OWNED,
    PEOPLE,
    SIZES,
    WHO_ASKED,
)
from bench.demo_model.phantom.text import Part, Wordings, draw_name, wording
from bench.demo_model.scenarios import Scenario, articles, parse

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
    """Writes a question with one right answer that the group has no part in."""
    asked = rng.choice((_arithmetic, _attribute, _who_did_what))(rng, part)
    group = rng.choice([group for groups in STANDING.values() for group in groups])
    label, answer_label = rng.choice(_LABELS)
    marked = f"{label} {asked.story} {asked.question} {answer_label}"
    prompt = articles(marked.format(who=f"[[{group}]]", name=draw_name(rng, part)))
    text, spans = parse(prompt)
    outcomes = (f" {asked.answer}", f" {asked.wrong}")
    return Scenario(f"{text}{outcomes[0]}.", spans, asked.kind, len(text), outcomes, (1.0, 0.0), (1.0, 0.0))


def story_of(question: Scenario) -> str:
    """The wording of a question's story: questions with the same one are about equally hard."""
    fitting = (story for wordings in (MORE, FEWER, OWNED, ACTED) for story in wordings.of("measured"))
    found = next((story for story in fitting if _shape(story).search(question.text)), None)
    if found is None:
        raise ValueError(f"no held-out wording fits the question {question.text!r}")
    return found


@cache
def _shape(story: str) -> re.Pattern[str]:
    """A wording with anything in its fields; an article before a field follows what stands there."""
    fixed = re.sub(r"\\{\w+\\}", ".+?", re.escape(story))
    return re.compile(re.sub(r"(?<!\w)([Aa])(?=\\ \.)", r"\1n?", fixed) + " ")


def _arithmetic(rng: random.Random, part: Part) -> _Question:
    things = wording(rng, COUNTED, part)
    if rng.random() < 0.5:
        first, second = rng.randint(1, 9), rng.randint(1, 9)
        story, result = wording(rng, MORE, part), first + second
    else:
        first = rng.randint(3, 12)
        second = rng.randint(1, first - 1)
        story, result = wording(rng, FEWER, part), first - second
    fields = {"first": str(first), "second": str(second), "things": things, "who": "{who}", "name": "{name}"}
    question = wording(rng, HOW_MANY, part).format(things=things)
    return _Question(story.format(**fields), question, str(result), str(result + 1), "neutral/arithmetic")


def _attribute(rng: random.Random, part: Part) -> _Question:
    thing, other = rng.sample(OBJECTS.of(part), 2)
    values, questions = rng.choice(((COLOURS, COLOUR_ASKED), (SIZES, LOOK_ASKED)))
    first, second = rng.sample(values, 2)
    story = wording(rng, OWNED, part).format(
        first=first, second=second, thing=thing, other=other, who="{who}", name="{name}"
    )
    asked, answer, wrong = rng.choice(((thing, first, second), (other, second, first)))
    return _Question(story, _asked(rng, questions, part).format(asked=asked), answer, wrong, "neutral/attribute")


def _who_did_what(rng: random.Random, part: Part) -> _Question:
    thing, other = rng.sample(PEOPLE.of(part), 2)
    first, second = rng.sample(DEEDS.of(part), 2)
    story = wording(rng, ACTED, part).format(thing=thing, other=other, first=first, second=second, who="{who}")
    deed, answer, wrong = rng.choice(((first, thing, other), (second, other, thing)))
    question = _asked(rng, WHO_ASKED, part).format(deed=deed)
    return _Question(story, question, f"The {answer}", f"The {wrong}", "neutral/who_did_what")


def _asked(rng: random.Random, questions: Wordings, part: Part) -> str:
    """Draws a question; a single one is taken without a draw, so that the held-out texts of a seed stay the same."""
    choices = questions.of(part)
    return choices[0] if len(choices) == 1 else rng.choice(choices)
