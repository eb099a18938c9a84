"""Steps that several rollouts decide at once are those that each decides alone."""

import threading
from dataclasses import replace

import pytest
import torch

import coft_core as cc
from coft_core.decode.decide import NextStep, NextSteps
from coft_core.errors import CoftError
from coft_core.model.fake import tiny_model
from coft_core.model.joint import JointForwards
from coft_core.policies.base import Past
from coft_core.policies.contrastive import ContrastivePolicy
from tests.coft_core.decode.test_captured_steps import calibration
from tests.coft_core.model.test_joint import Gate, wait_until
from tests.conftest import PlainDetector

SECONDS = 60
BRANCHES = ("factual", "masked")
PROMPTS = [f"The nurse said {'very ' * n}he would come" for n in range(8)]


def planned(model, policy, prompt=PROMPTS[0], **options):
    at = prompt.index(" he ") + 1
    spans = [cc.Span(at, at + 2, "gender")]
    return cc.plan(model, prompt, policy, spans, detector=PlainDetector(), max_new_tokens=8, **options)


def following(model, policy, index=0, uniform=0.5, forced=None, **options):
    plan = planned(model, policy, **options)
    return NextSteps((NextStep(plan, index, BRANCHES, uniform, Past(model, plan.prompt), forced),))


def random_logits(count, vocabulary=258, dtype=torch.float32):
    """Logits of two branches that agree in part; in each some tokens are forbidden."""
    generator = torch.Generator().manual_seed(count)
    shared = torch.randn(count, 1, vocabulary, generator=generator) * 3
    found = shared + torch.randn(count, 2, vocabulary, generator=generator)
    found[torch.rand(count, 2, vocabulary, generator=generator) < 0.02] = -torch.inf
    return list(found.to(dtype))


CALIBRATED = [
    cc.CoftPolicy(calibration=calibration(taus), accept_mismatch=accepted, top_p=0.8)
    for taus, accepted in (([0.001, 0.01], True), ([0.02], True), ([0.2, 0.9], True), ([0.004, 0.0001], True))
]


@pytest.mark.parametrize(
    "options", [{}, {"greedy": True}, {"keep_logits": True}, {"keep_logits": True, "full_bytes": 9}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("policies", [CALIBRATED, [cc.CoftPolicy(lam=0.3)] * 4, [cc.VanillaPolicy()] * 4])
def test_together_each_gets_its_own_step_at_its_own_threshold_and_position(policies, dtype, options):
    model = tiny_model()
    steps = [
        following(model, policy, index=place, uniform=0.11 + 0.2 * place, **options)
        for place, policy in enumerate(policies)
    ]
    assert len({own.key for own in steps}) == 1
    logits = random_logits(4, dtype=dtype)
    alone = [step for own, rows in zip(steps, logits, strict=True) for step in own.alone(rows)]
    together = [step for finish in steps[0].together(logits, steps) for step in finish()]
    assert together == alone
    assert [own.logits for own in together] == [own.logits for own in alone]
    if policies is CALIBRATED:
        assert len({own.set_size for own in together}) > 1
        assert len({own.log_tau for own in together}) == 4


def test_a_nan_is_the_error_of_its_own_step_alone():
    model = tiny_model()
    steps = [following(model, CALIBRATED[0], index=place) for place in range(3)]
    logits = random_logits(3)
    logits[1][0, 7] = torch.nan
    first, second, third = steps[0].together(logits, steps)
    assert first() == steps[0].alone(logits[0])
    assert third() == steps[2].alone(logits[2])
    with pytest.raises(CoftError, match="NaN at step 2"):
        second()


def test_only_steps_that_are_one_function_have_equal_keys():
    model = tiny_model()
    base = cc.CoftPolicy(calibration=calibration([0.01]), accept_mismatch=True)
    key = following(model, base).key
    alike = replace(base, calibration=calibration([0.3]))
    assert following(model, alike, index=5, uniform=0.9, prompt=PROMPTS[3]).key == key
    others = [replace(base, lam=0.5), replace(base, top_p=0.5), replace(base, temperature=0.7), cc.CoftPolicy()]
    assert all(following(model, other).key not in (None, key) for other in (*others, cc.VanillaPolicy()))
    assert following(model, base, greedy=True).key != key
    assert following(model, base, keep_logits=True).key != key
    assert following(model, base, forced=3).key is None
    assert following(model, ContrastivePolicy()).key is None
    assert following(model, cc.FactorizedCoftPolicy()).key is None


def rollouts(model, forwards, **options):
    """Eight reviewers: two policies, four calibrations, draws of their own."""
    policies = [*CALIBRATED, *([cc.VanillaPolicy()] * 3), ContrastivePolicy()]
    return [
        cc.Rollout(planned(model, policy, prompt, seed=place, keep_logits=place % 2 == 0, **options), forwards=forwards)
        for place, (policy, prompt) in enumerate(zip(policies, PROMPTS, strict=True))
    ]


def step_together(gate, forwards, members):
    """One step of all in threads of their own, whose forwards are collected first."""
    gate.close()
    found, errors = {}, {}

    def take(place):
        try:
            found[place] = members[place].step()
        except Exception as error:
            errors[place] = error

    threads = [threading.Thread(target=take, args=(place,), daemon=True) for place in range(len(members))]
    threads[0].start()
    assert gate.entered.wait(SECONDS)
    for count, thread in enumerate(threads[1:], start=2):
        thread.start()
        wait_until(lambda count=count: forwards.waiting == count)
    gate.opened.set()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    return found, errors


def assert_alike(found, expected):
    """The same step, up to sums in another order."""
    assert (found.token_id, found.set_size, found.state, found.fallback) == (
        expected.token_id, expected.set_size, expected.state, expected.fallback,
    )  # fmt: skip
    assert found.log_tau == expected.log_tau
    assert found.log_p_fused == pytest.approx(expected.log_p_fused, abs=5e-5)
    assert found.diagnostics.kl_fused_masked == pytest.approx(expected.diagnostics.kl_fused_masked, abs=1e-4)
    assert [row.token_id for row in found.candidates[:3]] == [row.token_id for row in expected.candidates[:3]]
    assert (found.logits is None) == (expected.logits is None)
    if found.logits is not None:
        torch.testing.assert_close(found.logits.tensor(), expected.logits.tensor(), atol=5e-5, rtol=1e-5)


def test_eight_threads_step_as_each_would_alone():
    model, gate = tiny_model(), Gate()
    forwards = JointForwards(gate)
    members, alone = rollouts(model, forwards), rollouts(model, None)
    for member in members:
        member.step()  # prompts are read one by one
    for own in alone:
        own.step()
    before = forwards.forwards
    for _ in range(4):
        found, errors = step_together(gate, forwards, members)
        assert not errors
        for place, own in enumerate(alone):
            assert_alike(found[place], own.step())
    assert forwards.forwards == before + 4
    assert [member.text for member in members] == [own.text for own in alone]


def test_where_deciding_at_once_fails_each_decides_alone(monkeypatch):
    def fail(*_):
        raise RuntimeError("no memory for all of them")

    model, gate = tiny_model(), Gate()
    forwards = JointForwards(gate)
    members, alone = rollouts(model, forwards), rollouts(model, None)
    for own in (*members, *alone):
        own.step()
    monkeypatch.setattr("coft_core.decode.decide.NextSteps.together", fail)
    found, errors = step_together(gate, forwards, members)
    assert not errors
    for place, own in enumerate(alone):
        assert_alike(found[place], own.step())


def test_released_logits_are_gone_and_the_steps_stay():
    rollout = cc.Rollout(planned(tiny_model(), cc.CoftPolicy(), keep_logits=True))
    first = [rollout.step() for _ in range(3)]
    rollout.release_logits()
    fourth = rollout.step()
    assert [step.logits is None for step in rollout.steps] == [True, True, True, False]
    rollout.release_logits()
    assert all(step.logits is None for step in rollout.steps)
    assert rollout.steps == (*first, fourth)
