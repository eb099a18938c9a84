"""Reading an audit again: the same step at the same settings, and what a fresh run says at others."""

from dataclasses import replace

import pytest

import coft_core as cc
from coft_core.decode.loop import path_at
from coft_core.decode.reread import with_logits
from coft_core.model.fake import tiny_model
from coft_core.policies.ablations import NoCertificationPolicy
from tests.coft_core.decode.chains_to_read import (
    SPANS,
    TEXT,
    PlainDetector,
    alone,
    assert_agrees,
    coft,
    factorized,
    rollout,
    written,
)
from tests.coft_core.demo import demo_model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def demo():
    return demo_model(device="cpu")


POLICIES = {
    "joint": coft, "joint, top-k": lambda model: coft(model, top_k=3, top_p=1.0), "factorized": factorized,
    "factual reading alone": alone, "no certification": lambda model: NoCertificationPolicy(),
    "no calibration": lambda model: cc.CoftPolicy(), "vanilla": lambda model: cc.VanillaPolicy(),
    "vanilla, alone": lambda model: cc.VanillaPolicy(observe_masked=False),
}  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("greedy", [False, True])
def test_read_as_it_was_decoded_a_chain_is_the_very_chain(model, name, greedy):
    policy = POLICIES[name](model)
    steps = written(model, policy, forced=2, greedy=greedy)
    readings = cc.reread(steps, policy, seed=3, greedy=greedy)
    assert readings == steps


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
    assert any(now.policy_token_id != then.policy_token_id for now, then in zip(readings, steps, strict=True))


@pytest.mark.parametrize("build", [coft, factorized, alone])
def test_without_kept_logits_the_model_gives_the_readings_that_kept_ones_give(model, build):
    policy, other = build(model), build(model, lam=0.1)
    kept, bare = (written(model, policy, forced=2, **how) for how in ({}, {"full_bytes": 9}))
    assert {step.logits for step in bare} == {None}
    settings = {"lam": 0.1, "calibration": other.calibration, "seed": 3}
    pieces = [cc.reread(part, policy, **settings) for part in with_logits(rollout(model, policy).plan, bare)]
    readings = [reading for piece in pieces for reading in piece]
    for reading, expected in zip(readings, cc.reread(kept, policy, **settings), strict=True):
        assert_agrees(reading, expected)


@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_another_alpha_says_what_the_model_says_with_thresholds_read_at_it(model, alpha):
    policy = coft(model)
    steps = written(model, policy)
    fresh = rollout(model, replace(policy, calibration=policy.calibration.read(alpha=alpha)))
    readings = cc.reread(steps, policy, alpha=alpha, seed=3)
    for reading, step in zip(readings, steps, strict=True):
        assert_agrees(reading, fresh.step(step.token_id))
    assert {reading.log_tau for reading in readings} != {step.log_tau for step in steps}


def test_steps_read_together_are_the_steps_read_alone(demo, monkeypatch):
    steps = written(demo, cc.CoftPolicy(), count=7)
    alone_each = tuple(cc.reread([step], cc.CoftPolicy(), lam=0.1, seed=3)[0] for step in steps)
    assert cc.reread(steps, cc.CoftPolicy(), lam=0.1, seed=3) == alone_each
    # Four at a time, and three that are left over.
    monkeypatch.setattr("coft_core.decode.reread.MOST_NUMBERS", 8 * steps[0].logits.vocabulary_size)
    assert cc.reread(steps, cc.CoftPolicy(), lam=0.1, seed=3) == alone_each


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
        assert readings == run.steps
    drawn = [reading.policy_token_id for reading in cc.reread(fork.steps, policy, seed=4, path=fork.path)]
    assert drawn != [step.policy_token_id for step in fork.steps]


def test_a_step_is_drawn_with_the_path_of_the_branch_that_wrote_it():
    for path, index, expected in (
        ("0", 0, "0"), ("0/3:77", 3, "0"), ("0/3:77", 4, "0/3:77"), ("0/5:1/3:9", 3, "0"),
        ("0/5:1/3:9", 4, "0/5:1/3:9"), ("0/3:9/5:1", 4, "0/3:9"),
    ):  # fmt: skip
        assert path_at(path, index) == expected


def test_logits_are_kept_only_when_asked_for_and_change_nothing_else(model):
    policy = coft(model)
    options = {"spans": SPANS, "detector": PlainDetector(), "max_new_tokens": 8, "seed": 3}
    plain = cc.generate(model, TEXT, policy, **options)
    kept = cc.generate(model, TEXT, policy, keep_logits=True, **options)
    assert plain == kept
    assert {step.logits for step in plain.steps} == {None}
    assert all(isinstance(step.logits, cc.StoredLogits) for step in kept.steps)
    assert "logits" not in repr(kept.steps[0])
