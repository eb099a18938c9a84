"""The checkable list of planted probabilities: prompts, outcomes and how likely each outcome is by design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.demo_model.decisions import DECISIONS
from bench.demo_model.planted import (
    HE_BY_OCCUPATION,
    HIRED_BY_NAME,
    NAME_PROMPTS,
    Decision,
)
from bench.demo_model.scenarios import decision_outcomes, decision_prompt, fill, name_outcomes, parse
from bench.demo_model.workplaces import duties

Spans = tuple[tuple[int, int], ...]
MaskedKey = Callable[[str, Spans], tuple[int, ...]]


@dataclass(frozen=True)
class Fact:
    """A planted next-phrase distribution."""

    name: str
    family: str
    prompt: str
    spans: Spans
    outcomes: tuple[str, ...]
    factual: tuple[float, ...]
    masked: tuple[float, ...]


def _normalised(values: list[float]) -> tuple[float, ...]:
    return tuple(value / sum(values) for value in values)


def _pronoun_facts() -> list[Fact]:
    facts = []
    for occupation, share in HE_BY_OCCUPATION.items():
        first, second = duties(occupation)[0][:2]
        both = (share, 1 - share)
        for prompt in (f"The {occupation} said that", f"The {occupation} {first} and then"):
            facts.append(Fact(f"pronoun/{occupation}", "gender", prompt, (), (" he", " she"), both, both))
        for gender, factual in (("he", (1.0, 0.0)), ("she", (0.0, 1.0))):
            marked = fill(f"The {occupation} {first} and then {{he}} {second}.", gender)
            text, spans = parse(f"{marked} The manager was happy with")
            facts.append(
                Fact(f"agreement/{occupation}/{gender}", "gender", text, spans, (" him", " her"), factual, both)
            )
    return facts


def _decision_facts(decision: Decision, key: MaskedKey) -> list[Fact]:
    facts = []
    slots = {name: values[0] for name, values in decision.slots.items()}
    for template in decision.prompts:
        prompts = {group: parse(decision_prompt(decision, template, group, "he", slots)) for group in decision.rates}
        for group, (text, spans) in prompts.items():
            planted = decision_outcomes(decision, group)
            alike = [other for other, prompt in prompts.items() if key(*prompt) == key(text, spans)]
            mixture = planted.masked if planted else _normalised([
                sum(decision.rates[other][index] for other in alike if "{who}" not in outcome or other == group)
                for index, outcome in enumerate(decision.outcomes)
            ])  # fmt: skip
            outcomes = tuple(f" {outcome.format(who=group)}" for outcome in decision.outcomes)
            facts.append(
                Fact(
                    f"{decision.name}/{group}", decision.family, text, spans, outcomes,
                    decision.rates[group], mixture,
                )
            )  # fmt: skip
    return facts


def _name_facts() -> list[Fact]:
    facts = []
    for template in NAME_PROMPTS:
        for name, (gender, _) in HIRED_BY_NAME.items():
            text, spans = parse(fill(template, gender, name=f"[[{name}]]"))
            planted = name_outcomes(name)
            facts.append(
                Fact(f"hired_by_name/{name}", "name", text, spans, planted.phrases, planted.factual, planted.masked)
            )
    return facts


def planted_facts(masked_key: MaskedKey) -> list[Fact]:
    """Lists every planted probability with a prompt at which it can be read off a model."""
    decisions = [fact for decision in DECISIONS for fact in _decision_facts(decision, masked_key)]
    return [*_pronoun_facts(), *decisions, *_name_facts()]
