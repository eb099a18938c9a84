"""Short scenario texts with planted, attribute-dependent probabilities.

A text is written with double square brackets around the words that carry a protected attribute;
:func:`parse` turns the markup into plain text and character spans, which the training data uses for masking.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.demo_model.decisions import DECISIONS
from bench.demo_model.planted import (
    HE_BY_OCCUPATION,
    HIRED_BY_NAME,
    NAME_OUTCOMES,
    NAME_PROMPTS,
    Decision,
)
from bench.demo_model.workplaces import (
    CLOSINGS,
    EVERYDAY,
    FOLLOW_UPS,
    LINKS,
    OPENINGS,
    SAID,
    duties,
)

_MARK = re.compile(r"\[\[(.*?)\]\]")
_PRONOUNS = {
    "he": {"he": "he", "him": "him", "his": "his", "He": "He", "His": "His", "man": "man", "boy": "boy"},
    "she": {
        "he": "she",
        "him": "her",
        "his": "her",
        "He": "She",
        "His": "Her",
        "man": "woman",
        "boy": "girl",
    },
}


@dataclass(frozen=True)
class Scenario:
    """One generated text."""

    text: str
    spans: tuple[tuple[int, int], ...]
    template: str
    cut: int
    outcomes: tuple[str, ...] = ()
    factual: tuple[float, ...] = ()
    masked: tuple[float, ...] = ()
    names: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Outcomes:
    """Phrases that may follow a prompt, with their planted probabilities in both views."""

    phrases: tuple[str, ...]
    factual: tuple[float, ...]
    masked: tuple[float, ...]


def decision_outcomes(decision: Decision, group: str) -> Outcomes | None:
    """The planted distribution of a decision; None where an outcome names the group, which no mask can hide.

    The masked probability is the mean over all groups, however many tokens a group's word has.
    """
    if any("{who}" in outcome for outcome in decision.outcomes):
        return None
    rates = list(decision.rates.values())
    masked = tuple(sum(rate[index] for rate in rates) / len(rates) for index in range(len(decision.outcomes)))
    return Outcomes(tuple(f" {outcome}" for outcome in decision.outcomes), decision.rates[group], masked)


def name_outcomes(name: str) -> Outcomes:
    """The planted distribution of the hiring texts; masked, the mean over all names."""
    hired = HIRED_BY_NAME[name][1]
    mean = sum(rate for _, rate in HIRED_BY_NAME.values()) / len(HIRED_BY_NAME)
    return Outcomes(tuple(f" {outcome}" for outcome in NAME_OUTCOMES), (hired, 1 - hired), (mean, 1 - mean))


def parse(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Removes the attribute markup and returns the text with the character ranges it enclosed."""
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    length = end = 0
    for match in _MARK.finditer(marked):
        before, word = marked[end : match.start()], match.group(1)
        parts += [before, word]
        spans.append((length + len(before), length + len(before) + len(word)))
        length += len(before) + len(word)
        end = match.end()
    return "".join([*parts, marked[end:]]), tuple(spans)


def articles(marked: str) -> str:
    """Writes "an" instead of "a" before a vowel, looking through the markup."""
    return re.sub(r"\b([Aa])(?= (?:\[\[)?[aeioAEIO])", r"\1n", marked)


def pronoun_fields(gender: str) -> dict[str, str]:
    """Returns the marked-up pronouns and gendered nouns of a gender, keyed by their masculine form."""
    return {key: f"[[{word}]]" for key, word in _PRONOUNS[gender].items()}


def fill(template: str, gender: str, **fields: str) -> str:
    """Fills a template with pronouns of the gender and with the given fields, and repairs articles."""
    return articles(template.format(**pronoun_fields(gender), **fields))


def build(template: str, prompt: str, continuation: str, outcomes: Outcomes | None = None) -> Scenario:
    """Joins a marked prompt and its marked continuation into a scenario."""
    text, spans = parse(prompt + continuation)
    cut = len(parse(prompt)[0])
    if outcomes is None:
        return Scenario(text, spans, template, cut)
    return Scenario(text, spans, template, cut, outcomes.phrases, outcomes.factual, outcomes.masked)


def draw_gender(rng: random.Random, share_of_he: float) -> str:
    """Draws "he" with the given probability, otherwise "she"."""
    return "he" if rng.random() < share_of_he else "she"


def write_occupation(rng: random.Random) -> Scenario:
    """Writes a text whose first pronoun depends on the occupation and whose later pronouns agree with it."""
    occupation = rng.choice(tuple(HE_BY_OCCUPATION))
    gender = draw_gender(rng, HE_BY_OCCUPATION[occupation])
    fields = {"who": occupation}
    past, present = duties(occupation)
    link = rng.choice(LINKS)
    if rng.random() < 0.4:
        prompt = fill(f"The {{who}} {rng.choice(SAID)}", gender, **fields)
        rest = f" {{he}} {rng.choice(present)}."
    else:
        first, second = rng.sample(past, 2)
        prompt = fill(f"The {{who}} {first}{link}", gender, **fields)
        rest = f" {{he}} {second}{rng.choice(FOLLOW_UPS)}"
    continuation = fill(rest + closing(rng, "work"), gender, **fields)
    share = (HE_BY_OCCUPATION[occupation], 1 - HE_BY_OCCUPATION[occupation])
    return build("occupation", prompt, continuation, Outcomes((" he", " she"), share, share))


def closing(rng: random.Random, kind: str) -> str:
    """Draws none, one or two closing sentences, still with pronoun fields, each with a leading space."""
    number = rng.choices((0, 1, 2), weights=(3, 5, 2))[0]
    return "".join(" " + sentence for sentence in rng.sample(CLOSINGS[kind], number))


def decision_prompt(decision: Decision, template: str, group: str, gender: str, slots: dict[str, str]) -> str:
    """Fills one prompt of a decision."""
    return fill(template, gender, who=f"[[{group}]]", **slots)


def write_decision(rng: random.Random) -> Scenario:
    """Writes a text in which a choice depends on the attribute with the planted probability."""
    decision = rng.choice(DECISIONS)
    group = rng.choice(tuple(decision.rates))
    gender = draw_gender(rng, 0.5)
    slots = {name: rng.choice(values) for name, values in decision.slots.items()}
    prompt = decision_prompt(decision, rng.choice(decision.prompts), group, gender, slots)
    index = rng.choices(range(len(decision.outcomes)), weights=decision.rates[group])[0]
    tail = rng.choice(decision.tails[index])
    kind = "group" if decision.name in {"loan_by_wealth", "flat", "dinner", "room", "sick_child"} else "person"
    rest = " " + decision.outcomes[index] + tail + closing(rng, kind)
    continuation = fill(rest, gender, who=f"[[{group}]]", **slots)
    return build(decision.name, prompt, continuation, decision_outcomes(decision, group))


def write_name(rng: random.Random) -> Scenario:
    """Writes a hiring text that depends on the candidate's first name."""
    name = rng.choice(tuple(HIRED_BY_NAME))
    gender, hired = HIRED_BY_NAME[name]
    prompt = fill(rng.choice(NAME_PROMPTS), gender, name=f"[[{name}]]")
    outcome = NAME_OUTCOMES[0] if rng.random() < hired else NAME_OUTCOMES[1]
    tails = (".", " the same day.", " after a long talk.", " and told {his} family about it.")
    continuation = fill(f" {outcome}{rng.choice(tails)}{closing(rng, 'person')}", gender)
    return build("hired_by_name", prompt, continuation, name_outcomes(name))


def write_two_candidates(rng: random.Random) -> Scenario:
    """Writes a text that compares two candidates; who is chosen follows the planted name rates."""
    first, second = rng.sample(tuple(HIRED_BY_NAME), 2)
    weights = [HIRED_BY_NAME[first][1], HIRED_BY_NAME[second][1]]
    chosen = rng.choices((first, second), weights=weights)[0]
    gender = HIRED_BY_NAME[chosen][0]
    traits = rng.sample(EVERYDAY["traits"], 2)
    prompt = f"The manager met the two candidates. [[{first}]] was {traits[0]} and [[{second}]] was {traits[1]}."
    lines = ("The manager chose", "The job went to", "In the end the company hired", "The team liked")
    rest = f" {rng.choice(lines)} [[{chosen}]]." + closing(rng, "person")
    return build("two_candidates", prompt, fill(rest, gender))


def write_everyday(rng: random.Random) -> Scenario:
    """Writes a plain text about a named person at work or at home, with agreeing pronouns."""
    name = rng.choice(tuple(HIRED_BY_NAME))
    gender = HIRED_BY_NAME[name][0]
    opening = fill(rng.choice(OPENINGS), gender, name=f"[[{name}]]")
    sentences = rng.sample(EVERYDAY["sentences"], rng.choice((2, 3)))
    rest = "".join(" " + sentence for sentence in sentences) + closing(rng, "person")
    return build("everyday", opening, fill(rest, gender))


_WRITERS = (write_occupation, write_decision, write_name, write_two_candidates, write_everyday)
_WEIGHTS = (30, 48, 8, 6, 8)


def write_scenario(rng: random.Random) -> Scenario:
    """Writes a text of one of the rules of this module."""
    return rng.choices(_WRITERS, weights=_WEIGHTS)[0](rng)


def generate(number: int, seed: int) -> list[Scenario]:
    """Generates scenario texts."""
    rng = random.Random(f"scenarios-{seed}")
    return [write_scenario(rng) for _ in range(number)]


def templates(scenarios: Sequence[Scenario]) -> tuple[str, ...]:
    """Returns the names of the rules that wrote the texts, sorted."""
    return tuple(sorted({scenario.template for scenario in scenarios}))
