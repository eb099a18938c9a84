"""Reading an audit again: the same step at the same settings, and what a fresh run says at others."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import coft_core as cc
from coft_core.conformal.factorized import FactorizedCalibration
from coft_core.conformal.values import CalibrationValues
from coft_core.decode import path_at
from coft_core.engine.fake import tiny_model
from coft_core.errors import InvalidInputError, StoredLogitsError
from coft_core.policies.ablations import NoCertificationPolicy, NoFusionPolicy
from coft_core.policies.single_branch import SingleBranchPolicy, factual_only

TEXT = "the old man said he would"
SPANS = [cc.Span(4, 11, "age"), cc.Span(17, 19, "gender")]
DEMO_TEXT = "The nurse finished rounds and then he prepared the reports"
DEMO_SPANS = [cc.Span(35, 37, "gender")]


class PlainDetector:
    """Finds nothing; keeps these tests independent of the lexicons."""

    version = "none"

    def detect(self, text):
        return []


def calibration(model, policy, low=0.005, high=0.06):
    """A calibration for a policy, with values from ``low`` to ``high`` so that alpha matters."""
    bare = policy.fingerprint(model, "none")
    fingerprint = replace(bare, estimator="hierarchical", source="reference")
    values = np.tile(np.log(np.linspace(low, high, 99)), 8)
    steps = np.repeat(np.arange(8), 99)
    return cc.Calibration(fingerprint, 0.1, CalibrationValues(values, steps, np.tile(np.arange(99), 8)))


def coft(model, lam=0.6, **settings):
    bare = cc.CoftPolicy(lam=lam, **settings)
    return replace(bare, calibration=calibration(model, bare))


def alone(model, lam=0.6):
    """Certified in the factual reading alone; its thresholds fit at every lambda."""
    bare = SingleBranchPolicy(lam=lam)
    made = calibration(model, bare)
    return replace(bare, calibration=replace(made, fingerprint=factual_only(made, made.fingerprint)))


def factorized(model, lam=0.6):
    bare = cc.FactorizedCoftPolicy(lam=lam)
    parts = (
        ("gender", calibration(model, bare, 0.004, 0.02).read(alpha=0.05)),
        ("age", calibration(model, bare, 0.01, 0.05).read(alpha=0.05)),
    )
    return replace(bare, calibration=FactorizedCalibration(0.1, parts))


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def demo():
    return cc.load_model("demo", device="cpu")


def rollout(model, policy, steps=(), path="0", head_tokens=None, **options):
    text, spans = (TEXT, SPANS) if model.name.startswith("tiny") else (DEMO_TEXT, DEMO_SPANS)
    settings = {"seed": 3, "max_new_tokens": 16, "keep_logits": True, **options}
    prepared = cc.plan(model, text, policy, spans, detector=PlainDetector(), **settings)
    if head_tokens is not None:
        prepared = replace(prepared, full_bytes=0, head_tokens=head_tokens)
    return cc.Rollout(prepared, path, steps)


def written(model, policy, count=8, forced=None, **options):
    """A chain, one of its tokens forced."""
    run = rollout(model, policy, **options)
    for index in range(count):
        run.step(77 if index == forced else None)
    return run.steps


def close(a, b):
    return a == b or a == pytest.approx(b, abs=1e-4)


def assert_agrees(reading, fresh):
    """A reading says what a freshly decoded step says, but for rounding between two runs of the model."""
    assert reading.log_tau == fresh.log_tau
    assert (reading.state, reading.token_id, reading.fallback) == (fresh.state, fresh.token_id, fresh.fallback)
    assert reading.certified == fresh.certified
    assert reading.policy_token_id == fresh.policy_token_id
    assert reading.set_size == cc.Bounds(fresh.set_size, fresh.set_size)
    for bounds, value in (
        (reading.log_p_fused, fresh.log_p_fused),
        (reading.certified_mass, fresh.certified_mass),
        (reading.margin, fresh.diagnostics.margin),
        (reading.kl_fused_masked, fresh.diagnostics.kl_fused_masked),
    ):
        assert bounds.exact
        assert close(bounds.low, value)
    for own, part in zip(reading.families, fresh.families, strict=True):
        assert (own.family, own.log_tau, own.in_set) == (part.family, part.log_tau, part.certified)


POLICIES = {
    "joint": coft,
    "joint, top-k": lambda model: coft(model, top_k=3, top_p=1.0),
    "factorized": factorized,
    "factual reading alone": alone,
    "no certification": lambda model: NoCertificationPolicy(),
    "no calibration": lambda model: cc.CoftPolicy(),
    "vanilla": lambda model: cc.VanillaPolicy(),
    "vanilla, alone": lambda model: cc.VanillaPolicy(observe_masked=False),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("greedy", [False, True])
def test_read_as_it_was_decoded_a_chain_is_the_very_chain(model, name, greedy):
    policy = POLICIES[name](model)
    steps = written(model, policy, forced=2, greedy=greedy)
    readings = cc.reread(steps, policy, seed=3, greedy=greedy)
    assert tuple(reading.step for reading in readings) == steps
    for reading, step in zip(readings, steps, strict=True):
        assert reading.changed is False
        assert reading.note == ""
        assert reading.certified == step.certified
        assert reading.set_size == cc.Bounds(step.set_size, step.set_size)
        assert [part.in_set for part in reading.families] == [part.certified for part in step.families]


@pytest.mark.parametrize("build", [coft, factorized])
@pytest.mark.parametrize("lam", [0.0, 0.25, 1.0])
def test_another_lambda_says_what_the_model_says_when_forced_along_the_chain(model, build, lam):
    steps = written(model, build(model), forced=1)
    other = build(model, lam=lam)
    readings = cc.reread(steps, build(model), lam=lam, calibration=other.calibration, seed=3)
    fresh = rollout(model, other)
    for reading, step in zip(readings, steps, strict=True):
        forced = fresh.step(step.token_id)
        assert_agrees(reading, forced)
        assert reading.changed == (forced.policy_token_id != step.policy_token_id)
    assert any(reading.changed for reading in readings)


@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_another_alpha_says_what_the_model_says_with_thresholds_read_at_it(model, alpha):
    policy = coft(model)
    steps = written(model, policy)
    fresh = rollout(model, replace(policy, calibration=policy.calibration.read(alpha=alpha)))
    readings = cc.reread(steps, policy, alpha=alpha, seed=3)
    for reading, step in zip(readings, steps, strict=True):
        assert_agrees(reading, fresh.step(step.token_id))
    assert {reading.log_tau for reading in readings} != {step.log_tau for step in steps}


def test_the_embedded_model_reads_the_same_at_another_lambda(demo):
    steps = written(demo, cc.CoftPolicy(), count=5)
    fresh = rollout(demo, cc.CoftPolicy(lam=0.1))
    for reading, step in zip(cc.reread(steps, cc.CoftPolicy(lam=0.1), seed=3), steps, strict=True):
        assert_agrees(reading, fresh.step(step.token_id))


def test_the_token_that_would_have_been_chosen_is_what_a_real_fork_chooses(model):
    policy, other = coft(model), coft(model, lam=0.1)
    steps = written(model, policy, forced=4)
    readings = cc.reread(steps, other, seed=3, fingerprint=other.calibration.fingerprint)
    chosen = [rollout(model, other, steps[:index]).step().token_id for index in range(len(steps))]
    assert [reading.policy_token_id for reading in readings] == chosen
    assert chosen != [step.policy_token_id for step in steps]


def test_a_forks_chain_is_read_with_the_draws_of_the_branches_that_wrote_it(model):
    policy = coft(model)
    parent = rollout(model, policy)
    for _ in range(8):
        parent.step()
    fork = parent.fork(5, 77)
    fork.step()
    earlier = fork.fork(2, 88)
    for _ in range(4):
        earlier.step()
    assert earlier.steps[2].policy_token_id == parent.steps[2].token_id
    for run in (parent, fork, earlier):
        readings = cc.reread(run.steps, policy, seed=3, path=run.path)
        assert tuple(reading.step for reading in readings) == run.steps
    drawn = [reading.policy_token_id for reading in cc.reread(fork.steps, policy, seed=4, path=fork.path)]
    assert drawn != [step.policy_token_id for step in fork.steps]


def test_going_back_beyond_a_fork_writes_the_parents_chain_again(model):
    parent = rollout(model, coft(model))
    for _ in range(6):
        parent.step()
    fork = parent.fork(3, 77)
    fork.back(3)
    assert [fork.step().token_id for _ in range(3)] == [step.token_id for step in parent.steps[1:4]]


@pytest.mark.parametrize(
    ("path", "index", "expected"),
    [
        ("0", 0, "0"),
        ("0/3:77", 3, "0"),
        ("0/3:77", 4, "0/3:77"),
        ("0/5:1/3:9", 3, "0"),
        ("0/5:1/3:9", 4, "0/5:1/3:9"),
        ("0/3:9/5:1", 4, "0/3:9"),
    ],
)
def test_a_step_is_drawn_with_the_path_of_the_branch_that_wrote_it(path, index, expected):
    assert path_at(path, index) == expected


@pytest.mark.parametrize("build", [coft, factorized, alone])
def test_a_head_never_contradicts_the_whole_and_its_bounds_hold_it(model, build):
    policy, other = build(model), build(model, lam=0.2)
    whole = written(model, policy, forced=2)
    heads = written(model, policy, forced=2, head_tokens=12)
    assert {step.logits.mode for step in heads} == {"head"}
    assert heads == whole
    settings = {"lam": 0.2, "calibration": other.calibration, "seed": 3}
    known = 0
    for head, full in zip(cc.reread(heads, policy, **settings), cc.reread(whole, policy, **settings), strict=True):
        assert head.step is None
        for name in ("in_set", "fallback", "policy_token_id", "changed"):
            assert getattr(head, name) in (None, getattr(full, name))
        for name in ("log_p_fused", "set_size", "certified_mass", "margin", "kl_fused_masked"):
            bounds = getattr(head, name)
            assert bounds.low - 1e-4 <= getattr(full, name).low <= bounds.high + 1e-4
        known += head.policy_token_id is not None
    assert known


def test_logits_are_kept_only_when_asked_for_and_change_nothing_else(model):
    policy = coft(model)
    options = {"spans": SPANS, "detector": PlainDetector(), "max_new_tokens": 8, "seed": 3}
    plain = cc.generate(model, TEXT, policy, **options)
    kept = cc.generate(model, TEXT, policy, keep_logits=True, **options)
    assert plain == kept
    assert {step.logits for step in plain.steps} == {None}
    assert all(isinstance(step.logits, cc.StoredLogits) for step in kept.steps)
    assert "logits" not in repr(kept.steps[0])


@pytest.mark.parametrize("head_tokens", [None, 12])
def test_kept_logits_cross_to_the_host_with_the_step_in_one_transfer(model, monkeypatch, head_tokens):
    run = rollout(model, coft(model), head_tokens=head_tokens)
    run.step()
    crossed = []
    to_host = torch.Tensor.cpu

    def counted(tensor):
        crossed.append(tensor.shape)
        return to_host(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", counted)
    for name in ("tolist", "item", "__bool__", "nonzero", "unique", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_, called=name: pytest.fail(f"{called} is a second transfer"))
    monkeypatch.setattr(torch, "nonzero", lambda *_: pytest.fail("a second transfer"))
    step = run.step()
    assert len(crossed) == 1
    assert step.logits is not None


def test_a_calibration_of_another_lambda_is_refused_or_marked(model):
    policy = coft(model)
    steps = written(model, policy)
    with pytest.raises(cc.CalibrationMismatch) as caught:
        cc.reread(steps, policy, lam=0.3, seed=3)
    assert caught.value.fields == ("lam",)
    accepted = cc.reread(steps, replace(policy, accept_mismatch=True), lam=0.3, seed=3)
    assert {reading.state for reading in accepted} == {"mismatch"}
    assert {reading.certified for reading in accepted} == {False}
    assert any(reading.in_set for reading in accepted)


def test_steps_that_were_decoded_with_a_calibration_of_another_policy_stay_so(model):
    calibrated = coft(model).calibration
    policy = cc.CoftPolicy(lam=0.3, calibration=calibrated, accept_mismatch=True)
    steps = written(model, policy)
    assert {reading.state for reading in cc.reread(steps, policy, seed=3)} == {"mismatch"}
    other = coft(model, lam=0.3)
    fitting = cc.reread(steps, other, seed=3, fingerprint=policy.fingerprint(model, "none"))
    assert {reading.state for reading in fitting} == {"calibrated"}
    assert {reading.state for reading in cc.reread(steps, other, seed=3)} == {"mismatch"}


def test_a_chain_without_calibration_is_certified_later_with_its_fingerprint(model):
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


def test_a_vanilla_chain_is_read_as_coft_would_have_seen_it(model):
    steps = written(model, cc.VanillaPolicy())
    fresh = rollout(model, cc.CoftPolicy(lam=0.8))
    for reading, step in zip(cc.reread(steps, cc.CoftPolicy(lam=0.8), seed=3), steps, strict=True):
        assert_agrees(reading, fresh.step(step.token_id))


@pytest.mark.parametrize(
    ("decoded", "reader", "options", "message"),
    [
        ({"keep_logits": False}, cc.CoftPolicy(), {}, "Step 1 was stored without its logits"),
        ({}, cc.FactorizedCoftPolicy(), {}, "branches factual, masked"),
        ({}, cc.CoftPolicy(), {"alpha": 0.2}, "no calibration to read another alpha"),
        ({}, cc.VanillaPolicy(), {"lam": 0.2}, "neither a lambda nor a calibration"),
        ({}, cc.CoftPolicy(), {"lam": 1.2}, "lambda"),
        ({"head_tokens": 12}, cc.CoftPolicy(temperature=0.5), {}, "at temperature 1"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(model, decoded, reader, options, message):
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


def test_a_calibration_without_enough_contexts_certifies_everything_when_read_again(model):
    policy = coft(model)
    steps = written(model, policy)
    for reading in cc.reread(steps, policy, alpha=0.005, seed=3):
        assert (reading.log_tau, reading.state) == (-math.inf, "uninformative")
        assert reading.set_size == cc.Bounds(model.vocabulary_size, model.vocabulary_size)
    heads = written(model, policy, head_tokens=12)
    for reading in cc.reread(heads, policy, alpha=0.005, seed=3):
        assert reading.in_set is True
        assert reading.set_size == cc.Bounds(model.vocabulary_size, model.vocabulary_size)
        assert reading.certified_mass == cc.Bounds(1.0, 1.0)


@pytest.mark.parametrize("head_tokens", [None, 12])
def test_the_factual_reading_is_compared_with_the_threshold_at_every_lambda_and_alpha(model, head_tokens):
    policy = alone(model)
    steps = written(model, policy, forced=2, head_tokens=head_tokens)
    for read in (cc.reread(steps, policy, lam=0.2, seed=3), cc.reread(steps, policy, alpha=0.4, seed=3)):
        for step, own in zip(steps, read, strict=True):
            assert own.certified is (step.log_p_factual >= own.log_tau)
            assert own.margin.exact
            assert own.margin.low == pytest.approx(step.log_p_factual - own.log_tau, abs=1e-4)
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
