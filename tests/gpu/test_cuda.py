"""The same numbers on a GPU; skipped where there is none."""

import pytest
import torch

import coft_core as cc

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TEXT = "The nurse finished rounds and then he prepared the reports"
SPANS = [cc.Span(35, 37, "gender")]


def chain(device, dtype):
    model = cc.load_model("demo", device=device, dtype=dtype)
    return cc.generate(model, TEXT, cc.CoftPolicy(), spans=SPANS, max_new_tokens=32, greedy=True).steps


def test_a_greedy_chain_in_float32_equals_the_cpus():
    on_gpu, on_cpu = chain("cuda", "float32"), chain("cpu", "float32")
    assert [s.token_id for s in on_gpu] == [s.token_id for s in on_cpu]
    for a, b in zip(on_gpu, on_cpu, strict=True):
        assert a.log_p_fused == pytest.approx(b.log_p_fused, abs=1e-3)
        assert a.log_p_masked == pytest.approx(b.log_p_masked, abs=1e-3)


def test_the_default_on_a_gpu_is_bfloat16_with_fusion_in_float32():
    model = cc.load_model("demo")
    assert model.device.type == "cuda"
    assert model.dtype is torch.bfloat16
    prompt = cc.mask_prompt(model.tokenizer, TEXT, SPANS)
    ids = torch.tensor([prompt.factual_ids, prompt.masked_ids], device="cuda")
    logits = model.module(input_ids=ids).logits
    assert cc.fuse_logits(logits[0], logits[1], 0.6).dtype is torch.float32


def test_a_step_waits_for_the_gpu_once():
    model = cc.load_model("demo", device="cuda", dtype="float32")
    rollout = cc.Rollout(cc.plan(model, TEXT, cc.CoftPolicy(), SPANS))
    rollout.step()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchroniz") as caught:
            rollout.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len([w for w in caught if "synchroniz" in str(w.message)]) == 1
