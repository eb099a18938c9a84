"""At which settings an audit can be read again, and what is refused or marked."""

from dataclasses import replace

import pytest

import coft_core as cc
from coft_core.errors import InvalidInputError, StoredLogitsError
from coft_core.model.fake import tiny_model
from coft_core.policies.ablations import NoCertificationPolicy, NoFusionPolicy
from tests.coft_core.decode.chains_to_read import alone, assert_agrees, coft, rollout, written
from tests.conftest import flat_sets_say_something


@pytest.fixture(autouse=True, scope="module")
def sets_that_say_something():
    with flat_sets_say_something():
        yield


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_calibrations_of_other_policies_are_refused_or_marked_and_stay_so(model):
    policy = coft(model)
    steps = written(model, policy)
    with pytest.raises(cc.CalibrationMismatch) as caught:
        cc.reread(steps, policy, lam=0.3, seed=3)
    assert caught.value.fields == ("lam",)
    accepted = cc.reread(steps, replace(policy, accept_mismatch=True), lam=0.3, seed=3)
    assert {reading.state for reading in accepted} == {"mismatch"}
    assert {reading.certified for reading in accepted} == {False}
    assert any(row.certified for reading in accepted for row in reading.candidates)
    cold = cc.reread(steps, replace(policy, temperature=0.25, accept_mismatch=True), seed=3)
    assert [now.noise for now in cold] == pytest.approx([4 * then.noise for then in steps])
    calibrated = coft(model).calibration
    policy = cc.CoftPolicy(lam=0.3, calibration=calibrated, accept_mismatch=True)
    steps = written(model, policy)
    assert {reading.state for reading in cc.reread(steps, policy, seed=3)} == {"mismatch"}
    other = coft(model, lam=0.3)
    fitting = cc.reread(steps, other, seed=3, fingerprint=policy.fingerprint(model, "none"))
    assert {reading.state for reading in fitting} == {"calibrated"}
    assert {reading.state for reading in cc.reread(steps, other, seed=3)} == {"mismatch"}


def test_chains_without_calibration_are_certified_later_and_vanilla_ones_read_as_coft_would(model):
    policy, other = cc.CoftPolicy(), coft(model)
    steps = written(model, policy)
    with pytest.raises(InvalidInputError, match="pass the fingerprint"):
        cc.reread(steps, policy, calibration=other.calibration, seed=3)
    own = policy.fingerprint(model, "none")
    readings = cc.reread(steps, policy, calibration=other.calibration, seed=3, fingerprint=own)
    fresh = rollout(model, other)
    for reading, step in zip(readings, steps, strict=True):
        assert_agrees(reading, fresh.step(step.token_id))
    with pytest.raises(cc.CalibrationMismatch) as caught:
        cc.reread(steps, policy, calibration=other.calibration, seed=3, fingerprint=replace(own, weights="other"))
    assert caught.value.fields == ("weights",)
    steps = written(model, cc.VanillaPolicy())
    fresh = rollout(model, cc.CoftPolicy(lam=0.8))
    for reading, step in zip(cc.reread(steps, cc.CoftPolicy(lam=0.8), seed=3), steps, strict=True):
        assert_agrees(reading, fresh.step(step.token_id))


def test_what_cannot_be_read_is_refused_in_one_sentence(model):
    for decoded, reader, options, message in (
        ({"keep_logits": False}, cc.CoftPolicy(), {}, "Step 1 was stored without its logits"),
        ({}, cc.FactorizedCoftPolicy(), {}, "branches factual, masked"),
        ({}, cc.CoftPolicy(), {"alpha": 0.2}, "no calibration to read another alpha"),
        ({}, cc.VanillaPolicy(), {"lam": 0.2}, "neither a lambda nor a calibration"),
        ({}, cc.CoftPolicy(), {"lam": 1.2}, "lambda"),
    ):
        steps = written(model, cc.CoftPolicy(), count=2, **decoded)
        with pytest.raises((StoredLogitsError, InvalidInputError), match=message) as caught:
            cc.reread(steps, reader, seed=3, **options)
        assert "\n" not in str(caught.value)


def test_texts_that_were_not_stored_show_the_tokens_number_unless_they_can_be_asked_for(model):
    steps = written(model, cc.CoftPolicy())
    bare = [replace(step, candidates=(), token=str(step.token_id), policy_token_id=-1) for step in steps]
    numbered = cc.reread(bare, cc.CoftPolicy(lam=0.0), seed=3)
    stored = {step.token_id: step.token for step in bare}
    for reading in numbered:
        number = reading.policy_token_id
        assert reading.policy_token == stored.get(number, f"<token {number}>")
    assert any(reading.policy_token.startswith("<token ") for reading in numbered)
    named = cc.reread(bare, cc.CoftPolicy(lam=0.0), seed=3, text_of=model.token_text)
    assert [r.policy_token for r in named] == [model.token_text(r.policy_token_id) for r in numbered]


def test_the_factual_reading_is_compared_with_the_threshold_at_every_lambda_and_alpha(model):
    policy = alone(model)
    steps = written(model, policy, forced=2)
    for read in (cc.reread(steps, policy, lam=0.2, seed=3), cc.reread(steps, policy, alpha=0.4, seed=3)):
        for step, own in zip(steps, read, strict=True):
            assert own.certified is (step.log_p_factual >= own.log_tau)
            assert own.diagnostics.margin == pytest.approx(step.log_p_factual - own.log_tau, abs=1e-4)
    sizes = [[own.set_size for own in cc.reread(steps, policy, lam=lam, seed=3)] for lam in (0.0, 0.6, 1.0)]
    assert sizes[0] == sizes[1] == sizes[2]
    assert len({own.log_tau for own in cc.reread(steps, policy, alpha=0.4, seed=3)} & {s.log_tau for s in steps}) == 0


@pytest.mark.parametrize(
    ("policy", "given", "named"),
    [(NoFusionPolicy(), {"lam": 0.3}, "lam"), (NoCertificationPolicy(), {"calibration": True}, "calibration")],
)
def test_what_an_ablation_leaves_out_cannot_be_changed_when_it_is_read_again(model, policy, given, named):
    steps = written(model, policy)
    if "calibration" in given:
        given = {"calibration": coft(model).calibration}
    with pytest.raises(InvalidInputError, match=f"has no {named} to change"):
        cc.reread(steps, policy, seed=3, **given)
