"""Packed layers multiply as plain ones do, see every change of their weights, and leave no trace in what is saved."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import coft_core as cc
from coft_core.decode.captured import path_text
from coft_core.model.branches import BranchSpec
from coft_core.model.compiled import path_of, prepare
from coft_core.model.group import BranchGroup
from coft_core.model.language_model import weights_digest
from coft_core.model.packed import PackedLinear, pack_linears, packed_bytes
from coft_core.model.placement import why_not_packed
from tests.coft_core.demo import demo_model

NOISE = {torch.float32: 2e-5, torch.bfloat16: 0.05}


PACKED = [dtype for dtype in NOISE if not why_not_packed(dtype)]
"""Number types that this processor packs; what is said of the others is tested in test_processor.py."""


def layer(bias=True, dtype=torch.float32, inputs=256, outputs=384):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Linear(inputs, outputs, bias=bias).to(dtype).requires_grad_(False)


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2)).to(dtype)


@pytest.fixture(scope="module")
def demo():
    return demo_model(device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def plain():
    return demo_model(device="cpu", dtype="float32", packed_bytes=0)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 256), (2, 1, 256), (7, 256), (3, 40, 256)])
def test_products_equal_those_in_double_precision_for_any_number_of_rows(dtype, bias, shape):
    own, taken = layer(bias, dtype), rows(*shape, dtype=dtype)
    exact = taken.double() @ own.weight.double().T + (own.bias.double() if bias else 0.0)
    found = PackedLinear(own)(taken)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, atol=NOISE[dtype], rtol=NOISE[dtype])


def test_packed_weights_are_multiplied_by_and_what_is_written_or_replaced_is_seen_at_once():
    own = PackedLinear(layer(bias=False))
    own.register_buffer("packed", PackedLinear(nn.Linear(256, 384, bias=False)).packed, persistent=False)
    assert not torch.allclose(own(rows(2, 256)), rows(2, 256) @ own.weight.T, atol=0.1)
    own = PackedLinear(layer(bias=False))
    before = own(rows(2, 256))
    with torch.no_grad():
        own.weight.mul_(2.0)
    torch.testing.assert_close(own(rows(2, 256)), 2 * before, atol=1e-4, rtol=1e-4)
    own.weight = nn.Parameter(torch.zeros_like(own.weight))
    assert not own(rows(2, 256)).any()
    own = PackedLinear(layer(bias=False))
    own.requires_grad_(True)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.5)
    own(rows(4, 256)).square().mean().backward()
    optimizer.step()
    with torch.inference_mode():
        torch.testing.assert_close(own(rows(4, 256)), rows(4, 256) @ own.weight.T, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("traced", [True, False])
def test_a_single_row_is_multiplied_by_packed_weights_only_on_a_processor_where_that_pays(monkeypatch, single, traced):
    monkeypatch.setattr("coft_core.model.packed.packs_single_rows", lambda: single)
    own = PackedLinear(layer(bias=False))
    own.register_buffer("packed", PackedLinear(nn.Linear(256, 384, bias=False)).packed, persistent=False)
    product = own
    if traced:
        traced_with = (rows(2, 1, 256), own.packed, own.weight)
        graph, _ = torch._C._create_graph_by_tracing(
            lambda taken, *_: own(taken), traced_with, lambda _: "", False, False
        )
        run = torch._C._create_function_from_graph("product", graph)

        def product(taken):
            return run(taken, own.packed, own.weight)

    with torch.inference_mode():
        for count, packed in ((1, single), (2, True)):
            equal = torch.allclose(product(rows(count, 1, 256)), rows(count, 1, 256) @ own.weight.T, atol=1e-4)
            assert equal is not packed, (count, single)


@pytest.mark.parametrize("wanted", ["weights", "rows"])
def test_gradients_are_those_of_a_plain_layer(wanted):
    gradients = []
    for own in (layer(), PackedLinear(layer())):
        taken = rows(4, 256)
        (own.weight if wanted == "weights" else taken).requires_grad_(True)
        own(taken).square().sum().backward()
        gradients.append((own.weight if wanted == "weights" else taken).grad)
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients)


def test_converted_layers_and_copies_are_plain_and_stay_right():
    own = PackedLinear(layer(bias=False)).double()
    assert own.packed is None
    torch.testing.assert_close(own(rows(2, 256).double()), rows(2, 256).double() @ own.weight.T)
    own = PackedLinear(layer())
    other = copy.deepcopy(own)
    assert type(other) is nn.Linear
    other.weight.zero_()
    assert own.weight.any()
    torch.testing.assert_close(own(rows(2, 256)), layer()(rows(2, 256)), atol=1e-5, rtol=1e-5)


def test_packed_models_keep_their_parameters_and_give_the_plain_models_logits(demo, plain):
    assert packed_bytes(demo.module) > 0 == packed_bytes(plain.module)
    assert demo.module.state_dict().keys() == plain.module.state_dict().keys()
    assert demo.module.lm_head.weight is demo.module.model.embed_tokens.weight
    assert weights_digest(demo.module) == demo.weights_digest == plain.weights_digest
    assert demo.parameter_count == plain.parameter_count
    again = copy.deepcopy(demo.module)
    assert again.lm_head.weight is again.model.embed_tokens.weight is not demo.module.lm_head.weight
    for shape in ((1, 1), (2, 1), (2, 60)):
        ids = torch.randint(5, 6000, shape, generator=torch.Generator().manual_seed(3))
        with torch.inference_mode():
            torch.testing.assert_close(demo.module(ids).logits, plain.module(ids).logits, atol=1e-4, rtol=1e-4)


def test_a_trace_over_packed_layers_gives_the_plain_model_s_logits_for_any_number_of_rows(plain):
    traced = cc.load_model("demo", device="cpu", dtype="float32")
    prepare(traced)
    assert path_of(traced).name == "traced"
    assert path_text(traced) == "traced; weights packed"
    prompts = [tuple(range(20, 20 + length)) for length in (6, 3, 9)]
    group = BranchGroup({"base": traced}, [BranchSpec(str(i), ids) for i, ids in enumerate(prompts)])
    group.logits()
    group.append(torch.tensor([31, 32, 33]))
    for ids, last, found in zip(prompts, (31, 32, 33), group.logits(), strict=True):
        with torch.inference_mode():
            expected = plain.module(torch.tensor([[*ids, last]])).logits[0, -1]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_what_is_not_packed_says_why_and_small_matrices_are_left_alone(plain):
    for changes, most, reason in (
        ({}, 1_000_000, "held twice"),
        ({"places": ("cuda:0", "cpu")}, 1 << 30, "in the CPU's memory"),
        ({"quantization": "8-bit"}, 1 << 30, "plain weights"),
    ):
        assert reason in pack_linears(replace(plain, **changes), most)
        assert packed_bytes(plain.module) == 0
    module = copy.deepcopy(plain.module).half()
    assert "float32 and bfloat16" in pack_linears(replace(plain, module=module))
    small = nn.Sequential(nn.Linear(64, 64))
    assert "no linear layers" in pack_linears(replace(plain, module=small))
    assert type(small[0]) is nn.Linear


def test_packed_products_that_are_wrong_are_never_used(plain, monkeypatch):
    monkeypatch.setattr("coft_core.model.packed.packed_product", lambda rows, packed, bias: rows.new_zeros(2, 1))
    assert pack_linears(plain) == "oneDNN gives other products here"
    assert packed_bytes(plain.module) == 0
