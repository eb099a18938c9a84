"""What a step takes of a GPU; skipped where there is none."""

import pytest
import torch

import coft_core as cc
from coft_core.decode.cost import footprint_of, measured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_the_measured_peak_holds_at_least_the_weights_and_all_keys_and_values():
    model = cc.load_model("demo", device="cuda")
    prepared = cc.plan(model, "The nurse said he", cc.CoftPolicy(), [cc.Span(15, 17, "gender")])
    rollout = cc.Rollout(prepared)
    costs = []
    for _ in range(4):
        with measured(rollout) as cost:
            rollout.step()
        costs.append(cost())
    computed = footprint_of(prepared)
    least = computed.model_bytes + computed.key_value_bytes(3)
    for cost in costs:
        assert cost.peak_bytes is not None
        assert least <= cost.peak_bytes <= torch.cuda.get_device_properties(model.device).total_memory
