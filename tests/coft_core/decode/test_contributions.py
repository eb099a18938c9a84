"""Contributions of single spans against one uncached forward a span and step."""

import pytest
import torch

import coft_core as cc
from coft_core.decode import contributions as module
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from tests.conftest import PlainDetector

TEXT = "the old man said he would"
SPANS = (cc.Span(4, 7, "age"), cc.Span(8, 11, "gender"), cc.Span(17, 19, "gender"))
TOKENS = [40, 75, 81, 20]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def slow(model, spans, temperature=1.0):
    """Logit and log-probability of each token of the chain where exactly these spans are masked, float64."""
    ids = cc.mask_prompt(model.tokenizer, TEXT, spans).masked_ids
    values = []
    for index, token in enumerate(TOKENS):
        with torch.inference_mode():
            z = model.module(input_ids=torch.tensor([[*ids, *TOKENS[:index]]])).logits[0, -1].double()
        values.append([float(z[token]), float(torch.log_softmax(z / temperature, -1)[token])])
    return torch.tensor(values, dtype=torch.float64)


def ask(model, policy=None, spans=SPANS, **options):
    return cc.leave_one_out(
        model, TEXT, policy or cc.CoftPolicy(temperature=0.7), TOKENS, spans, detector=PlainDetector(), **options
    )


@pytest.mark.parametrize("at_once", [1, 2, 14])
def test_contributions_equal_the_slow_computation(model, monkeypatch, at_once):
    monkeypatch.setattr(module, "SPANS_AT_ONCE", at_once)
    found = ask(model)
    masked, factual = slow(model, SPANS, 0.7), slow(model, (), 0.7)
    assert found.token_ids == tuple(TOKENS)
    assert found.sensitivity == pytest.approx((factual - masked)[:, 0].tolist(), abs=1e-4)
    assert found.log_ratio == pytest.approx((factual - masked)[:, 1].tolist(), abs=1e-4)
    assert [own.span for own in found.spans] == list(SPANS)
    for own in found.spans:
        shown = slow(model, [span for span in SPANS if span != own.span], 0.7) - masked
        assert own.sensitivity == pytest.approx(shown[:, 0].tolist(), abs=1e-4)
        assert own.log_ratio == pytest.approx(shown[:, 1].tolist(), abs=1e-4)
        assert max(abs(value) for value in own.log_ratio) > 1e-3


def test_one_step_equals_that_of_the_chain_and_a_single_span_contributes_everything(model):
    whole, one = ask(model), ask(model, step=2)
    assert one.steps == (2,)
    assert one.token_ids == (TOKENS[2],)
    assert one.log_ratio == pytest.approx(whole.log_ratio[2:3], abs=1e-5)
    for a, b in zip(one.spans, whole.spans, strict=True):
        assert a.log_ratio == pytest.approx(b.log_ratio[2:3], abs=1e-5)
    found = ask(model, spans=SPANS[1:2])
    assert found.spans[0].log_ratio == pytest.approx(found.log_ratio, abs=1e-6)
    assert found.interaction == pytest.approx([0.0] * 4, abs=1e-6)
    found = ask(model, cc.CoftPolicy(families=("gender",)))
    assert [own.span for own in found.spans] == list(SPANS[1:])
    masked = slow(model, SPANS[1:])
    assert found.log_ratio == pytest.approx((slow(model, ()) - masked)[:, 1].tolist(), abs=1e-4)


def test_factorized_contributions_are_to_the_joint_mask_of_their_families_under_own_thresholds(model):
    # A span's branch masks every family as one, but for that span.
    for families in (None, ("age", "gender"), ("gender",)):
        joint = ask(model, cc.CoftPolicy(temperature=0.7, families=families))
        assert ask(model, cc.FactorizedCoftPolicy(temperature=0.7, families=families)) == joint
        assert len(joint.spans) == (3 if families != ("gender",) else 2)
    found = ask(model, cc.FactorizedCoftPolicy(temperature=0.7))
    masked = slow(model, SPANS, 0.7)
    for own in found.spans:
        shown = slow(model, [span for span in SPANS if span != own.span], 0.7) - masked
        assert own.log_ratio == pytest.approx(shown[:, 1].tolist(), abs=1e-4)
    span = cc.Span(0, 3, "age")
    rows = [cc.Example(f"old {i}", "so", (span,)) for i in range(12)]
    (made,) = cc.calibrate_factorized(model, rows, alpha=0.2, detector=PlainDetector())
    assert len(ask(model, cc.FactorizedCoftPolicy(calibration=made)).spans) == 3
    with pytest.raises(cc.CalibrationMismatch, match="lam"):
        ask(model, cc.FactorizedCoftPolicy(lam=0.5, calibration=made))


def test_without_masked_spans_nothing_contributes_and_bad_chains_are_refused(model):
    found = ask(model, spans=())
    assert found.spans == ()
    assert found.sensitivity == pytest.approx([0.0] * 4, abs=1e-6)
    with pytest.raises(InvalidInputError, match="no step 4"):
        ask(model, step=4)
    for tokens, match in (([], "no tokens"), ([10**6], "no token 1000000")):
        with pytest.raises(InvalidInputError, match=match):
            cc.leave_one_out(model, TEXT, cc.CoftPolicy(), tokens, SPANS, detector=PlainDetector())
