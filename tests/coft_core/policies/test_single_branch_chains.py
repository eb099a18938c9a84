"""Chains certified in the factual reading alone: every number is of that reading, by a slow computation beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coft_core as cc
from coft_core.calibrate.run import calibrate_single_branch
from coft_core.conformal.drift import audit_summary
from coft_core.model.fake import tiny_model
from coft_core.policies.ablations import SingleBranchPolicy
from coft_core.policies.scored import DtcdPolicy
from tests.coft_core.levels import by_step, fitting, flat
from tests.coft_core.policies.contract import VowelScorer

LENGTH, CONTEXTS = 6, 39
PROMPT, SPANS = "The nurse was", [cc.Span(4, 9, "other")]
EXAMPLES = [cc.Example(f"The {word} nurse", " was here", context=word) for word in "abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture(scope="module")
def model() -> cc.LanguageModel:
    return tiny_model(seed=1)


@pytest.fixture(scope="module")
def calibration(model: cc.LanguageModel) -> cc.Calibration:
    """Thresholds for every step of a chain, about as high as the likelier half of the tokens are likely."""
    made = calibrate_single_branch(model, EXAMPLES)
    values = np.log(np.linspace(0.001, 0.02, CONTEXTS))[:, None] + np.linspace(0, 0.3, LENGTH)[None]  # (n, T)
    return cc.Calibration.of(
        made.fingerprint, 0.2, by_step(values), bin_width=1, bin_spacing="finest", max_position=LENGTH
    )


def written(model: cc.LanguageModel, policy: Any, forced: Mapping[int, int] | None = None, **given: Any) -> Any:
    run = cc.Rollout(cc.plan(model, PROMPT, policy, SPANS, seed=4, max_new_tokens=LENGTH, **given))
    for index in range(LENGTH):
        run.step((forced or {}).get(index))
    return run.steps


def factual(model: cc.LanguageModel, tokens: list[int]) -> list[float]:
    """Log-probabilities after the text as typed: one plain forward, and the softmax in Python's own numbers."""
    ids = [*model.tokenizer.encode(PROMPT), *tokens]
    with torch.inference_mode():
        row = model.module(torch.tensor([ids])).logits[0, -1].double().tolist()
    total = math.log(math.fsum(math.exp(value) for value in row))
    return [value - total for value in row]


def test_a_chains_certificate_is_that_of_its_steps_token_for_token(model, calibration) -> None:
    for forced in ({}, {1: 7}, {0: 3, 4: 11}):
        steps = written(model, SingleBranchPolicy(calibration=calibration), forced)
        supports, members = [], []
        for at, step in enumerate(steps):
            log_p = factual(model, [before.token_id for before in steps[:at]])
            # 39 contexts and alpha 0.2 give rank 8 of 40; the test counts on no token being within rounding of it.
            log_tau = sorted(calibration.joint.values.values[calibration.joint.values.steps == at].tolist())[7]
            certified = {token for token, value in enumerate(log_p) if value >= log_tau}
            shown = {row.token_id: row.certified for row in step.candidates}
            assert step.set_size == len(certified)
            assert shown == {token: token in certified for token in shown}
            assert step.certified == (step.token_id in certified and step.state == "calibrated")
            assert step.diagnostics.margin == pytest.approx(log_p[step.token_id] - log_tau, abs=1e-4)
            supports.append(log_p[step.token_id])
            members.append(step.token_id in certified)
        chain = cc.certify_chain(calibration, steps, vocabulary=model.vocabulary_size)
        weak = any(step.state == "uninformative" for step in steps)
        assert chain.union_certified is (False if not all(members) else None if weak else True)
        assert chain.log_support == pytest.approx(min(supports), abs=1e-4)
        assert chain.weakest == supports.index(min(supports))
        least = calibration.joint.values.values.reshape(CONTEXTS, LENGTH).min(1)
        missed = min(supports) < sorted(least.tolist())[7]
        assert chain.sequence_certified is (False if missed else True if chain.informative_steps == LENGTH else None)
        assert audit_summary(steps[5:], 1) == pytest.approx(supports[5], abs=1e-4)
        assert "says nothing of the masked one" in chain.sentence


def test_the_joint_support_is_another_number_and_bounds_break_where_they_have_no_ground(model, calibration) -> None:
    # So that a certificate of both readings could not pass for one of the factual reading.
    steps = written(model, SingleBranchPolicy(calibration=calibration), {1: 7})
    joint = [min(step.log_p_fused, step.log_p_masked) for step in steps]
    assert abs(cc.certify_chain(calibration, steps).log_support - min(joint)) > 0.01
    assert any(
        abs(step.diagnostics.margin - (own - step.log_tau)) > 0.01 for step, own in zip(steps, joint, strict=True)
    )
    # Corollary 1 divides by tau because the certified set has that mass in both readings; here it has not.
    steps = written(model, SingleBranchPolicy(calibration=calibration))
    assert {step.diagnostics.tv_bound for step in steps} == {None}
    assert all(step.diagnostics.tv_on_set is not None for step in steps)

    # Dual-threshold decoding may write a token that reaches the threshold, as a fallback, and certifies none then.
    class All(VowelScorer):
        def score(self, texts: Any) -> list[float]:
            return [1.0 for _ in texts]

    policy = DtcdPolicy(calibration=calibration, cap=0.5)
    steps = written(model, policy, scorers={policy.scorer: All()})
    assert all(step.fallback and not step.certified for step in steps)
    assert min(step.log_p_factual - step.log_tau for step in steps) > 0
    assert cc.certify_chain(calibration, steps).union_certified is False


def test_steps_certified_in_both_readings_keep_their_joint_certificate(model) -> None:
    policy = cc.CoftPolicy()
    own = fitting(policy, model, flat(-9.0, 40))
    steps = written(model, replace(policy, calibration=own, accept_mismatch=True))
    assert {step.certified_in for step in steps} == {"both"}
    joint = [min(step.log_p_fused, step.log_p_masked) for step in steps]
    assert cc.certify_chain(own, steps).log_support == min(joint)
    assert [step.diagnostics.margin for step in steps] == [
        value - step.log_tau for value, step in zip(joint, steps, strict=True)
    ]
