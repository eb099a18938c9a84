"""COFT with a part taken away, token by token against a slow computation."""

import math

import numpy as np
import pytest
import torch

from coft_core.calibrate.run import calibrate
from coft_core.decode.loop import generate
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.policies.ablations import NoCertificationPolicy, NoFusionPolicy
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.registry import method
from coft_core.text.masking import mask_prompt
from coft_core.types import Certificate, Example, Span

TEXT = "The man went to the shop and"
SPANS = (Span(4, 7, "gender"),)
STEPS = 6


@pytest.fixture(scope="module")
def model():
    return tiny_model(seed=4)


@pytest.fixture(scope="module")
def at_zero(model):
    """A calibration of COFT at lambda 0."""
    examples = [Example(f"{TEXT} number {n}", " then he was late", None) for n in range(40)]
    return calibrate(model, examples, lam=0.0, alpha=0.4)


def distributions(model, written):
    """Factual and masked distribution after some tokens, without a cache."""
    prompt = mask_prompt(model.tokenizer, TEXT, SPANS)
    rows = torch.tensor([[*ids, *written] for ids in (prompt.factual_ids, prompt.masked_ids)])
    with torch.inference_mode():
        logits = model.module(input_ids=rows, use_cache=False).logits[:, -1].double().numpy()
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True)


def test_without_fusion_the_likeliest_supported_factual_token_is_written_as_by_coft_at_lambda_zero(model, at_zero):
    run = generate(model, TEXT, NoFusionPolicy(calibration=at_zero), SPANS, STEPS, greedy=True)
    assert Certificate.read(run.certificate).certified
    written = []
    for step in run.steps:
        factual, masked = distributions(model, written)
        allowed = np.minimum(factual, masked) >= math.exp(at_zero.threshold(step.index))
        expected = int(np.where(allowed if allowed.any() else True, factual, -1).argmax())
        assert step.token_id == expected
        assert step.set_size == allowed.sum()
        assert step.log_p_fused == pytest.approx(math.log(factual[expected]), abs=1e-4)
        written.append(expected)
    policies = NoFusionPolicy(calibration=at_zero), CoftPolicy(lam=0.0, calibration=at_zero)
    runs = [generate(model, TEXT, policy, SPANS, STEPS, seed=3) for policy in policies]
    assert runs[0].steps == runs[1].steps
    with pytest.raises(TypeError):
        NoFusionPolicy(lam=0.5)
    with pytest.raises(TypeError):
        NoCertificationPolicy(calibration=at_zero)
    assert method("coft-no-fusion").build(lam=0.9).lam == 0.0
    assert method("coft-no-certification").build(calibration=at_zero).calibration is None
    with pytest.raises(InvalidInputError, match="none of its own"):
        method("coft-no-fusion").build({"lam": 0.5})


def test_without_certification_the_likeliest_fused_token_is_written(model):
    run = generate(model, TEXT, NoCertificationPolicy(lam=0.3), SPANS, STEPS, greedy=True)
    assert run.certificate == "uncertified: no calibration"
    written = []
    for step in run.steps:
        factual, masked = distributions(model, written)
        mixture = factual**0.7 * masked**0.3
        expected = int(mixture.argmax())
        assert step.token_id == expected
        assert step.log_p_fused == pytest.approx(math.log(mixture[expected] / mixture.sum()), abs=1e-4)
        assert step.state == "none"
        written.append(expected)
