"""The rules of the steering methods against slow computations, one token at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import scripted_model, tiny_model
from coft_core.policies.base import Past
from coft_core.policies.baseline import BaselinePolicy
from coft_core.policies.contrastive import ContrastivePolicy
from coft_core.policies.dexperts import DExpertsPolicy
from coft_core.policies.gedi import GediPolicy
from coft_core.policies.registry import method
from coft_core.policies.safety_template import SafetyTemplatePolicy
from coft_core.policies.sdd import SddPolicy
from coft_core.text.masking import mask_prompt

WORDS = 7
Logits = dict[str, list[float]]


def drawn(*names: str, seed: int = 0) -> Logits:
    source = random.Random(seed)
    return {name: [source.gauss(0, 2) for _ in range(WORDS)] for name in names}


def softmax(logits: list[float], temperature: float = 1.0) -> list[float]:
    weights = [math.exp(value / temperature) for value in logits]
    return [weight / sum(weights) for weight in weights]


def normalised(weights: list[float]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


def decided(policy: BaselinePolicy, logits: Logits, step: int = 0, memory: Any = None) -> list[float]:
    """What the policy draws from."""
    model = tiny_model()
    past = Past(model, mask_prompt(model.tokenizer, "a text", ()), (), memory)
    tensors: Mapping[str, torch.Tensor] = {name: torch.tensor([row]) for name, row in logits.items()}
    found: list[float] = policy.decide(tensors, step, [past]).log_p[0].exp().tolist()
    return found


def test_self_debiasing_scales_each_token_by_its_worst_difference():
    for decay, floor, temperature in ((50.0, 0.01, 1.0), (10.0, 0.0, 0.7), (0.0, 0.5, 1.0)):
        logits = drawn("factual", "biased 0", "biased 1", seed=1)
        p = softmax(logits["factual"], temperature)
        biased = [softmax(logits[name], temperature) for name in ("biased 0", "biased 1")]
        weights = []
        for token in range(WORDS):
            difference = min(p[token] - row[token] for row in biased)
            factor = 1.0 if difference >= 0 else max(math.exp(decay * difference), floor)
            weights.append(p[token] * factor)
        policy = SddPolicy(decay=decay, floor=floor, temperature=temperature)
        assert decided(policy, logits) == pytest.approx(normalised(weights), abs=1e-6)


@pytest.mark.parametrize(("weight", "mass"), [(2.0, 0.9), (0.0, 0.5), (0.5, 1.0)])
def test_experts_move_the_logits_within_the_models_nucleus(weight: float, mass: float):
    logits = drawn("factual", "expert", "anti-expert", seed=2)
    p = softmax(logits["factual"])
    inside, reached = set(), 0.0
    for token in sorted(range(WORDS), key=lambda t: -p[t]):
        if reached < mass:
            inside.add(token)
        reached += p[token]
    weights = [
        math.exp(base + weight * (expert - anti)) if token in inside else 0.0
        for token, (base, expert, anti) in enumerate(zip(*logits.values(), strict=True))
    ]
    assert decided(DExpertsPolicy(weight=weight, nucleus=mass), logits) == pytest.approx(normalised(weights), abs=1e-6)


@pytest.mark.parametrize(
    ("omega", "rho", "certain", "memory"),
    [(30.0, 0.8, 0.97, None), (2.0, 0.3, 0.55, (-3.0, -1.5)), (1.0, 1.0, 1.0, (-0.2, -4.0))],
)
def test_the_discriminators_posterior_weights_and_filters(omega: float, rho: float, certain: float, memory: Any):
    logits = drawn("factual", "wanted", "unwanted", seed=3)
    step = 0 if memory is None else 4
    p = softmax(logits["factual"])
    wanted, unwanted = softmax(logits["wanted"]), softmax(logits["unwanted"])
    sums = memory or (0.0, 0.0)
    posterior = []
    for token in range(WORDS):
        own = 0.3 * math.exp((sums[0] + math.log(wanted[token])) / (step + 1))
        other = 0.7 * math.exp((sums[1] + math.log(unwanted[token])) / (step + 1))
        posterior.append(own / (own + other))
    weighted = normalised([p[t] * posterior[t] ** omega for t in range(WORDS)])
    # As the authors write it: from the least wanted token on, until 1 - rho of the weighted mass is gone.
    removed, gone = set(), 0.0
    for token in sorted(range(WORDS), key=lambda t: posterior[t]):
        gone += weighted[token]
        if gone < 1 - rho and posterior[token] < certain:
            removed.add(token)
    weights = [0.0 if t in removed else weighted[t] for t in range(WORDS)]
    policy = GediPolicy(omega=omega, rho=rho, certain=certain, prior=0.3)
    assert decided(policy, logits, step, memory) == pytest.approx(normalised(weights), abs=1e-6)


def test_the_discriminator_remembers_the_likelihood_of_what_was_written():
    policy = GediPolicy()
    rows = drawn("factual", "wanted", "unwanted", seed=4)
    logits, names = torch.tensor(list(rows.values())), tuple(rows)
    memory = policy.remember(policy.remember(None, logits, 2, names), logits, 5, names)
    for place, name in ((0, "wanted"), (1, "unwanted")):
        p = softmax(rows[name])
        assert memory[place] == pytest.approx(math.log(p[2]) + math.log(p[5]), abs=1e-5)


@pytest.mark.parametrize(
    ("against", "expert", "other"), [("masked", "masked", "factual"), ("amateur", "factual", "amateur")]
)
def test_contrast_keeps_plausible_tokens_and_prefers_what_the_expert_adds(against: str, expert: str, other: str):
    logits = drawn("factual", expert if expert != "factual" else other, seed=5)
    p, q = softmax(logits[expert]), softmax(logits[other], 0.5)
    weights = [p[t] * (p[t] / q[t]) ** 0.8 if p[t] >= 0.1 * max(p) else 0.0 for t in range(WORDS)]
    policy = ContrastivePolicy(against=against, amateur="small", guidance=0.8, amateur_temperature=0.5)
    assert decided(policy, logits) == pytest.approx(normalised(weights), abs=1e-6)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_authors_contrast_of_two_models_is_one_of_the_weights(weight: float):
    logits = drawn("factual", "amateur", seed=7)
    p, q = softmax(logits["factual"]), softmax(logits["amateur"])
    weights = [p[t] ** weight * p[t] / q[t] if p[t] >= 0.1 * max(p) else 0.0 for t in range(WORDS)]
    policy = ContrastivePolicy(against="amateur", amateur="small", expert_weight=weight, guidance=1.0)
    assert decided(policy, logits) == pytest.approx(normalised(weights), abs=1e-6)


def test_parameters_that_cannot_be_used_are_named_and_later_ones_leave_labels():
    assert "expert_weight" not in ContrastivePolicy().label
    assert '"expert_weight": 0.0' in ContrastivePolicy(expert_weight=0.0).label
    model, other = tiny_model(), scripted_model({" a": 0.5}, {" a": 0.5}, (" a", " b"))
    with pytest.raises(InvalidInputError, match="another tokenizer"):
        plan(model, "a text", DExpertsPolicy(expert="x"), (), models={"expert": other})
    with pytest.raises(InvalidInputError, match="needs a model as 'expert'"):
        plan(model, "a text", DExpertsPolicy(expert="x"), (), models={})
    for name, parameters, sentence in (
        ("sdd", {"decay": -1.0}, "Decay is -1.0; give a number from 0 to 500"),
        ("sdd", {"descriptions": ("",)}, "Descriptions of bias is"),
        ("contrastive", {"against": "amateur"}, "Amateur model is missing"),
        ("contrastive", {"against": "nobody"}, "choose masked or amateur"),
        ("safety_template", {"template": "own", "own_template": "no place"}, "Own template has no {text}"),
        ("gedi", {"prior": 0.0}, "Prior is 0.0; give a number from 0.001"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            method(name).build(parameters)
        assert sentence in str(caught.value)


def test_a_template_is_put_around_the_prompt_and_alone_decides():
    model = tiny_model()
    prompt = mask_prompt(model.tokenizer, "Who is late?", ())
    policy = SafetyTemplatePolicy(template="own", own_template="Be fair: {text} Now:").bound(model, {}, prompt)
    (own,) = policy.method_branches or ()
    assert model.tokenizer.decode(list(own.input_ids)) == "Be fair: Who is late? Now:"
    logits = drawn("factual", "templated", seed=6)
    assert decided(policy, logits) == pytest.approx(softmax(logits["templated"]), abs=1e-6)
