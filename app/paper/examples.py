"""The paper's worked examples on any model: what follows a prompt in each reading, and what would be certified."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from app.evaluate.experiments.grid import Grid, Value, Values
from app.evaluate.layout import Head
from coft_core.assets import assets_path
from coft_core.decode.loop import generate, score
from coft_core.model.language_model import LanguageModel
from coft_core.policies.coft import CoftPolicy
from coft_core.types import Span, Step

END = "<eos>"
"""How the paper writes the end token."""

OWN = 6
"""Likeliest tokens of the model that are shown beside the paper's."""

HEADS = (Head("Factual"), Head("Masked"), Head("Fused"), Head("Minimum"), Head("Certified"))


def worked_examples(model: LanguageModel) -> tuple[Grid, ...]:
    """The pools of the paper's examples on a model, with the paper's figures below each."""
    read = yaml.safe_load(assets_path("paper", "examples.yaml").read_text("utf-8"))
    return tuple(_grid(model, pool, read["lambda"], read["tau"]) for pool in read["pools"])


def _grid(model: LanguageModel, pool: Mapping[str, Any], lam: float, tau: float) -> Grid:
    before, word, after = pool["prompt"].replace("}", "{").split("{")
    span, policy = Span(len(before), len(before) + len(word), pool["family"]), CoftPolicy(lam=lam)
    prompt = f"{before}{word}{after}"
    rows: list[tuple[Head, Values]] = []
    notes = [
        f"Lambda {lam:g} and tau {tau:g} are the paper's; this threshold is not calibrated on the model. “{word}” is "
        "masked. 1 is certified: the smaller one of fused and masked is at least tau.",
        "A phrase of several tokens has the product of their probabilities. "
        f"The model's {OWN} likeliest tokens are shown too.",
        *pool.get("notes", ()),
    ]
    for phrase, printed in pool["tokens"].items():
        text = model.tokenizer.eos_token if phrase == END else phrase
        if text is None:
            notes.append(f"The model has no end token, so {END} has no figures.")
        else:
            steps = score(model, prompt, text, policy, [span])
            rows.append((Head(f"“{phrase}”"), _values(*_together(steps), tau=tau)))
        rows.append((Head(f"“{phrase}”", source="paper"), _values(*printed, tau=tau)))
    (first,) = generate(model, prompt, policy, [span], max_new_tokens=1, greedy=True).steps
    for one in sorted(first.candidates, key=lambda one: -one.log_p_factual)[:OWN]:
        if one.token not in pool["tokens"]:
            readings = (one.log_p_factual, one.log_p_masked, one.log_p_fused)
            rows.append((Head(f"“{one.token}”, likely here"), _values(*map(math.exp, readings), tau=tau)))
    return Grid(pool["title"], "Next", HEADS, tuple(rows), tuple(notes))


def _together(steps: Sequence[Step]) -> tuple[float, float, float]:
    """Probabilities of a phrase in the three readings."""
    return (
        math.exp(sum(step.log_p_factual for step in steps)),
        math.exp(sum(step.log_p_masked for step in steps)),
        math.exp(sum(step.log_p_fused for step in steps)),
    )


def _values(factual: float, masked: float, fused: float, tau: float) -> Values:
    least = min(masked, fused)
    return (Value(factual), Value(masked), Value(fused), Value(least), Value(float(least >= tau)))
