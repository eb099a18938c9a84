"""What the processor can do is asked once, and whatever it is, models load, run, and say in which form they do."""

import pytest
import torch

import coft_core as cc
from coft_core.decode.captured import path_text, prepare_model
from coft_core.model import placement as processor
from coft_core.model.packed import PackedLinear, packed_bytes, weights_text
from coft_core.model.placement import multiplies_bfloat16, why_not_packed


@pytest.fixture(autouse=True)
def asked_anew():
    """Answers that a test has made up are forgotten."""
    yield
    why_not_packed.cache_clear()
    multiplies_bfloat16.cache_clear()


# What a packed model in float32 says is in test_packed.py.
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
def test_a_model_is_packed_exactly_where_the_processor_packs_its_type_and_the_path_says_which(dtype):
    model = cc.load_model("demo", device="cpu", dtype=dtype)
    reason = why_not_packed(getattr(torch, dtype))
    assert (packed_bytes(model.module) > 0) == (not reason)
    assert prepare_model(model) == "traced; " + (f"weights plain ({reason})" if reason else "weights packed")


def test_a_type_that_the_processor_refuses_is_tried_once_and_never_packed(monkeypatch):
    tried = []

    def refuse(weight):
        tried.append(weight.dtype)
        raise RuntimeError("no kernel\nand a long list")

    monkeypatch.setattr(processor, "packed_weights", refuse)
    why_not_packed.cache_clear()
    first, second = (cc.load_model("demo", device="cpu", dtype="float32") for _ in range(2))
    assert tried == [torch.float32]
    for model in (first, second):
        assert not any(isinstance(child, PackedLinear) for child in model.module.modules())
        assert weights_text(model) == "weights plain (oneDNN does not pack float32 weights on this processor)"
        assert path_text(model).endswith(weights_text(model))


def test_a_processor_whose_packed_products_are_wrong_packs_nothing(monkeypatch):
    monkeypatch.setattr(processor, "packed_product", lambda rows, packed, bias: torch.zeros(rows.shape[0], 16))
    why_not_packed.cache_clear()
    assert "wrongly" in why_not_packed(torch.float32)


@pytest.mark.parametrize(("features", "by_onednn", "expected"), [
    ({"avx512_bf16": True}, True, True), ({"amx_bf16": True, "avx512_bf16": False}, True, True),
    ({"avx512_bf16": True}, False, False), ({"avx2": True}, True, False),
])  # fmt: skip
def test_bfloat16_is_multiplied_where_both_processor_and_onednn_do(features, by_onednn, expected, monkeypatch):
    class Onednn:
        def _is_mkldnn_bf16_supported(self):
            return by_onednn

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features)
    monkeypatch.setattr(processor, "_onednn", Onednn())
    multiplies_bfloat16.cache_clear()
    assert multiplies_bfloat16() is expected
