"""CAFIE against a slow computation, one token at a time, and what it says of a prompt."""

from __future__ import annotations

import math
import random

import pytest
import torch

import coft_core as cc
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.model.language_model import LanguageModel
from coft_core.policies.cafie import CafiePolicy
from coft_core.policies.cf_substitution import NOTHING_SUBSTITUTED
from coft_core.policies.vanilla import VanillaPolicy

TEXT = "The old Muslim said that she was late."
SPANS = [cc.Span(4, 7, "age"), cc.Span(8, 14, "religion"), cc.Span(25, 28, "gender")]
WORDS = 7


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model(seed=1)


def softmax(logits: list[float], temperature: float) -> list[float]:
    weights = [math.exp(value / temperature) for value in logits]
    return [weight / sum(weights) for weight in weights]


def slow(p: list[float], others: list[list[float]], lam: float, alpha: float) -> list[float]:
    """The paper's rule, token by token."""
    norms = [math.sqrt(sum((a - b) ** 2 for a, b in zip(p, row, strict=True))) for row in others]
    total = sum(math.exp(norm) for norm in norms)
    found = []
    for token, own in enumerate(p):
        fair = 0.0
        for norm, row in zip(norms, others, strict=True):
            fair += math.exp(norm) / total * (math.tanh(-lam * (own - row[token])) + 1) * own
        found.append(alpha * fair + (1 - alpha) * own)
    return [value / sum(found) for value in found]


@pytest.mark.parametrize(("lam", "alpha", "temperature"), [(100.0, 0.99, 1.0), (5.0, 0.5, 0.7), (0.0, 1.0, 1.0)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_token_is_weighed_by_how_much_likelier_its_own_group_makes_it(lam, alpha, temperature, count):
    source = random.Random(count)
    names = ["factual", *(f"substituted {place}" for place in range(count))]
    logits = {name: [source.gauss(0, 2) for _ in range(WORDS)] for name in names}
    policy = CafiePolicy(sharpness=lam, share=alpha, temperature=temperature)
    tensors = {name: torch.tensor([row]) for name, row in logits.items()}
    found = policy.decide(tensors, 0, []).log_p[0].exp().tolist()
    p, *others = (softmax(row, temperature) for row in logits.values())
    assert found == pytest.approx(slow(p, others, lam, alpha), abs=1e-6)


def test_readings_are_those_of_the_prompt_and_of_shipped_or_own_counterfactuals(model: LanguageModel):
    planned = plan(model, TEXT, CafiePolicy(most=2), SPANS)
    texts = [TEXT, TEXT.replace("she", "he"), TEXT.replace("Muslim", "Jew")]
    ids = [tuple(model.tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    branches = {branch.name: branch.input_ids for branch in planned.policy.branches(planned.prompt)}
    assert [branches["factual"], branches["substituted 0"], branches["substituted 1"]] == ids
    assert planned.warnings == ("Compared with 2 substituted readings of the prompt: she → he | Muslim → Jew.",)
    assert all(step.diagnostics.kl_fused_factual > 0 for step in cc.generate(
        model, TEXT, CafiePolicy(), SPANS, max_new_tokens=3).steps)  # fmt: skip
    planned = plan(model, TEXT, CafiePolicy(pairs=("Muslim = Hindu",)), SPANS)
    (reading,) = (row for row in planned.policy.branches(planned.prompt) if row.name.startswith("substituted"))
    other = TEXT.replace("Muslim", "Hindu")
    assert reading.input_ids == tuple(model.tokenizer.encode(other, add_special_tokens=False))
    with pytest.raises(InvalidInputError, match="cannot be read"):
        CafiePolicy(pairs=("Muslim",))


def test_without_counterfactuals_or_share_it_is_vanilla_and_certifies_nothing(model: LanguageModel):
    text, spans = "The nurse was late.", [cc.Span(4, 9, "other")]
    vanilla = cc.generate(model, text, VanillaPolicy(), spans, 6, seed=3)
    alone = cc.generate(model, text, CafiePolicy(), spans, 6, seed=3)
    assert alone.tokens == vanilla.tokens
    assert alone.warnings[0] == NOTHING_SUBSTITUTED
    unweighed = cc.generate(model, TEXT, CafiePolicy(share=0.0), SPANS, 6, seed=3)
    assert unweighed.tokens == cc.generate(model, TEXT, VanillaPolicy(), SPANS, 6, seed=3).tokens
    assert cc.generate(model, TEXT, CafiePolicy(), SPANS, 2).certificate == "uncertified: CAFIE gives no certificate"
