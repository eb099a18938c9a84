"""Support of given tokens against whole distributions in float64, and the threshold that a prompt made."""

import pytest
import torch

import coft_core as cc
from coft_core.calibrate import true_tokens
from coft_core.calibrate.true_tokens import token_support
from coft_core.conformal.values import BELOW
from coft_core.model.fake import tiny_model
from tests.coft_core.calibrate.conftest import PlainDetector

LAMS = [0.0, 0.3, 0.6, 1.0]


def whole(logits, tokens, lams, temperature):
    """The definition: log-softmaxes over the vocabulary, in float64."""
    z = logits.double() / temperature
    mean = z[:, 1:].mean(1)
    rows = torch.arange(len(z))
    by_lam = []
    for lam in lams:
        mixed = z[:, 0] if lam == 0 else mean if lam == 1 else (1 - lam) * z[:, 0] + lam * mean
        fused = torch.log_softmax(mixed, -1)[rows, tokens]
        masked = torch.log_softmax(z[:, 1:], -1)[rows, :, tokens]
        by_lam.append(torch.minimum(fused[:, None], masked))
    return torch.stack(by_lam, dim=1)


def case(n, branches, scale, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n)
    logits = (scale * torch.randn(n, branches, 50, generator=generator) + 7).to(dtype)
    return logits, torch.randint(50, (n,), generator=generator)


@pytest.mark.parametrize("branches", [2, 4])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_support_equals_the_definition(branches, temperature, dtype):
    logits, tokens = case(23, branches, 3.0, dtype)
    found = token_support(logits, tokens, LAMS, temperature)
    assert found.shape == (23, len(LAMS), branches - 1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), whole(logits, tokens, LAMS, temperature), atol=1e-5, rtol=1e-5)


def test_pieces_give_the_same_as_the_whole(monkeypatch):
    logits, tokens = case(17, 3, 2.0)
    expected = token_support(logits, tokens, LAMS)
    monkeypatch.setattr(true_tokens, "CPU_ELEMENTS", 150)
    assert torch.equal(token_support(logits, tokens, LAMS), expected)


def test_underflow_and_forbidden_tokens_spoil_no_support_and_no_logits():
    logits = torch.full((2, 2, 30), -400.0)
    logits[0, 0, 3] = logits[0, 1, 9] = 0.0
    logits[1] = torch.randn(2, 30, generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([3, 4])
    found = token_support(logits, tokens, LAMS)
    torch.testing.assert_close(found.double(), whole(logits, tokens, LAMS, 1.0), atol=1e-4, rtol=1e-5)
    logits, tokens = case(4, 2, 1.0)
    logits[:, 1, 49] = -torch.inf
    tokens[0], tokens[1:] = 49, 5
    found = token_support(logits, tokens, LAMS)
    assert (found[0] == -torch.inf).all()
    torch.testing.assert_close(found[1:].double(), whole(logits, tokens, LAMS, 1.0)[1:], atol=1e-5, rtol=1e-5)
    logits, tokens = case(5, 2, 1.0)
    copy = logits.clone()
    token_support(logits, tokens, LAMS)
    assert torch.equal(logits, copy)


PROMPTS = ("The old man", "A nurse", "The man who left", "An old nurse said", "Then the man")
REFERENCES = (" went home.", " was late again", " did not say why.", " so.")


def test_no_reference_is_refused_by_rounding_at_the_threshold_that_it_made():
    model = tiny_model()
    examples = [cc.Example(f"{prompt}{n}", reference) for n, reference in enumerate(REFERENCES) for prompt in PROMPTS]
    options = {"verification_share": 0.0, "detector": PlainDetector(), "bin_width": 1, "bin_spacing": "even"}
    made = cc.calibrate(model, examples, alpha=0.2, **options)
    policy = cc.CoftPolicy(calibration=made)
    margins = [
        step.diagnostics.margin
        for example in examples
        for step in cc.score(model, example.prompt, example.reference, policy, detector=PlainDetector())
    ]
    makers = [margin for margin in margins if abs(margin) < 2 * BELOW]
    assert len(makers) >= 3
    assert all(margin > BELOW / 2 for margin in makers)
