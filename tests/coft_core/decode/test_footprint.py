"""What a chain costs: computed memory is that of the caches themselves, and a measured step is the step."""

import copy
from dataclasses import replace

import torch

import coft_core as cc
from coft_core.decode.cost import DevicePeaks, footprint_of, measured, reserved_bytes, weight_bytes
from coft_core.model.slots import token_size
from coft_core.policies.contrastive import ContrastivePolicy
from tests.conftest import load_tiny

TEXT = "The nurse said he"
SPANS = [cc.Span(15, 17, "gender")]


def plan(policy):
    return cc.plan(load_tiny("tiny"), TEXT, policy, SPANS, max_new_tokens=6)


def test_key_values_count_every_branch_and_grow_by_the_bytes_of_a_token():
    model = load_tiny("tiny")
    sizes = []
    for length in (3, 4):
        with torch.inference_mode():
            cache = model.module(torch.zeros((1, length), dtype=torch.long), use_cache=True).past_key_values
        sizes.append(sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers))
    assert sizes[1] - sizes[0] == token_size(model) > 0
    prepared = plan(cc.CoftPolicy())
    found = footprint_of(prepared)
    lengths = [len(prepared.prompt.factual_ids), len(prepared.prompt.masked_ids)]
    assert list(found.prompt_tokens) == lengths
    assert found.known
    one = token_size(prepared.model)
    assert found.key_value_bytes(5) == one * (sum(lengths) + 2 * 5)
    assert found.further_bytes == 0
    assert found.model_bytes == sum(p.numel() * p.element_size() for p in prepared.model.module.parameters())


def test_a_further_model_counts_with_its_weights_and_the_audited_one_never_twice():
    model = load_tiny("tiny")
    other = replace(model, module=copy.deepcopy(model.module))
    policy = ContrastivePolicy(against="amateur", amateur="tiny")
    apart = cc.plan(model, TEXT, policy, SPANS, models={"amateur": other})
    shared = cc.plan(model, TEXT, policy, SPANS, models={"amateur": model})
    assert footprint_of(apart).further_bytes == weight_bytes(other) > 0
    assert footprint_of(shared).further_bytes == 0


def test_a_measured_step_is_the_step_that_is_taken_without_measuring():
    plain, timed = cc.Rollout(plan(cc.CoftPolicy())), cc.Rollout(plan(cc.CoftPolicy()))
    for _ in range(3):
        with measured(timed) as cost:
            step = timed.step()
        assert step == plain.step()
        assert cost().seconds > 0
        assert cost().peak_bytes is None


def test_whoever_measures_a_step_leaves_others_the_peak_that_they_reached_before():
    mark = 0

    def reset(own):
        nonlocal mark
        mark = 2 if own == device else mark

    device, other = torch.device("cuda", 0), torch.device("cuda", 1)
    peaks = DevicePeaks(read=lambda own: mark if own == device else 1, reset=reset)
    with peaks.window(device) as first:
        mark = 10
        with peaks.window(other), peaks.window(device) as second:
            mark = 3
    assert (first.peak, second.peak) == (10, 3)


def test_what_is_set_aside_for_a_rollout_is_what_it_holds_at_its_end():
    policy = ContrastivePolicy(against="amateur", amateur="tiny")
    model = load_tiny("tiny")
    other = replace(model, module=copy.deepcopy(model.module), findings={})
    for prepared in (plan(cc.CoftPolicy()), cc.plan(model, TEXT, policy, SPANS, models={"amateur": other})):
        rollout = cc.Rollout(prepared)
        for _ in range(3):
            rollout.step()
        assert reserved_bytes(prepared, 3) == rollout.memory_size > 0
        assert rollout.memory_size_next == rollout.memory_size


def test_a_rollout_says_how_its_memory_is_kept():
    rollout = cc.Rollout(plan(cc.CoftPolicy()))
    before = rollout.memory_uses
    rollout.step()
    assert rollout.memory_uses == before
    assert [(name, use.kind, use.held_once, use.joins) for name, use in before.items()] == [("base", "slots", 0, True)]
