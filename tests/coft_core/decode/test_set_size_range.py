"""Where numeric noise could change a certified set, the step says so and gives the sizes between which it lies."""

import copy
from dataclasses import replace

import pytest
import torch

import coft_core as cc
from coft_core.decode.decide import NextStep, decide
from coft_core.model.fake import tiny_model
from coft_core.model.noise import model_noise
from coft_core.policies.base import Past
from tests.coft_core.decode.test_decode import DETECTOR, calibration

TEXT = "She was a nurse and they"
SPANS = [cc.Span(0, 3, "gender")]
STEPS = 12


@pytest.fixture(scope="module")
def narrow():
    return tiny_model(dtype=torch.bfloat16)


def both_ways(model, policy, seed, modules):
    """The steps of one chain, written token by token, and read in forwards without a cache or with exact sums."""
    rollout = cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=DETECTOR, seed=seed, max_new_tokens=STEPS))
    prepared, branches = rollout.plan, policy.branches(rollout.plan.prompt)
    pairs = []
    while rollout.finished is None:
        rows = [[*branch.input_ids, *(step.token_id for step in rollout.steps)] for branch in branches]
        written = rollout.step()
        names = tuple(branch.name for branch in branches)
        past = Past(model, prepared.prompt)
        step = NextStep(replace(prepared, greedy=True), written.index, names, 0.0, past, written.token_id)
        for module in modules:
            with torch.inference_mode():
                logits = [module(input_ids=torch.tensor([row]), use_cache=False).logits[0, -1] for row in rows]
            pairs.append((written, decide([step], torch.stack(logits)[None])[0]))
    return pairs


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_no_bfloat16_set_size_changes_between_two_ways_unless_its_step_is_marked_with_a_range(narrow, temperature):
    # At this threshold stand many tokens that the candidate table has no room for.
    bare = cc.CoftPolicy(temperature=temperature)
    policy = replace(bare, calibration=calibration(narrow, -6.0 / temperature, bare))
    noise = model_noise(narrow, temperature).nats
    # Sums in float32 stand for a processor that adds in another order: they differ on every machine.
    modules = (narrow.module, copy.deepcopy(narrow.module).float())
    pairs = [pair for seed in range(4) for pair in both_ways(narrow, policy, seed, modules)]
    flipped = [(one, other) for one, other in pairs if one.set_size != other.set_size]
    assert len(flipped) >= 10
    for one, other in flipped:
        for step, size in ((one, other.set_size), (other, one.set_size)):
            assert step.near_threshold(noise)
            assert step.set_size_low <= size <= step.set_size_high
