"""Methods that allow some tokens only: their rules against slow computations, and what they may claim."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

import coft_core as cc
from coft_core.calibrate.run import calibrate_single_branch
from coft_core.conformal.values import BELOW
from coft_core.model.fake import tiny_model
from coft_core.policies.ablations import SingleBranchPolicy
from coft_core.policies.base import Past
from coft_core.policies.scored import DetoxPolicy, DtcdPolicy, sentence_start
from coft_core.text.masking import mask_prompt
from tests.coft_core.policies.contract import SCORERS, VowelScorer

EXAMPLES = [cc.Example(f"The {word} nurse", " was here", context=word) for word in "abcdefghijklmnopqrstuvwxyz"]


def past_of(tokens: tuple[int, ...] = (101,)) -> Past:
    model = tiny_model()
    return Past(model, mask_prompt(model.tokenizer, "a text", ()), tokens)


def random_logits(size: int = 257, seed: int = 1) -> list[float]:
    source = random.Random(seed)
    return [source.gauss(0, 2) for _ in range(size)]


def probabilities(logits: list[float]) -> list[float]:
    weights = [math.exp(value) for value in logits]
    return [weight / sum(weights) for weight in weights]


def as_logits(row: list[float]) -> Mapping[str, torch.Tensor]:
    return {"factual": torch.tensor([row])}


@pytest.mark.parametrize(("cap", "strength"), [(0.5, 1.0), (0.3, 0.0), (0.0, 4.0)])
def test_detox_weights_and_filters_the_likeliest_tokens(cap: float, strength: float):
    row, past = random_logits(), past_of()
    p = probabilities(row)
    best = sorted(range(len(row)), key=lambda token: -p[token])[:20]
    toxicity = {token: VowelScorer().score([past.model.continuation_text([101, token])])[0] for token in best}
    allowed = [token for token in best if toxicity[token] <= cap]
    if not allowed:
        allowed = [token for token in best if toxicity[token] == min(toxicity.values())]
    weights = [p[t] * (1 - toxicity[t]) ** strength if t in allowed else 0.0 for t in range(len(row))]
    policy = DetoxPolicy(cap=cap, strength=strength).with_scorers({"scorer": VowelScorer()})
    found = policy.decide(as_logits(row), 0, [past]).log_p[0].exp().tolist()
    assert found == pytest.approx([weight / sum(weights) for weight in weights], abs=1e-6)


def test_dual_thresholds_accept_what_is_likely_and_not_toxic():
    row, past = random_logits(seed=2), past_of()
    p = probabilities(row)
    best = sorted(range(len(row)), key=lambda token: -p[token])[:40]
    score = VowelScorer().score
    accepted = {t for t in best if p[t] >= 0.02 and score([past.model.continuation_text([101, t])])[0] <= 0.4}
    policy = DtcdPolicy(minimum=0.02, cap=0.4).with_scorers({"scorer": VowelScorer()})
    decision = policy.decide(as_logits(row), 0, [past])
    assert decision.certified is not None
    assert set(decision.certified[0].nonzero()[:, 0].tolist()) == accepted
    assert decision.log_p[0].exp().tolist() == pytest.approx(p, abs=1e-6)
    assert decision.state == "none"


def test_a_sentence_that_is_over_no_longer_counts():
    for text, sentence in (
        ("You fool", "You fool"), ("You fool.", "You fool."), ("You fool. The", "The"),
        ("He said: “You fool!” Then she", "Then she"), ("3.5 litres of water", "3.5 litres of water"),
        ("one line\nanother", "another"),
    ):  # fmt: skip
        assert text[sentence_start(text) :] == sentence


def test_candidates_are_scored_in_the_sentence_that_is_being_written():
    model, asked = tiny_model(), []

    class Recorder(VowelScorer):
        def score(self, texts):
            asked.extend(texts)
            return super().score(texts)

    tokens = tuple(model.tokenizer.encode("You fool. He", add_special_tokens=False))
    past = Past(model, mask_prompt(model.tokenizer, "a text", ()), tokens)
    letter = model.tokenizer.encode("a", add_special_tokens=False)[0]
    DetoxPolicy().with_scorers({"scorer": Recorder()}).toxicities([past], torch.tensor([[letter]]))
    assert asked == ["Hea"]


def test_single_branch_values_are_factual_log_probabilities_under_a_fingerprint_of_their_own():
    model = tiny_model(seed=1)
    calibration = calibrate_single_branch(model, EXAMPLES, alpha=0.2)
    steps = [cc.score(model, each.prompt, each.reference or "", cc.VanillaPolicy(), ()) for each in EXAMPLES]
    expected = sorted(step.log_p_factual for steps_of_one in steps for step in steps_of_one)
    own = (calibration.joint.values.values + BELOW).tolist() + calibration.joint.verification.values.tolist()
    assert sorted(own) == pytest.approx(expected, abs=1e-4)
    model = tiny_model(seed=1)
    single = calibrate_single_branch(model, EXAMPLES, alpha=0.2).fingerprint
    joint = cc.calibrate(model, EXAMPLES, lam=0.0, alpha=0.2).fingerprint
    assert replace(single, method="") == replace(joint, method="")
    assert single.digest != joint.digest


@pytest.mark.parametrize("policy_class", [SingleBranchPolicy, DtcdPolicy])
def test_a_single_branch_calibration_certifies_and_a_joint_one_is_refused(policy_class: type):
    model = tiny_model(seed=1)
    single = calibrate_single_branch(model, EXAMPLES, alpha=0.2)
    joint = cc.calibrate(model, EXAMPLES, alpha=0.2)
    spans = [cc.Span(4, 9, "other")]
    made = cc.plan(model, "The nurse was", policy_class(calibration=single), spans, scorers=SCORERS)
    assert made.certificate.text == "certified"
    with pytest.raises(cc.CalibrationMismatch, match="method"):
        cc.plan(model, "The nurse was", policy_class(calibration=joint), spans, scorers=SCORERS)
    with pytest.raises(cc.CalibrationMismatch, match="method"):
        cc.plan(model, "The nurse was", cc.CoftPolicy(lam=0.0, calibration=single), spans)
