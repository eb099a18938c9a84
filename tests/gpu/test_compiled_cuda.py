"""Captured steps on a GPU say what eager ones say; skipped where there is none."""

import pytest
import torch

import coft_core as cc
from coft_core.decode.captured import path_text, prepare_model, step_functions
from coft_core.model.branches import BranchBatch, joint_logits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TEXT = "The nurse finished rounds and then he prepared the reports"
SPANS = [cc.Span(35, 37, "gender")]


def rollout(model, policy, **options):
    return cc.Rollout(cc.plan(model, TEXT, policy, SPANS, max_new_tokens=80, **options))


@pytest.fixture(scope="module")
def prepared():
    model = cc.load_model("demo", device="cuda", dtype="float32")
    prepare_model(model)
    return model


def test_the_embedded_model_is_captured_and_says_so(prepared):
    assert path_text(prepared) == "CUDA graph"


@pytest.mark.parametrize("policy", [cc.CoftPolicy(), cc.VanillaPolicy(observe_masked=False), cc.FactorizedCoftPolicy()])
@pytest.mark.parametrize("keep_logits", [False, True])
def test_a_captured_chain_equals_the_eager_one(prepared, policy, keep_logits):
    eager = cc.load_model("demo", device="cuda", dtype="float32")
    runs = [rollout(model, policy, seed=2, keep_logits=keep_logits) for model in (eager, prepared)]
    for index in range(72):  # past the first capacity of the memory, where another graph is captured
        expected, found = (run.step(60 + index % 5) for run in runs)
        assert found.policy_token_id == expected.policy_token_id
        for name in ("log_p_factual", "log_p_masked", "log_p_fused", "certified_mass"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-3)
        assert (found.logits is None) == (not keep_logits)
    assert not step_functions(prepared).failure


def test_going_back_and_forking_work_under_a_graph(prepared):
    run = rollout(prepared, cc.CoftPolicy())
    # Tokens are forced, so that no end token finishes the text.
    for index in range(10):
        run.step(60 + index % 5)
    expected = [step.log_p_fused for step in run.steps[6:]]
    fork = run.fork(5, run.steps[5].token_id)
    run.back(4)
    for again in (run, fork):
        for index in range(6, 10):
            again.step(60 + index % 5)
        assert [step.log_p_fused for step in again.steps[6:]] == pytest.approx(expected, abs=1e-3)


def test_sessions_that_step_together_share_a_captured_forward(prepared):
    prompts = [tuple(range(20, 20 + length)) for length in (6, 30, 11)]
    batches, alone = ([BranchBatch(prepared, [own, own[1:]]) for own in prompts] for _ in range(2))
    for batch in (*batches, *alone):
        batch.logits()
    for index in range(70):  # past the first capacity of the memories
        for batch in (*batches, *alone):
            batch.append(torch.tensor([60 + index % 5] * 2))
        for found, batch in zip(joint_logits(batches), alone, strict=True):
            torch.testing.assert_close(found, batch.logits(), atol=1e-3, rtol=1e-3)
    assert path_text(prepared) == "CUDA graph"


def test_a_captured_step_makes_no_implicit_synchronisation(prepared):
    run = rollout(prepared, cc.CoftPolicy())
    for _ in range(8):
        run.step(60)
    torch.cuda.set_sync_debug_mode("error")
    try:
        # The step's own wait is for the event behind its copy, which this mode does not count.
        run.step(60)
    finally:
        torch.cuda.set_sync_debug_mode("default")
