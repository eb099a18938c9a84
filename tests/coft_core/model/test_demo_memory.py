"""The embedded model decoded over preallocated memory against plain recomputation of the whole rows at every step."""

import csv
from pathlib import Path

import pytest
import torch

import coft_core as cc
from coft_core.assets import assets_path
from coft_core.decode.loop import generate_together
from coft_core.model.branches import BranchBatch
from coft_core.model.memory import Sharing
from tests.coft_core.demo import demo_model

PROMPTS = Path(__file__).resolve().parents[3] / "assets" / "prompts"
PROMPT_COUNT, TOKENS = 8, 3
NOISE = 1e-4
"""Largest difference of two logits in float32."""


@pytest.fixture(scope="module")
def model():
    return demo_model(device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def policy():
    return cc.CoftPolicy(lam=0.6, calibration=cc.Calibration.load(assets_path("models", "demo", "calibration.zip")))


@pytest.fixture(scope="module")
def plans(model, policy):
    """Prompts of the sample sets, with one word of each masked: which one plays no part here."""
    with (PROMPTS / "hiring_questions.csv").open(encoding="utf-8") as file:
        texts = [row["prompt"] for row in csv.DictReader(file)]
    texts = texts[:: max(len(texts) // PROMPT_COUNT, 1)][:PROMPT_COUNT]
    assert len(texts) == PROMPT_COUNT
    starts = [text.index(" ", 20) + 1 for text in texts]
    spans = [(cc.Span(at, text.index(" ", at), "gender"),) for text, at in zip(texts, starts, strict=True)]
    return [
        cc.plan(model, text, cc.CoftPolicy(lam=0.6), own, greedy=True, max_new_tokens=TOKENS)
        for text, own in zip(texts, spans, strict=True)
    ]


def recomputed(plan, chain, count=1):
    """Both branches' logits after a chain and before its last tokens, without a cache, ``(count, 2, V)``."""
    rows = [[*ids, *chain] for ids in (plan.prompt.factual_ids, plan.prompt.masked_ids)]
    with torch.inference_mode():
        logits = plan.model.module(input_ids=torch.tensor(rows), use_cache=False, logits_to_keep=count).logits
    return logits.transpose(0, 1)


def test_greedy_chains_of_many_prompts_equal_recomputation_token_for_token(plans):
    together = generate_together(plans)
    for plan, run in zip(plans, together, strict=True):
        rollout = cc.Rollout(plan)
        while rollout.finished is None:
            rollout.step()
        tokens = [step.token_id for step in rollout.steps]
        logits = recomputed(plan, tokens[:-1], len(tokens))
        fused = cc.fuse_logits(logits[:, 0], logits[:, 1], 0.6)  # (C, V)
        assert fused.argmax(-1).tolist() == tokens
        assert [step.token_id for step in run.steps] == tokens


@pytest.mark.parametrize("sharing", [Sharing(1 << 40, None), Sharing(1, None), Sharing(1, 1)],
                         ids=["apart", "read once", "held once"])  # fmt: skip
def test_certified_sets_differ_only_where_the_margin_is_within_the_noise(plans, policy, sharing):
    names = tuple(branch.name for branch in policy.branches(plans[0].prompt))
    for plan in plans[:2]:
        rows = [branch.input_ids for branch in policy.branches(plan.prompt)]
        batch, chain = BranchBatch(plan.model, rows, sharing=sharing), []
        for step in range(TOKENS):
            logits, expected = batch.logits()[None], recomputed(plan, chain)
            assert (logits - expected).abs().max() < NOISE
            own, plain = (policy.views(each, step, names) for each in (logits, expected))
            support = torch.minimum(plain.log_p_fused, plain.log_p_masked)  # (1, V)
            differ = own.certified != plain.certified
            assert ((support - plain.log_tau).abs()[differ] <= 4 * NOISE).all()
            chain.append(int(plain.log_p_fused.argmax()))
            batch.append(torch.full((2,), chain[-1]))
